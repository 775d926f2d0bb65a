"""The passes of `nmt prepare` over text: cleaning, sampling, encoding, in worker processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from itertools import compress
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
        "with them are dropped.",
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
    mask: Mask  # of the pairs that are kept, among all in the files
    dropped: Counter[str] = field(default_factory=Counter)  # pairs by reason

    def __len__(self) -> int:
        return int(np.count_nonzero(self.mask))

    def __iter__(self) -> Iterator[Selected]:
        place = 0
        for number, part in enumerate(self.parts):
            for block in self.task.blocks(part.prefix):
                used = self.mask[place : place + len(block)]
                place += len(block)
                if len(used) == len(block) and used.any():
                    yield Selected(number, block, used)
        if place != len(self.mask):
            names = ", ".join(part.prefix for part in self.parts)
            raise DataError(f"{names}: a file changed while it was read; run the command again")

    def sample(self, size: int) -> Iterator[Selected]:
        """Yield blocks with `size` of the pairs in all, evenly spaced."""
        total = len(self)
        count = 0  # pairs kept in the blocks before
        for part, block, used in self:
            numbers = count + np.cumsum(used)  # of the pairs kept, from 1
            # The share of the sample grows by one pair wherever it passes a whole number.
            chosen = used & (numbers * size // total > (numbers - 1) * size // total)
            count = int(numbers[-1])
            if chosen.any():
                yield Selected(part, block, chosen)


class PairFilter:
    """More reasons to drop training pairs than the task has: the base of the kind `filter`."""

    settings: Mapping[str, Any] = {}  # in the manifest
    inputs: Mapping[str, list[Path]] = {}  # the files that it reads, by their name in the manifest

    def check(self, inputs: Iterable[Path]) -> None:
        """Raise UsageError for settings that do not fit. `inputs` are all files that are read."""

    def look(self, block: Any) -> None:
        """Look at a block of pairs of any split, in order."""

    def tests(self, held_out: Set[str]) -> Sequence[Filter]:
        """Return the filters, which run in worker processes.

        Args:
            held_out: the sources of validation and test text.
        """
        return ()

    def by_number(self, pairs: int) -> Iterable[tuple[str, Mask]]:
        """Return more reasons, each with a mask of the pairs that it drops, of the whole text."""
        return ()

    def finished(self, cleaning: Cleaning) -> None:
        """Report the pairs that were dropped."""


def one_spaced(line: str) -> str:
    """Return a line with single spaces, as it is compared with validation and test text."""
    return " ".join(line.split())


class HeldOut(NamedTuple):
    """Validation or test text from a file of its own."""

    text: Text
    sources: list[str]  # its source lines, with single spaces


def read_held_out(task: Task, split: str, prefix: str, filters: Sequence[PairFilter]) -> HeldOut:
    """Read validation or test text, of which every line is kept."""
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
    return HeldOut(Text(task, split, [Part(prefix)], np.ones(len(sources), bool)), sources)


class _CleanedBlock(NamedTuple):
    reasons: list[str | None]  # to drop each pair
    hashes: bytes  # of the pairs kept
    watched: Set[str]  # the watched lines among the sources kept
    # With --hold-out, the hashes of source and target of the pairs kept, as models see them.
    sides: bytes
    copies: int  # pairs kept whose target is the source


class CleanedText(NamedTuple):
    """The training text that is left."""

    train: Text
    taken: list[Text]  # with --hold-out, validation and test text
    watched: set[str]  # the watched lines that are sources of training text


@dataclass
class Cleaning:
    """The first pass over the training text, which decides on the pairs that are kept."""

    task: Task
    parts: Sequence[Part]
    size: int  # of the text in bytes
    options: CleaningOptions
    filters: Sequence[PairFilter]
    # The code of the reason to drop each pair. 0: it is kept.
    codes: npt.NDArray[np.uint8] = field(init=False)
    code_of: dict[str | None, int] = field(default_factory=lambda: {None: 0, DUPLICATE: 1})
    _hashes: bytearray = field(default_factory=bytearray)  # as in `_CleanedBlock`, of all blocks
    _sides: bytearray = field(default_factory=bytearray)

    def blocks(self, consumed: Callable[[int], None]) -> Iterator[Any]:
        """Yield the blocks of all pairs."""
        for part in self.parts:
            yield from self.task.blocks(part.prefix, consumed)

    def read(self, watched: Set[str], workers: int) -> CleanedText:
        """Return the training text.

        Args:
            watched: source lines of validation and test text.
        """
        watched_here = self._read_blocks(watched, workers)
        hashed = np.flatnonzero(self.codes == 0)  # the pairs with hashes
        for pair_filter in self.filters:
            for reason, drops in pair_filter.by_number(len(self.codes)):
                self.codes[(self.codes == 0) & drops] = self._code(reason)
        if not self.options.keep_duplicates:
            hashes = np.frombuffer(self._hashes, dtype=np.uint64)
            is_left = self.codes[hashed] == 0
            if not is_left.all():  # otherwise the copy would be for nothing
                hashes = hashes[is_left]
            self.codes[self.codes == 0] = repeated(hashes) * np.uint8(self.code_of[DUPLICATE])
        taken = []
        if self.options.hold_out is not None:
            taken = self._take(self.options.hold_out, hashed)
        for pair_filter in self.filters:
            pair_filter.finished(self)
        dropped: Counter[str] = Counter()
        for kind, code in self.code_of.items():
            number = int(np.count_nonzero(self.codes == code))
            if kind is not None and number:
                dropped[kind] = number
        train = Text(self.task, "train", self.parts, self.codes == 0, dropped)
        _check_not_empty(train)
        return CleanedText(train, taken, watched_here)

    def _code(self, reason: str | None) -> int:
        """Return the code of a reason, a new one when it first occurs."""
        return self.code_of.setdefault(reason, len(self.code_of))

    def _read_blocks(self, watched: Set[str], workers: int) -> set[str]:
        """Read all pairs, and return the `watched` lines that are sources of them."""
        held_out_sources = set(map(self.task.text_of, watched))
        tests: list[Filter] = []
        for pair_filter in self.filters:
            tests += pair_filter.tests(held_out_sources)
        compared = None if self.options.keep_duplicates else COMPARED[self.options.unique]
        clean = partial(_clean, compared=compared, with_sides=self.options.hold_out is not None)
        state = self.task, watched, tests
        codes = bytearray()
        copies = 0
        watched_here: set[str] = set()
        with progress.stage("reading train", self.size, "bytes") as consumed:
            for block, cleaned in parallel.mapped(clean, state, self.blocks(consumed), workers):
                for kind in dict.fromkeys(cleaned.reasons):
                    self._code(kind)
                # Every pair is looked up here, in this one process, so it is done in C.
                codes += bytes(map(self.code_of.__getitem__, cleaned.reasons))
                self._hashes += cleaned.hashes
                self._sides += cleaned.sides
                copies += cleaned.copies
                watched_here |= cleaned.watched
                for pair_filter in self.filters:
                    pair_filter.look(block)
        self.codes = np.frombuffer(codes, dtype=np.uint8)
        if copies and copies == np.count_nonzero(self.codes == 0):
            warn("in all training pairs the target is the source")
        return watched_here

    def _take(self, size: int, hashed: npt.NDArray[np.intp]) -> list[Text]:
        """Take validation and test text, and drop all pairs that share a side with it."""
        is_left = self.codes[hashed] == 0
        left = hashed[is_left]
        sides = np.frombuffer(self._sides, dtype=np.uint64).reshape(-1, 2)[is_left]
        *chosen, shares = held_out(sides[:, 0], sides[:, 1], size)
        texts = []
        for split, numbers in zip(RAW_SPLITS, chosen, strict=True):
            mask = np.zeros(len(self.codes), bool)
            mask[left[numbers]] = True
            texts.append(Text(self.task, split, self.parts, mask))
        self.codes[left[shares]] = self._code(TAKEN)
        return texts


def _check_not_empty(text: Text) -> None:
    if len(text):
        return
    problem = "the files are empty"
    if len(text.mask):
        reasons = [f"{reason} {number}" for reason, number in text.dropped.most_common()]
        problem = f"all {len(text.mask)} pairs were dropped: {', '.join(reasons)}"
    prefixes = " ".join(part.prefix for part in text.parts)
    raise DataError(f"--train {prefixes}: {problem}")


def _clean(
    state: tuple[Task, Set[str], Sequence[Filter]],
    block: Any,
    compared: slice | None,
    with_sides: bool,
) -> _CleanedBlock:
    task, watched, filters = state
    examples = task.examples(block)
    reasons = [task.rejection(example) for example in examples]
    if filters:
        reasons = [
            reason or _reason_of_filters(task, example, filters)
            for reason, example in zip(reasons, examples, strict=True)
        ]
    left = [example for example, reason in zip(examples, reasons, strict=True) if reason is None]
    hashes = b""
    if compared:
        hashes = b"".join(pair_hash(*example[compared]) for example in left)
    sides = b""
    if with_sides:
        sides = b"".join(_side_hashes(task, example) for example in left)
    watched_here: Set[str] = frozenset()
    if watched:
        watched_here = watched & {one_spaced(example.source) for example in left}
    copies = sum(example.source == example.target for example in left)
    return _CleanedBlock(reasons, hashes, watched_here, sides, copies)


def _reason_of_filters(task: Task, example: Example, filters: Sequence[Filter]) -> str | None:
    source = task.text_of(example.source)
    target = task.text_of(example.target)
    for name, drops in filters:
        if drops(source, target):
            return name
    return None


def _side_hashes(task: Task, example: Example) -> bytes:
    """Return the hashes of both sides as models see them, with single spaces, without symbols."""
    source, target = task.normalise(example)
    return pair_hash(one_spaced(task.text_of(source))) + pair_hash(one_spaced(task.text_of(target)))


class Sample:
    """Normalised training pairs to learn the vocabulary from, read again on each iteration."""

    def __init__(self, task: Task, train: Text, workers: int) -> None:
        self._task = task
        self._train = train
        self._workers = workers

    def __iter__(self) -> Iterator[tuple[str, str]]:
        size = min(self._task.sample_pairs, len(self._train))
        with progress.stage("reading a sample", size, "pairs") as advance:
            blocks = self._train.sample(size)
            for _, pairs in parallel.mapped(_normalise, self._task, blocks, self._workers):
                advance(len(pairs))
                yield from pairs

    def learn(self) -> Task:
        """Return the task with a vocabulary learned from the sample."""
        self._task.learn(self)
        return self._task


def _normalise(task: Task, chosen: Selected) -> list[tuple[str, str]]:
    return list(map(task.normalise, _used(task, chosen)))


def encode(directory: Path, task: Task, text: Text, workers: int) -> dict[str, Any]:
    """Write the ids of a split, and return its entry in the manifest."""
    sentences = [0] * len(text.parts)
    sizes = (task.source_vocabulary_size, task.target_vocabulary_size)
    is_raw = text.split in RAW_SPLITS
    with (
        progress.stage(f"encoding {text.split}", len(text), "pairs") as advance,
        CorpusWriter(directory, text.split, sizes) as writer,
    ):
        function = partial(_encode, raw=is_raw)
        for chosen, encoded in parallel.mapped(function, task, text, workers):
            for side, encoded_side in zip(SIDES, encoded, strict=True):
                writer.add(side, encoded_side.ids, encoded_side.lengths, encoded_side.lines)
            sentences[chosen.part] += len(encoded[0].lengths)
            advance(int(np.count_nonzero(chosen.used)))
        written = writer.close()
    dropped = text.dropped + Counter({EMPTY: len(text) - written["sentences"]})
    entry = {
        "read": written["sentences"] + dropped.total(),
        "dropped": dict(sorted(dropped.items())),
        **written,
    }
    if not is_raw:
        entry["parts"] = [
            {"prefix": part.prefix, "sentences": number, "weight": part.weight}
            for part, number in zip(text.parts, sentences, strict=True)
        ]
    return entry


class _EncodedSide(NamedTuple):
    ids: Ids  # of all sentences, one after the other
    lengths: Ids  # of each sentence
    lines: list[str]  # of validation and test text


def _encode(task: Task, chosen: Selected, raw: bool) -> list[_EncodedSide]:
    """Encode both sides of the pairs that are used.

    Args:
        raw: keep the lines, and pairs of which normalisation leaves nothing.
    """
    used = _used(task, chosen)
    source_lines = [example.source for example in used]
    target_lines = [example.target for example in used]
    source_ids, source_lengths = task.encode_sources(source_lines)
    target_ids, target_lengths = task.encode_targets(target_lines)
    if not raw:
        source_lines = target_lines = []
    sides = [
        _EncodedSide(source_ids, source_lengths, source_lines),
        _EncodedSide(target_ids, target_lengths, target_lines),
    ]
    is_whole = (source_lengths > 0) & (target_lengths > 0)
    if raw or is_whole.all():
        return sides
    return [
        _EncodedSide(side.ids[np.repeat(is_whole, side.lengths)], side.lengths[is_whole], [])
        for side in sides
    ]


def _used(task: Task, chosen: Selected) -> list[Example]:
    return list(compress(task.examples(chosen.block), chosen.used))
