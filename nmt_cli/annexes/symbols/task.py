"""The translation task with symbols in its lines, and tags before source lines.

Tags are symbols. They stand after the prefix of text (`corpus@<bt>`) or in columns of tables
(`--tags`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from nmt_cli.annexes.symbols.vocabulary import SYMBOL, WithSymbols, symbols_of
from nmt_cli.data.vocabulary import Vocabulary
from nmt_cli.errors import DataError, UsageError
from nmt_cli.files.parallel_text import ParallelLines, TableLines
from nmt_cli.files.text import untagged
from nmt_cli.registry import option, register
from nmt_cli.streams import warn
from nmt_cli.task import Example, Task
from nmt_cli.tasks.translation import SMALLEST, TranslationConfig, TranslationTask


@dataclass(frozen=True)
class SymbolsConfig(TranslationConfig):
    """Settings of `nmt prepare --task translation`."""

    tags: str = option(
        "",
        "Columns of tables that become tags before the source: V;PST is <V> <PST>.",
        metavar="N,N",
    )
    symbols: str = option(
        "",
        "Symbols, such as tags: one id each, never changed, and not in outputs.",
        metavar="<2de>,<bt>",
    )
    generate_symbols: bool = option(False, "Outputs may have the symbols.")


@dataclass(frozen=True)
class TaggedLines(ParallelLines):
    """Consecutive pairs of lines with tags before each source line that is not empty."""

    block: ParallelLines
    tag: str
    columns: tuple[int, ...]  # of tags, in a table
    known: frozenset[str] | None  # other tags of columns are left out

    def lines(self) -> Iterator[tuple[str, str, str]]:
        tagged = zip(self.block.lines(), self.tags_of_lines(), strict=True)
        for (source, target, place), tags in tagged:
            if source.strip():
                before = [self.tag] if self.tag else []
                before += [tag for tag in tags if self.known is None or tag in self.known]
                source = " ".join([*before, source])
            yield source, target, place

    def tags_of_lines(self) -> list[list[str]]:
        """Return the tags in the columns of each line: `V;PST` is `<V>` and `<PST>`."""
        if not self.columns or not isinstance(self.block, TableLines):
            return [[] for _ in range(self.size)]
        tags_of_lines = []
        for number, cells in enumerate(self.block.cells(self.columns, "--tags"), self.first):
            tags = [f"<{tag}>" for cell in cells for tag in cell.split(";") if tag]
            for tag in tags:
                if not SYMBOL.fullmatch(tag):
                    raise DataError(
                        f"{self.names[0]}:{number}: {tag} cannot be a tag: it has a space, a "
                        "comma, < or >"
                    )
            tags_of_lines.append(tags)
        return tags_of_lines


@register("task", "translation", SymbolsConfig)
class TranslationWithSymbols(TranslationTask):
    """Sentences in one language, which may have symbols, to sentences in another."""

    config_type = SymbolsConfig
    vocabulary_settings = (*TranslationTask.vocabulary_settings, "symbols")

    def __init__(self, config: SymbolsConfig) -> None:
        super().__init__(config)
        if config.tags and not re.fullmatch(r"[1-9]\d{0,4}(,[1-9]\d{0,4})*", config.tags):
            raise UsageError(f"--tags {config.tags}: expected numbers of columns from 1, as in 3,4")
        self._symbols = symbols_of(config.symbols)
        self._tag_columns: tuple[int, ...] = ()
        if config.tags:
            self._tag_columns = tuple(map(int, config.tags.split(",")))
        self._known_tags: frozenset[str] | None = None  # None: all
        self.tag = ""  # symbols before each line to translate

    @property
    def symbols(self) -> list[str]:
        if self._symbols is None:
            return []
        return self._symbols.names

    @property
    def never_generated(self) -> int:
        if self.config.generate_symbols:
            return 0
        return len(self.symbols)

    def text_of(self, line: str) -> str:
        if self._symbols is None:
            return line
        return self._symbols.without(line)

    def files(self, prefix: str) -> list[Path]:
        return super().files(untagged(prefix)[0])

    def blocks(
        self, prefix: str, consumed: Callable[[int], None] | None = None
    ) -> Iterator[ParallelLines]:
        where, tag = untagged(prefix)
        if tag:
            check_tag(tag, self.symbols, f"{self.files(where)[0]}@{tag}")
        columns, known = self._tag_columns, self._known_tags
        for block in super().blocks(where, consumed):
            if tag or columns:
                lines = block.names, block.blocks, block.first, block.size
                yield TaggedLines(*lines, block, tag, columns, known)
            else:
                yield block

    def look_ahead(self, training: Iterable[str], held_out: Iterable[str], adopted: bool) -> None:
        """Make symbols of the values in columns of tags, unless vocabularies are `adopted`."""
        if not self._tag_columns:
            return
        new = self._new_tags(training)
        if adopted and new:
            raise UsageError(
                f"--tags: {' '.join(sorted(new)[:8])} are no symbols of --subwords-from"
            )
        self.config = replace(self.config, symbols=",".join([*self.symbols, *sorted(new)]))
        self._symbols = symbols_of(self.config.symbols)
        unknown = self._new_tags(held_out)
        if unknown:
            warn(
                f"--tags: {len(unknown)} left out, which no training line has, such as "
                f"{min(unknown)}"
            )
        self._known_tags = frozenset(self.symbols)

    def _new_tags(self, prefixes: Iterable[str]) -> set[str]:
        """Return the tags in text that are no symbols yet."""
        tags: set[str] = set()
        for prefix in prefixes:
            for block in self.blocks(prefix):
                if isinstance(block, TaggedLines):
                    tags.update(chain.from_iterable(block.tags_of_lines()))
        return tags.difference(self.symbols)

    def rejection(self, example: Example) -> str | None:
        if self._symbols:
            source, target = self.text_of(example.source), self.text_of(example.target)
            example = example._replace(source=source, target=target)
        return super().rejection(example)

    def normalised(self, lines: Sequence[str], side: int) -> Sequence[str]:
        return self._beside_symbols(super().normalised, lines, side)

    def tokenised(self, lines: Sequence[str], side: int) -> Sequence[str]:
        return self._beside_symbols(super().tokenised, lines, side)

    def _beside_symbols(
        self, change: Callable[[Sequence[str], int], Sequence[str]], lines: Sequence[str], side: int
    ) -> Sequence[str]:
        if self._symbols is None:
            return change(lines, side)
        return self._symbols.changed(lines, lambda texts: change(texts, side))

    def encode_source(self, line: str) -> list[int]:
        ids = super().encode_source(line)
        if self.tag and ids:  # an empty line stays empty
            return super().encode_source(f"{self.tag} {line}")
        return ids

    def learned(self, lines: Iterable[str], reserved: int = 0) -> Vocabulary:
        count = len(self.symbols)
        if self.config.vocab_size < SMALLEST + count:
            raise UsageError(
                f"--vocab-size {self.config.vocab_size} has no place for words beside {count} "
                "symbols"
            )
        if self._symbols:
            lines = self._symbols.texts(lines)
        return super().learned(lines, reserved=count)

    def adopt_vocabularies(self, saved: TranslationTask) -> None:
        self._symbols = symbols_of(self.config.symbols)
        super().adopt_vocabularies(saved)

    def set_vocabularies(self, source: Vocabulary, target: Vocabulary) -> None:
        """Use these vocabularies, with the symbols."""
        super().set_vocabularies(source, target)
        self._with_symbols = source, target
        if self._symbols and not source.lists_symbols:
            new_source = WithSymbols(source, self._symbols)
            new_target = new_source if target is source else WithSymbols(target, self._symbols)
            self._with_symbols = new_source, new_target

    def vocabularies(self) -> tuple[Vocabulary, Vocabulary]:
        return self._with_symbols


@dataclass(frozen=True)
class TagConfig:
    """Settings of tags in translation."""

    tag: str | None = option(
        None, "Put symbols before each line, such as '<2de> <bt>'.", metavar="SYMBOLS"
    )


@register("encoding", "tagged", TagConfig)
def with_tag(config: TagConfig, *, task: Task) -> Task:
    """Return the task with a tag before each line. Raise UsageError if it has no such symbols."""
    tag = config.tag or ""
    symbols = task.symbols if isinstance(task, TranslationWithSymbols) else []
    check_tag(tag, symbols, f"--tag {tag}")
    tagged: Any = copy(task)
    tagged.tag = tag
    return tagged  # type: ignore[no-any-return]


def check_tag(tag: str, symbols: Sequence[str], where: str) -> None:
    """Raise UsageError unless all words of `tag` are symbols."""
    known = "There are none"
    if symbols:
        known = f"The symbols are {', '.join(symbols)}"
    for name in tag.split():
        if name not in symbols:
            raise UsageError(
                f"{where}: {name} is no symbol. {known}; nmt prepare makes them with --symbols"
            )
