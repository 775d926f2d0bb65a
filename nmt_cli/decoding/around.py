"""The seam for what goes around a translation, such as inline tags or the sentences of a line.

An `Around` reads a line before the search and writes its translation after it. In between it may
revise the outputs where they are made, which may be another process. It is registered as a
component of the kind `around`, with a frozen dataclass of flags: `build(config, engine=engine,
options=options)` returns it, or None if there is nothing to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from nmt_cli import registry
from nmt_cli.config import fields, flag
from nmt_cli.decoding.engine import Engine, Request
from nmt_cli.decoding.options import TranslateOptions
from nmt_cli.decoding.outputs import Output, Translation
from nmt_cli.errors import UsageError


class ReadText(NamedTuple):
    """A text that one `Around` has read."""

    text: str
    parts: int  # the number of texts that it became
    note: Any  # for `write`


class Reading(NamedTuple):
    """A line that a `Chain` has read."""

    texts: list[str]  # to translate in place of the line
    layers: list[list[ReadText]]  # of each `Around`, for `Chain.write`


class Around:
    """Something around a translation. It does nothing, so a subclass has the methods that it needs.

    Attributes:
        name: its flags, for messages. The chain sets it.
        order: of those around a line, the least is the outermost.
        takes_prefix: it may be around a line whose output begins with a given text.
        allows_unknown: the search may give the unknown word.
        needs_models: `revise` computes with the engine's models.
        changes_words: the words of its translation are not those that were aligned.
        aligns_words: its outputs have links of their words, so nothing outside may change them.
        file: a file with a line for each output, which `row` returns.
    """

    name = ""
    order = 50
    takes_prefix = False
    allows_unknown = False
    needs_models = False
    changes_words = False
    aligns_words = False
    file: Path | None = None

    def read(self, line: str) -> tuple[list[str], Any]:
        """Return the texts to translate in place of a line, at least one, and a note for `write`.

        Raises:
            UsageError: the line cannot be read.
        """
        return [line], None

    def revise(self, batch: Sequence[Request], outputs: list[list[Output]]) -> list[list[Output]]:
        """Return the outputs of each text of a batch, changed or with notes.

        It runs in a worker process.
        """
        return outputs

    def write(self, line: str, translations: Sequence[Translation], note: Any) -> Translation:
        """Return the translation of a line from the translations of the texts of `read`."""
        (translation,) = translations
        return translation

    def row(self, output: Output) -> str:
        """Return the line about an output for `file`."""
        raise NotImplementedError

    def joined(self, inner: Around) -> Around | None:
        """Return one that does the work of both, or None if they go one around the other."""
        return None


class Chain:
    """All that goes around the translations of one translator, the outermost first.

    Raises:
        UsageError: two do not fit together.
    """

    def __init__(self, arounds: Iterable[Around] = ()) -> None:
        self.arounds: list[Around] = []
        for around in sorted(arounds, key=lambda around: around.order):
            joined = None
            if self.arounds:
                joined = self.arounds[-1].joined(around)
            if joined is None:
                self.arounds.append(around)
            else:
                joined.name = f"{self.arounds[-1].name}, {around.name}"
                self.arounds[-1] = joined
        aligning = [around for around in self.arounds if around.aligns_words]
        changing = [around for around in self.arounds if around.changes_words]
        if aligning and changing:
            raise UsageError(
                f"{aligning[0].name} cannot be used with {changing[0].name}, which changes the "
                "words of outputs"
            )

    def check_prefix(self) -> None:
        """Raise UsageError if outputs cannot begin with a given text."""
        for around in self.arounds:
            if not around.takes_prefix:
                raise UsageError(f"{around.name} cannot be used with prefixes")

    @property
    def allows_unknown(self) -> bool:
        """Whether the search may give the unknown word."""
        return any(around.allows_unknown for around in self.arounds)

    def read(self, line: str) -> Reading:
        """Return the texts to translate in place of a line, and what `write` needs."""
        texts = [line]
        layers = []
        for around in self.arounds:
            layer = []
            inner_texts = []
            for text in texts:
                parts, note = around.read(text)
                layer.append(ReadText(text, len(parts), note))
                inner_texts += parts
            layers.append(layer)
            texts = inner_texts
        return Reading(texts, layers)

    def revise(self, batch: Sequence[Request], outputs: list[list[Output]]) -> list[list[Output]]:
        """Return the outputs of each text of a batch, revised by all, the innermost first."""
        for around in reversed(self.arounds):
            outputs = around.revise(batch, outputs)
        return outputs

    def write(
        self, translations: Iterable[Translation], layers: Sequence[Sequence[ReadText]]
    ) -> Translation:
        """Return the translation of a line from the translations of its texts."""
        for around, layer in zip(reversed(self.arounds), reversed(layers), strict=True):
            parts = iter(translations)
            translations = []
            for text, count, note in layer:
                translations.append(around.write(text, list(islice(parts, count)), note))
        (translation,) = translations
        return translation


def chain_of(options: TranslateOptions, engine: Engine) -> Chain:
    """Return what the options say.

    Raises:
        UsageError: two do not fit together, or one does not fit the task or the engine.
    """
    arounds = list[Around]()
    for config in options.used("around"):
        name = flags_of(config)
        around = registry.build(config, engine=engine, options=options)
        if around is None:
            continue
        if around.needs_models and not engine.models:
            raise UsageError(f"{name} needs the attention of a model: use --engine nmt")
        around.name = name
        arounds.append(around)
    return Chain(arounds)


def flags_of(config: Any) -> str:
    """Return the flags of the settings that differ from their defaults, or all if none does."""
    default = type(config)()
    flags = []
    changed = []
    for field, _ in fields(type(config)):
        flags.append(flag(field))
        if getattr(config, field.name) != getattr(default, field.name):
            changed.append(flag(field))
    return ", ".join(changed or flags)
