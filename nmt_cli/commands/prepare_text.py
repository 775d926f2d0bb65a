"""The passes of `nmt prepare` over text: cleaning, sampling, encoding. Worker processes decode, clean and encode it."""

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
Filter = tuple[str, Callable[[str, str], bool]]  # a reason, and whether it drops a source with a target


@dataclass(frozen=True, kw_only=True)
class CleaningOptions:
    """Duplicates, and text that is held out."""

    keep_duplicates: bool = option(False, "Keep repeated pairs.")
    unique: str = option("pair", "What no two pairs have in common. The first one stays.", choices=tuple(COMPARED))
    hold_out: int | None = option(
        None,
        "Take N of the pairs that are left for validation, and N for test. Pairs that share a side with them are "
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


class Cleaned(NamedTuple):
    """The training text, and the pairs of it that are dropped."""

    task: Task
    parts: Sequence[Part]
    size: int  # bytes
    codes: npt.NDArray[np.uint8]  # of the reason to drop each pair; 0: it is kept
    reasons: Sequence[str | None]  # by code

    def blocks(self, consumed: Callable[[int], None]) -> Iterator[Any]:
        """Yield the blocks of all pairs, read again."""
        return (block for part in self.parts for block in self.task.blocks(part.prefix, consumed))


class PairFilter:
    """More reasons to drop training pairs than the task has. A component of the kind `filter` is one."""

    settings: Mapping[str, Any] = {}  # in the manifest
    inputs: Mapping[str, list[Path]] = {}  # the files that it reads, by their name in the manifest

    def check(self, inputs: Iterable[Path]) -> None:
        """Raise UsageError for settings that do not fit; `inputs` are all files that are read."""

    def look(self, block: Any) -> None:
        """Look at a block of pairs of any split, in order."""

    def tests(self, held_out: Set[str]) -> Sequence[Filter]:
        """Return the filters; `held_out` are the sources of validation and test text. They run in worker processes."""
        return ()

    def by_number(self, pairs: int) -> Iterable[tuple[str, Mask]]:
        """Return more reasons, each with whether it drops each of all pairs, in the order of the text."""
        return ()

    def finished(self, cleaned: Cleaned) -> None:
        """Report what was dropped."""


def one_spaced(line: str) -> str:
    """Return a line as it is compared with validation and test text: the white space in it is single spaces."""
    return " ".join(line.split())


def read_held_out(task: Task, split: str, prefix: str, filters: Sequence[PairFilter]) -> tuple[Text, list[str]]:
    """Read validation or test text, of which every line is kept; return its source lines, too."""
    sources: list[str] = []
    empty: list[str] = []  # the places of such pairs
    copies: list[str] = []
    for block in task.blocks(prefix):
        for pair_filter in filters:
            pair_filter.look(block)
        for source, target, place in task.examples(block):
            if "\0" in source or "\0" in target:
                raise DataError(f"{place}: NUL byte in this line of the {split} text, or in its translation")
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
                f"{places[0]}: in {len(places):,} of {len(sources):,} {split} pairs {problem}, and they are scored, too"
            )
    return Text(task, split, [Part(prefix)], np.ones(len(sources), bool)), sources


class _CleanedBlock(NamedTuple):
    reasons: list[str | None]  # to drop each pair
    hashes: bytes  # of the pairs kept
    found: Set[str]  # the watched lines among the sources kept
    sides: bytes  # with --hold-out, the hashes of source and target of the pairs kept, as models see them
    copies: int  # pairs kept whose target is the source


@dataclass
class _Pass:
    """What the first pass over the training text has found."""

    codes: bytearray = field(default_factory=bytearray)  # of the reason to drop each pair
    hashes: bytearray = field(default_factory=bytearray)  # as in `_CleanedBlock`, of all blocks
    sides: bytearray = field(default_factory=bytearray)
    found: set[str] = field(default_factory=set)
    copies: int = 0
    code_of: defaultdict[str | None, int] = field(
        default_factory=lambda: defaultdict(count(2).__next__, {None: 0, DUPLICATE: 1})
    )

    def add(self, block: _CleanedBlock) -> None:
        self.codes += bytes(map(self.code_of.__getitem__, block.reasons))
        self.hashes += block.hashes
        self.sides += block.sides
        self.found |= block.found
        self.copies += block.copies


def read_train(
    task: Task,
    parts: Sequence[Part],
    size: int,
    watched: Set[str],
    options: CleaningOptions,
    filters: Sequence[PairFilter],
    workers: int,
) -> tuple[list[Text], set[str]]:
    """Read the training text, of `size` bytes, and decide which pairs are kept.

    Return it, with --hold-out validation and test text, and those of the lines `watched` that are among its sources.
    """
    held_out_sources = set(map(task.text_of, watched))
    state = task, watched, [test for pair_filter in filters for test in pair_filter.tests(held_out_sources)]
    compared = None if options.keep_duplicates else COMPARED[options.unique]
    clean = partial(_clean, compared=compared, with_sides=options.hold_out is not None)
    seen = _Pass()
    with progress.stage("reading train", size, "bytes") as consumed:
        blocks = (block for part in parts for block in task.blocks(part.prefix, consumed))
        for block, cleaned in parallel.mapped(clean, state, blocks, workers):
            seen.add(cleaned)
            for pair_filter in filters:
                pair_filter.look(block)
    dropped = np.frombuffer(seen.codes, dtype=np.uint8)
    if seen.copies and seen.copies == np.count_nonzero(dropped == 0):
        warn("in all training pairs the target is the source")
    taken = _drop_among_all(task, parts, dropped, seen, options, filters)
    for pair_filter in filters:
        pair_filter.finished(Cleaned(task, parts, size, dropped, list(seen.code_of)))
    counts = Counter({name: int(np.count_nonzero(dropped == code)) for name, code in seen.code_of.items() if name})
    text = Text(task, "train", parts, dropped == 0, +counts)
    _check_not_empty(text)
    return [text, *taken], seen.found


def _drop_among_all(
    task: Task,
    parts: Sequence[Part],
    dropped: npt.NDArray[np.uint8],
    seen: _Pass,
    options: CleaningOptions,
    filters: Sequence[PairFilter],
) -> list[Text]:
    """Add to `dropped` what is known when all pairs are read; return the text that --hold-out takes."""
    whole = np.flatnonzero(dropped == 0)  # the pairs with hashes
    hashes: Any = seen.hashes
    for pair_filter in filters:
        for reason, drops in pair_filter.by_number(len(dropped)):
            if hashes:
                hashes = bytearray(np.frombuffer(hashes, dtype="V8")[~drops[dropped == 0]])
            dropped[(dropped == 0) & drops] = seen.code_of[reason]
    if not options.keep_duplicates:
        dropped[dropped == 0] = repeated(hashes) * np.uint8(seen.code_of[DUPLICATE])
    taken: list[Text] = []
    if options.hold_out is not None:
        is_left = dropped[whole] == 0
        left = whole[is_left]
        sides = np.frombuffer(seen.sides, dtype=np.uint64).reshape(-1, 2)[is_left]
        *chosen, shares = held_out(sides[:, 0], sides[:, 1], options.hold_out)
        for split, numbers in zip(RAW_SPLITS, chosen, strict=True):
            kept = np.zeros(len(dropped), bool)
            kept[left[numbers]] = True
            taken.append(Text(task, split, parts, kept))
        dropped[left[shares]] = seen.code_of[TAKEN]
    return taken


def _check_not_empty(text: Text) -> None:
    if not len(text):
        problems = ", ".join(f"{reason} {count}" for reason, count in text.dropped.most_common())
        pairs = len(text.kept)
        problem = f"all {pairs} pairs were dropped: {problems}" if pairs else "the files are empty"
        raise DataError(f"--train {' '.join(part.prefix for part in text.parts)}: {problem}")


def _clean(
    state: tuple[Task, Set[str], Sequence[Filter]], block: Any, compared: slice | None, with_sides: bool
) -> _CleanedBlock:
    task, watched, filters = state
    examples = task.examples(block)
    reasons = list(map(task.rejection, examples))
    texts = [tuple(map(task.text_of, example[:2])) for example in examples] if filters else []
    for name, drops in filters:
        reasons = [old or (name if drops(*text) else None) for old, text in zip(reasons, texts, strict=True)]
    kept = [example for example, reason in zip(examples, reasons, strict=True) if reason is None]
    return _CleanedBlock(
        reasons,
        b"".join(pair_hash(*example[compared]) for example in kept) if compared else b"",
        watched & {one_spaced(source) for source, _, _ in kept} if watched else frozenset(),
        b"".join(pair_hash(side) for example in kept for side in _compared(task, example)) if with_sides else b"",
        sum(source == target for source, target, _ in kept),
    )


def _compared(task: Task, example: Example) -> Iterator[str]:
    """Yield both sides as models see them, without symbols: text that differs in spaces alone is equal."""
    return (one_spaced(task.text_of(side)) for side in task.normalise(example))


class Sample:
    """Normalised training pairs to learn the vocabulary from, read again on each iteration."""

    def __init__(self, task: Task, train: Text, workers: int) -> None:
        self._task, self._train, self._workers = task, train, workers

    def __iter__(self) -> Iterator[tuple[str, str]]:
        size = min(self._task.sample_pairs, len(self._train))
        with progress.stage("reading a sample", size, "pairs") as advance:
            for _, pairs in parallel.mapped(_normalise, self._task, self._train.sample(size), self._workers):
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
    entry = {"read": written["sentences"] + dropped.total(), "dropped": dict(sorted(dropped.items())), **written}
    if text.split not in RAW_SPLITS:
        counts = zip(text.parts, sentences, strict=True)
        entry["parts"] = [{"prefix": part.prefix, "sentences": count, "weight": part.weight} for part, count in counts]
    return entry


class _Encoded(NamedTuple):
    sides: list[tuple[Ids, Ids]]  # of source and target: all ids, one sentence after the other, and the lengths
    raw: tuple[list[str], list[str]]  # the lines of validation and test text


def _encode(task: Task, chosen: Selected, raw: bool) -> _Encoded:
    """Encode the pairs that are used; without `raw`, leave out those of which normalisation leaves nothing."""
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
