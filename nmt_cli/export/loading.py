"""Loading of translators by engine: `nmt`, or CTranslate2 with an export, which is kept beside its checkpoint."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from nmt_cli import __version__, checkpoint
from nmt_cli.decoding.loading import load_translator, task_options
from nmt_cli.decoding.options import ENGINES, ModelOptions
from nmt_cli.decoding.translator import Translator
from nmt_cli.decoding.workers import default_workers
from nmt_cli.device import choose_device
from nmt_cli.errors import UsageError, nearest
from nmt_cli.export.formats import module_of
from nmt_cli.export.writing import check_no_export, fingerprint_of, record_of, write_export
from nmt_cli.files.staging import alone

FORMAT = "ctranslate2"


def load_with(
    options: ModelOptions, *, scores: bool = True, say: Callable[[str], None] = lambda message: None
) -> Translator:
    """Return the translator of a checkpoint, or of several as an ensemble.

    Args:
        options: the checkpoints and the engine, `chosen` included. CTranslate2 also takes the directory of an export;
            its `workers` are threads, each of which translates a batch, by default one for each core.
        scores: whether CTranslate2 computes the log-probabilities of outputs, in another pass over them.
        say: called with messages.

    Raises: as `load_translator`, and
        UsageError: the engine is unknown or not installed, or cannot express the model or an option.
        CheckpointError: the other program computes something else.
        NmtError: it cannot load the model.
    """
    paths, engine = options.checkpoints, options.engine
    if engine == "nmt":
        for path in paths:
            check_no_export(path)
        return load_translator(paths, options.device, options.chosen, options.dtype, say, options.dictionary)
    if engine not in ENGINES:
        raise UsageError(f"there is no engine called {engine!r}. {nearest(engine, ENGINES)}")
    if options.dictionary is not None:
        raise UsageError("a dictionary of unknown words needs nmt's own engine: leave it out, or --engine ctranslate2")
    if len(paths) != 1:
        raise UsageError("CTranslate2 translates with one model, not with an ensemble: give one checkpoint")
    module_of(FORMAT)  # it is installed
    from nmt_cli.ctranslate2.engine import load_engine

    place = choose_device(options.device)
    folder = paths[0] if record_of(paths[0]).get("format") == FORMAT else kept_export(paths[0], say)
    task = checkpoint.load_task(folder / checkpoint.TASK)
    threads = default_workers(place) if options.workers is None else options.workers
    dtype = "float32" if options.dtype == "auto" else options.dtype
    model = load_engine(folder, task, place, dtype, threads, scores)
    translator = Translator(task, model, place, task_options(task, options.chosen))
    if translator.options.search.beam > 1:
        # It leaves out forbidden tokens before its softmax, and we after ours: CTranslate2 offers no other order.
        say(
            "CTranslate2's beam search ranks by length^alpha, and without the probability of the unknown word, so a "
            "few outputs may differ from those of nmt, and many where the vocabulary lacks words of the text"
        )
    return translator


def kept_export(path: Path, say: Callable[[str], None]) -> Path:
    """Return the export of a checkpoint, or of a run's newest one, which is kept beside it; write it if it is not.

    Raises:
        UsageError: it cannot be written there, or `path` is another export.
        CheckpointError: as `write_export`.
    """
    check_no_export(path)
    folder = checkpoint.locate(path)
    if folder != path:
        say(f"{path}: using {folder}")
    folder = folder.resolve()
    place = folder.with_name(f".{folder.name}.{FORMAT}")
    with alone(folder):
        record = record_of(place)
        if (record.get("checkpoint"), record.get("nmt")) == (fingerprint_of(folder), __version__):
            return place
        if not os.access(folder.parent, os.W_OK):
            raise UsageError(
                f"{folder.parent}: cannot be written, and the export of a checkpoint is kept beside it. Export it to "
                f"another place: nmt export {folder} --to {FORMAT} --out DIR, and give DIR in its place"
            )
        say(f"exporting to {place}, which is kept")
        write_export(folder, FORMAT, place, overwrite=True, say=say)
    return place
