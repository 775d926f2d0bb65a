"""The passes of `nmt prepare` over text: cleaning, sampling, encoding. Worker processes decode,
clean and encode it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from itertools import compress, count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nmt_cli.commands import progress
from nmt_cli.data import parallel
from nmt_cli.data.cleaning import COMPARED, DUPLICATE, EMPTY, TAKEN, held_out, pair_hash, repeated
from nmt_cli.data.corpus import RAW_SPLITS, SIDES, CorpusWriter, Ids
from nmt_cli.errors import DataError, UsageError
from nmt_cli.registry import option
from nmt_cli.streams import warn
from nmt_cli.task import Example, Task

Mask = npt.NDArray[np.bool_]
# A reason, and whether it drops a source with a target.
Filter = tuple[str, Callable[[str, str], bool]]


@dataclass(frozen=True, kw_only=True)
class CleaningOptions:
    """Duplicates, and text that is held out."""

    keep_duplicates: bool = option(False, "Keep repeated pairs.")
    unique: str = option(
        "pair", "What no two pairs have in common. The first one stays.", choices=tuple(COMPARED)
    )
    hold_out: int | None = option(
        None,
        "Take N of the pairs that are left for validation, and N for test. Pairs that share a side "
        "with them are "
        "dropped.",
        minimum=1,
        metavar="N",
    )

    def check(self) -> None:
        """Raise UsageError for options that do not fit one another."""
        if self.keep_duplicates and self.unique != "pair":
            raise UsageError(f"--keep-duplicates contradicts --unique {self.unique}")


class Part(NamedTuple):
    """A prefix of text and its weight: how often an epoch has its sentences."""

    prefix: str
    weight: float = 1


class Selected(NamedTuple):
    """A block of pairs, and which of them are used."""

    part: int  # the number of its `Part`
    block: Any
    used: Mask


@dataclass
class Text:
    """The pairs of a split that are kept, read from the files again in each pass."""

    task: Task
    split: str
    parts: Sequence[Part]
    kept: Mask  # of each pair in the files
    dropped: Counter[str] = field(default_factory=Counter)  # pairs by reason

    def __len__(self) -> int:
        return int(np.count_nonzero(self.kept))

    def __iter__(self) -> Iterator[Selected]:
        place = 0
        for number, part in enumerate(self.parts):
            for block in self.task.blocks(part.prefix):
                used = self.kept[place : place + len(block)]
                place += len(block)
                if len(used) == len(block) and used.any():
                    yield Selected(number, block, used)
        if place != len(self.kept):
            names = ", ".join(part.prefix for part in self.parts)
            raise DataError(f"{names}: a file changed while it was read; run the command again")

    def sample(self, size: int) -> Iterator[Selected]:
        """Yield blocks with `size` of the pairs in all, evenly spaced."""
        total, place = len(self), 0
        for part, block, used in self:
            numbers = place + np.cumsum(used)  # of the pairs kept, from 1
            chosen = used & (numbers * size // total > (numbers - 1) * size // total)
            place = int(numbers[-1])
            if chosen.any():
                yield Selected(part, block, chosen)


class PairFilter:
    """More reasons to drop training pairs than the task has. A component of the kind `filter` is
    one.
    """

    settings: Mapping[str, Any] = {}  # in the manifest
    inputs: Mapping[str, list[Path]] = {}  # the files that it reads, by their name in the manifest

    def check(self, inputs: Iterable[Path]) -> None:
        """Raise UsageError for settings that do not fit; `inputs` are all files that are read."""

    def look(self, block: Any) -> None:
        """Look at a block of pairs of any split, in order."""

    def tests(self, held_out: Set[str]) -> Sequence[Filter]:
        """Return the filters; `held_out` are the sources of validation and test text. They run in
        worker processes.
        """
        return ()

    def by_number(self, pairs: int) -> Iterable[tuple[str, Mask]]:
        """Return more reasons, each with whether it drops each of all pairs, in the order of the
        text.
        """
        return ()

    def finished(self, cleaning: Cleaning) -> None:
        """Report what was dropped."""


def one_spaced(line: str) -> str:
    """Return a line as it is compared with validation and test text: the white space in it is
    single spaces.
    """
    return " ".join(line.split())


def read_held_out(
    task: Task, split: str, prefix: str, filters: Sequence[PairFilter]
) -> tuple[Text, list[str]]:
    """Read validation or test text, of which every line is kept; return its source lines, too."""
    sources: list[str] = []
    empty: list[str] = []  # the places of such pairs
    copies: list[str] = []
    for block in task.blocks(prefix):
        for pair_filter in filters:
            pair_filter.look(block)
        for source, target, place in task.examples(block):
            if "\0" in source or "\0" in target:
                raise DataError(
                    f"{place}: NUL byte in this line of the {split} text, or in its translation"
                )
            sources.append(one_spaced(source))
            if not (task.text_of(source).strip() and target.strip()):
                empty.append(place)
            elif source == target:
                copies.append(place)
    if not sources:
        raise DataError(f"--{split} {prefix}: the files are empty")
    for places, problem in ((empty, "a side is empty"), (copies, "the target is the source")):
        if places:
            warn(
                f"{places[0]}: in {len(places):,} of {len(sources):,} {split} pairs {problem}, and "
                "they are scored, too"
            )
    return Text(task, split, [Part(prefix)], np.ones(len(sources), bool)), sources


class _CleanedBlock(NamedTuple):
    reasons: list[str | None]  # to drop each pair
    hashes: bytes  # of the pairs kept
    found: Set[str]  # the watched lines among the sources kept
    # With --hold-out, the hashes of source and target of the pairs kept, as models see them.
    sides: bytes
    copies: int  # pairs kept whose target is the source


@dataclass
class Cleaning:
    """The first pass over the training text, which decides on the pairs that are kept."""

    task: Task
    parts: Sequence[Part]
    size: int  # of the text in bytes
    options: CleaningOptions
    filters: Sequence[PairFilter]
    # Of the reason to drop each pair; 0: it is kept.
    codes: npt.NDArray[np.uint8] = field(init=False)
    code_of: defaultdict[str | None, int] = field(
        default_factory=lambda: defaultdict(count(2).__next__, {None: 0, DUPLICATE: 1})
    )  # by reason
    _hashes: bytearray = field(default_factory=bytearray)  # as in `_CleanedBlock`, of all blocks
    _sides: bytearray = field(default_factory=bytearray)

    def blocks(self, consumed: Callable[[int], None]) -> Iterator[Any]:
        """Yield the blocks of all pairs."""
        return (block for part in self.parts for block in self.task.blocks(part.prefix, consumed))

    def read(self, watched: Set[str], workers: int) -> tuple[list[Text], set[str]]:
        """Return the text, with --hold-out validation and test text, and the lines `watched` that
        are sources of it.
        """
        found = self._read_blocks(watched, workers)
        whole = np.flatnonzero(self.codes == 0)  # the pairs with hashes
        for pair_filter in self.filters:
            for reason, drops in pair_filter.by_number(len(self.codes)):
                self.codes[(self.codes == 0) & drops] = self.code_of[reason]
        left = self.codes[whole] == 0
        if not self.options.keep_duplicates:
            hashes = np.frombuffer(self._hashes, dtype=np.uint64)
            repeats = repeated(hashes if left.all() else hashes[left])
            self.codes[self.codes == 0] = repeats * np.uint8(self.code_of[DUPLICATE])
        texts = self._taken(whole) if self.options.hold_out is not None else []
        for pair_filter in self.filters:
            pair_filter.finished(self)
        dropped = {
            name: int(np.count_nonzero(self.codes == code))
            for name, code in self.code_of.items()
            if name
        }
        train = Text(self.task, "train", self.parts, self.codes == 0, +Counter(dropped))
        _check_not_empty(train)
        return [train, *texts], found

    def _read_blocks(self, watched: Set[str], workers: int) -> set[str]:
        held_out_sources = set(map(self.task.text_of, watched))
        tests = [
            test for pair_filter in self.filters for test in pair_filter.tests(held_out_sources)
        ]
        compared = None if self.options.keep_duplicates else COMPARED[self.options.unique]
        clean = partial(_clean, compared=compared, with_sides=self.options.hold_out is not None)
        codes = bytearray()
        copies = 0
        found: set[str] = set()
        with progress.stage("reading train", self.size, "bytes") as consumed:
            state = self.task, watched, tests
            for block, cleaned in parallel.mapped(clean, state, self.blocks(consumed), workers):
                codes += bytes(map(self.code_of.__getitem__, cleaned.reasons))
                self._hashes += cleaned.hashes
                self._sides += cleaned.sides
                copies += cleaned.copies
                found |= cleaned.found
                for pair_filter in self.filters:
                    pair_filter.look(block)
        self.codes = np.frombuffer(codes, dtype=np.uint8)
        if copies and copies == np.count_nonzero(self.codes == 0):
            warn("in all training pairs the target is the source")
        return found

    def _taken(self, whole: npt.NDArray[np.intp]) -> list[Text]:
        """Take validation and test text, and drop all pairs that share a side with it."""
        is_left = self.codes[whole] == 0
        left = whole[is_left]
        sides = np.frombuffer(self._sides, dtype=np.uint64).reshape(-1, 2)[is_left]
        *chosen, shares = held_out(sides[:, 0], sides[:, 1], self.options.hold_out or 0)
        texts = []
        for split, numbers in zip(RAW_SPLITS, chosen, strict=True):
            kept = np.zeros(len(self.codes), bool)
            kept[left[numbers]] = True
            texts.append(Text(self.task, split, self.parts, kept))
        self.codes[left[shares]] = self.code_of[TAKEN]
        return texts


def _check_not_empty(text: Text) -> None:
    if not len(text):
        problems = ", ".join(f"{reason} {count}" for reason, count in text.dropped.most_common())
        pairs = len(text.kept)
        problem = f"all {pairs} pairs were dropped: {problems}" if pairs else "the files are empty"
        raise DataError(f"--train {' '.join(part.prefix for part in text.parts)}: {problem}")


def _clean(
    state: tuple[Task, Set[str], Sequence[Filter]],
    block: Any,
    compared: slice | None,
    with_sides: bool,
) -> _CleanedBlock:
    task, watched, filters = state
    examples = task.examples(block)
    reasons = list(map(task.rejection, examples))
    texts = [tuple(map(task.text_of, example[:2])) for example in examples] if filters else []
    for name, drops in filters:
        reasons = [
            old or (name if drops(*text) else None)
            for old, text in zip(reasons, texts, strict=True)
        ]
    kept = [example for example, reason in zip(examples, reasons, strict=True) if reason is None]
    return _CleanedBlock(
        reasons,
        b"".join(pair_hash(*example[compared]) for example in kept) if compared else b"",
        watched & {one_spaced(source) for source, _, _ in kept} if watched else frozenset(),
        b"".join(pair_hash(side) for example in kept for side in _compared(task, example))
        if with_sides
        else b"",
        sum(source == target for source, target, _ in kept),
    )


def _compared(task: Task, example: Example) -> Iterator[str]:
    """Yield both sides as models see them, without symbols: text that differs in spaces alone is
    equal.
    """
    return (one_spaced(task.text_of(side)) for side in task.normalise(example))


class Sample:
    """Normalised training pairs to learn the vocabulary from, read again on each iteration."""

    def __init__(self, task: Task, train: Text, workers: int) -> None:
        self._task, self._train, self._workers = task, train, workers

    def __iter__(self) -> Iterator[tuple[str, str]]:
        size = min(self._task.sample_pairs, len(self._train))
        with progress.stage("reading a sample", size, "pairs") as advance:
            for _, pairs in parallel.mapped(
                _normalise, self._task, self._train.sample(size), self._workers
            ):
                advance(len(pairs))
                yield from pairs

    def learn(self) -> Task:
        """Return the task with a vocabulary learned from the sample."""
        self._task.learn(self)
        return self._task


def _normalise(task: Task, chosen: Selected) -> list[tuple[str, str]]:
    return list(map(task.normalise, _used(task, chosen)))


def encode(directory: Path, task: Task, text: Text, workers: int) -> dict[str, Any]:
    """Write the ids of a split; return its entry in the manifest."""
    sentences = [0] * len(text.parts)
    sizes = (task.source_vocabulary_size, task.target_vocabulary_size)
    with (
        progress.stage(f"encoding {text.split}", len(text), "pairs") as advance,
        CorpusWriter(directory, text.split, sizes) as writer,
    ):
        function = partial(_encode, raw=text.split in RAW_SPLITS)
        for chosen, encoded in parallel.mapped(function, task, text, workers):
            for side, (ids, lengths), raw in zip(SIDES, encoded.sides, encoded.raw, strict=True):
                writer.add(side, ids, lengths, raw)
            sentences[chosen.part] += len(encoded.sides[0][1])
            advance(int(np.count_nonzero(chosen.used)))
        written = writer.close()
    dropped = text.dropped + Counter({EMPTY: len(text) - written["sentences"]})
    entry = {
        "read": written["sentences"] + dropped.total(),
        "dropped": dict(sorted(dropped.items())),
        **written,
    }
    if text.split not in RAW_SPLITS:
        counts = zip(text.parts, sentences, strict=True)
        entry["parts"] = [
            {"prefix": part.prefix, "sentences": count, "weight": part.weight}
            for part, count in counts
        ]
    return entry


class _Encoded(NamedTuple):
    # Of source and target: all ids, one sentence after the other, and the lengths.
    sides: list[tuple[Ids, Ids]]
    raw: tuple[list[str], list[str]]  # the lines of validation and test text


def _encode(task: Task, chosen: Selected, raw: bool) -> _Encoded:
    """Encode the pairs that are used; without `raw`, leave out those of which normalisation leaves
    nothing.
    """
    used = _used(task, chosen)
    lines = ([example.source for example in used], [example.target for example in used])
    sides = [task.encode_sources(lines[0]), task.encode_targets(lines[1])]
    if raw:
        return _Encoded(sides, lines)
    whole = np.logical_and(*(lengths > 0 for _, lengths in sides))
    if not whole.all():
        sides = [(ids[np.repeat(whole, lengths)], lengths[whole]) for ids, lengths in sides]
    return _Encoded(sides, ([], []))


def _used(task: Task, chosen: Selected) -> list[Example]:
    return list(compress(task.examples(chosen.block), chosen.used))
