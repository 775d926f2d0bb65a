"""`nmt serve`: translation over HTTP, with JSON and a page to type into."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nmt_cli
from nmt_cli.annexes.serving.limits import Limits
from nmt_cli.commands.translate_options import EngineOptions
from nmt_cli.decoding.options import TranslateOptions
from nmt_cli.errors import CheckpointError, UsageError, missing_package
from nmt_cli.files.text import fingerprint, read_object
from nmt_cli.flags import Command
from nmt_cli.registry import group, option
from nmt_cli.streams import say

if TYPE_CHECKING:
    from nmt_cli.decoding.translator import Translator


@dataclass(frozen=True, kw_only=True)
class ServeOptions(EngineOptions):
    """Translate over HTTP: JSON in, JSON out, and a page to type into."""

    host: str = option(
        "127.0.0.1", "Address to listen on. 0.0.0.0 is every network.", metavar="ADDRESS"
    )
    port: int = option(8000, "Port to listen on. 0 is a free one.", minimum=0, maximum=65535)
    quiet: bool = option(False, "No line on stderr for each request.", names=("--quiet", "-q"))
    limits: Limits = group("limits", Limits)
    # The queue makes the batches, and an answer has one output.
    translation: TranslateOptions = group(
        "batches and limits",
        TranslateOptions,
        without=("read_ahead", "nbest", "sampling", "alignments"),
    )


def serve(options: ServeOptions) -> None:
    """Serve until a signal stops it.

    Raises: as `load_translator` and `nmt_cli.annexes.serving.server.serve`, and UsageError if
        flags do not fit together, or starlette, uvicorn or prometheus-client is not installed.
    """
    try:
        from nmt_cli.annexes.serving import server
    except ModuleNotFoundError as error:
        raise missing_package("nmt serve", error, extra="serve") from error

    chosen = options.translation
    if chosen.get("sentence_language") is not None and chosen.get("split_sentences") is None:
        chosen = chosen.replaced({"split_sentences": True})
    translator = options.translator(chosen, say=say)
    if chosen.get("split_sentences") is None:
        translator = split_if_possible(translator)
    address = options.host, options.port
    information = about(options, translator)
    with translator.engine.workers(translator, options.workers) as workers:
        server.serve(
            translator, workers, options.limits, address, information, access_log=not options.quiet
        )


def split_if_possible(translator: Translator) -> Translator:
    """Return the translator with `split_sentences`, if it can split this language.

    People paste paragraphs, and a model of sentences omits a part of them.
    """
    if translator.task.languages is None:
        return translator
    try:
        options = translator.options.replaced({"split_sentences": True})
        return dataclasses.replace(translator, options=options)
    except UsageError as error:
        say(f"each line is translated as one sentence. {error}")
        return translator


def about(options: ServeOptions, translator: Translator) -> dict[str, Any]:
    """Return what clients may know: versions, models, languages, and whether paragraphs are split.

    A model has the last two names of its path, and the SHA-256 of its weights.
    """
    source, target = translator.task.languages or (None, None)
    # What was loaded: a run may have a newer checkpoint by now.
    folders = translator.engine.folders or options.checkpoints
    return {
        "version": nmt_cli.__version__,
        "torch": version("torch"),
        "models": [str(Path(*path.absolute().parts[-2:])) for path in options.checkpoints],
        "sha256": [weights_fingerprint(folder) for folder in folders],
        "source_language": source,
        "target_language": target,
        "split_sentences": bool(translator.options.get("split_sentences")),
    }


def weights_fingerprint(path: Path) -> str:
    """Return the SHA-256 of a checkpoint's weights. For an export, it is of its record."""
    from nmt_cli.checkpoint import CHECKSUMS, EXPORT, WEIGHTS, locate

    record = path / EXPORT
    if record.is_file():
        return fingerprint(record)
    # Loading has compared the weights with it, so they are not read again.
    checksums = read_object(locate(path) / CHECKSUMS, CheckpointError, "")
    return str(checksums[WEIGHTS])


command = Command(
    ServeOptions,
    serve,
    examples=[
        "nmt serve run/averaged",
        "nmt serve run/averaged --port 8080 --beam 1 --dtype int8",
        "nmt serve run/averaged --host 0.0.0.0 --max-queue 200 --timeout 10",
    ],
)
