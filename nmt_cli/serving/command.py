"""`nmt serve`: translation over HTTP."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmt_cli.decoding.options import ModelOptions, SearchOptions, TranslateOptions
from nmt_cli.errors import UsageError
from nmt_cli.flags import Command, MoreFlags, Panel
from nmt_cli.registry import option
from nmt_cli.serving.limits import Limits
from nmt_cli.streams import say

if TYPE_CHECKING:
    from nmt_cli.decoding.translator import Translator


@dataclass(frozen=True, kw_only=True)
class ServeOptions(ModelOptions):
    """Translate over HTTP: JSON in, JSON out, and a page to type into."""

    host: str = option("127.0.0.1", "Address to listen on; 0.0.0.0 is every network.", metavar="ADDRESS")
    port: int = option(8000, "Port to listen on; 0 is a free one.", minimum=0, maximum=65535)
    quiet: bool = option(False, "No line on stderr for each request.", names=("--quiet", "-q"))


def serve(options: ServeOptions) -> None:
    """Serve until a signal stops it.

    Raises:
        UsageError: flags that do not fit together; starlette, uvicorn or prometheus-client is not installed.
        CheckpointError, DataError: as `load_with`.
        NmtError: as `nmt_cli.serving.server.serve`.
    """
    try:
        from nmt_cli.serving import server
    except ModuleNotFoundError as error:
        raise UsageError(f"nmt serve needs the package {error.name}: pip install 'nmt-cli[serve]'") from error
    from nmt_cli import registry
    from nmt_cli.decoding.workers import translation_workers
    from nmt_cli.export.loading import load_with

    options.check_dictionary()
    registry.discover(options.imports)
    names = {field.name for field in dataclasses.fields(Limits)}
    limits = Limits(**{name: options.chosen[name] for name in names & options.chosen.keys()})
    search = {name: options.chosen[name] for name in options.chosen.keys() - names}
    if "sentence_language" in search:
        search.setdefault("split_sentences", True)
    translator = load_with(dataclasses.replace(options, chosen=search), say=say)
    if "split_sentences" not in search:
        translator = split_if_possible(translator, say)
    log: Callable[[str], None] = (lambda line: None) if options.quiet else say
    address = options.host, options.port
    with translation_workers(translator, options.workers) as workers:
        server.serve(translator, workers, limits, address, about(options, translator), say, log)


def split_if_possible(translator: Translator, say: Callable[[str], None]) -> Translator:
    """Return the translator with `split_sentences`; as it is, with a message, if it cannot split this language.

    People paste paragraphs, of which a model of sentences omits a part.
    """
    if translator.task.source_language is None:
        return translator
    try:
        return dataclasses.replace(translator, options=dataclasses.replace(translator.options, split_sentences=True))
    except UsageError as error:
        say(f"each line is translated as one sentence. {error}")
        return translator


def about(options: ServeOptions, translator: Translator) -> dict[str, Any]:
    """Return what clients may know of the model: the last names of its path, languages, and whether it splits."""
    source, target = getattr(translator.task, "languages", (None, None))
    return {
        "models": [str(Path(*path.absolute().parts[-2:])) for path in options.checkpoints],
        "source_language": source,
        "target_language": target,
        "split_sentences": translator.options.split_sentences,
    }


command = Command(
    ServeOptions,
    lambda options, chosen: serve(dataclasses.replace(options, chosen=chosen)),
    lambda _: MoreFlags(
        [Panel("limits", Limits), Panel("search", SearchOptions), Panel("batches and limits", TranslateOptions)],
        without=("nbest", "read_ahead"),  # the best output is the answer, and the queue makes the batches
    ),
    examples=[
        "nmt serve run/averaged",
        "nmt serve run/averaged --port 8080 --beam 1 --dtype int8",
        "nmt serve run/averaged --engine ctranslate2",
        "nmt serve run/averaged --host 0.0.0.0 --max-queue 200 --timeout 10",
    ],
)
