"""`nmt import`: a model of another program as a checkpoint. (`import` is a Python keyword.)"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nmt_cli.flags import Command
from nmt_cli.registry import REQUIRED, argument, option
from nmt_cli.streams import say


@dataclass(frozen=True, kw_only=True)
class ImportOptions:
    """Make a checkpoint of a model of fairseq, OpenNMT-py or Marian (OPUS-MT).

    What PATH is decides how it is read. Nothing in it is run.
    """

    path: Path = argument(
        "PATH", "A checkpoint of fairseq, beside its dict.*.txt, or of OpenNMT-py, or a folder with a MarianMTModel."
    )
    out: Path = option(REQUIRED, "The checkpoint to write.", metavar="CHECKPOINT")
    source_lang: str | None = option(
        None, "Source language: the ending of your files. [default: what PATH names]", metavar="LANG"
    )
    target_lang: str | None = option(None, "Target language.", metavar="LANG")
    subwords: Path | None = option(
        None, "A SentencePiece model or subword-nmt's codes. [default: input is split already, outputs stay split]"
    )
    target_subwords: Path | None = option(None, "Of the target. [default: --subwords]")
    moses: bool = option(False, "The model was trained on text tokenised as Moses does. Outputs are detokenised.")
    moses_escape: bool = option(False, "With --moses: on text with escaped characters (&apos;).")
    lowercase: bool = option(False, "The model was trained on lower-cased text.")
    overwrite: bool = option(False, "Replace an imported or averaged checkpoint.")


def import_model(options: ImportOptions) -> None:
    """Write the model of `options.path` as the checkpoint `options.out`.

    Raises:
        UsageError: `out` cannot be written or replaced, a language is not known, or an option does not fit.
        CheckpointError: no importer takes `path`, a file is missing or damaged, or our Transformer cannot express the
            model.
    """
    from nmt_cli import checkpoint, registry
    from nmt_cli.commands.average import new_checkpoint
    from nmt_cli.importing.importers import importer_of

    registry.discover()
    with new_checkpoint(options.out, options.overwrite) as aside:
        importer, saved = importer_of(options.path)
        found = importer.read(options.path, saved, options)
        checkpoint.write(aside, found.contents, found.weights, found.task)
    source, target = found.task.languages
    parameters = sum(weight.numel() for weight in found.weights.values())
    say(
        f"imported {options.path} into {options.out}: {source} to {target}, {parameters:,} parameters, "
        f"{found.contents.target_vocabulary_size:,} entries in the vocabulary\n"
        f"next: nmt translate {options.out}"
    )


command = Command(
    ImportOptions,
    import_model,
    examples=[
        "nmt import opus-mt-en-de --out en-de",
        "nmt import checkpoint_best.pt --subwords bpe.codes --moses --moses-escape --out en-de",
        "nmt import model_step_100000.pt --source-lang en --target-lang de --subwords joint.model --out en-de",
    ],
)
