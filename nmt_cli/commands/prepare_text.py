"""The passes of `nmt prepare` over text: cleaning, sampling, encoding. Worker processes decode, clean and encode it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from itertools import compress, count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nmt_cli.commands import progress
from nmt_cli.commands.prepare_filters import (
    LOW_SCORE,
    Filter,
    FilterOptions,
    low_scores,
    make_filters,
    one_spaced,
    write_sample,
)
from nmt_cli.data import parallel
from nmt_cli.data.cleaning import COMPARED, DUPLICATE, EMPTY, TAKEN, held_out, pair_hash, repeated
from nmt_cli.data.corpus import RAW_SPLITS, SIDES, CorpusWriter, Ids
from nmt_cli.data.marks import warn_of_marks
from nmt_cli.errors import DataError
from nmt_cli.streams import warn
from nmt_cli.task import Example, Task

Mask = npt.NDArray[np.bool_]


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


def read_held_out(task: Task, split: str, prefix: str) -> tuple[Text, list[str]]:
    """Read validation or test text, of which every line is kept; return its source lines, too."""
    sources: list[str] = []
    empty: list[str] = []  # the places of such pairs
    copies: list[str] = []
    for block in task.blocks(prefix):
        warn_of_marks(block)
        for source, target, place in task.examples(block):
            if "\0" in source or "\0" in target:
                raise DataError(f"{place}: NUL byte in this line of the {split} text, or in its translation")
            sources.append(one_spaced(source))
            if not (task.without_symbols(source).strip() and target.strip()):
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


class _Cleaned(NamedTuple):
    reasons: list[str | None]  # to drop each pair
    hashes: bytes  # of the pairs kept
    found: Set[str]  # the watched lines among the sources kept
    sides: bytes  # with --hold-out, the hashes of source and target of the pairs kept, as models see them
    copies: int  # pairs kept whose target is the source


def read_train(
    task: Task, parts: Sequence[Part], size: int, watched: Set[str], options: FilterOptions, workers: int
) -> tuple[list[Text], set[str]]:
    """Read the training text, of `size` bytes, and decide which pairs are kept.

    Return it, with --hold-out validation and test text, and those of the lines `watched` that are among its sources.
    """
    codes = bytearray()  # of the reason to drop each pair
    reasons = defaultdict[str | None, int](count(3).__next__, {None: 0, LOW_SCORE: 1, DUPLICATE: 2})
    hashes = bytearray()
    sides = bytearray()
    copies = 0
    found: set[str] = set()
    state = task, watched, make_filters(options, set(map(task.without_symbols, watched)))
    with progress.stage("reading train", size, "bytes") as consumed:
        blocks = (block for part in parts for block in task.blocks(part.prefix, consumed))
        compared = None if options.keep_duplicates else COMPARED[options.unique]
        clean = partial(_clean, compared=compared, with_sides=options.hold_out is not None)
        for block, cleaned in parallel.mapped(clean, state, blocks, workers):
            codes += bytes(map(reasons.__getitem__, cleaned.reasons))
            hashes += cleaned.hashes
            sides += cleaned.sides
            copies += cleaned.copies
            found |= cleaned.found
            warn_of_marks(block)
    dropped = np.frombuffer(codes, dtype=np.uint8)
    whole = np.flatnonzero(dropped == 0)
    if len(whole) and copies == len(whole):
        warn("in all training pairs the target is the source")
    if options.min_score is not None:
        low = low_scores(options.scores, options.min_score, len(dropped))
        if hashes:
            hashes = bytearray(np.frombuffer(hashes, dtype="V8")[~low[dropped == 0]])
        dropped[(dropped == 0) & low] = reasons[LOW_SCORE]
    if not options.keep_duplicates:
        dropped[dropped == 0] = repeated(hashes) * np.uint8(reasons[DUPLICATE])
    taken: list[Text] = []
    if options.hold_out is not None:
        left = dropped[whole] == 0
        both = np.frombuffer(sides, dtype=np.uint64).reshape(-1, 2)[left]
        *chosen, shares = held_out(both[:, 0], both[:, 1], options.hold_out)
        for split, numbers in zip(RAW_SPLITS, chosen, strict=True):
            kept = np.zeros(len(dropped), bool)
            kept[whole[left][numbers]] = True
            taken.append(Text(task, split, parts, kept))
        dropped[whole[left][shares]] = reasons[TAKEN]
    counts = Counter({name: int(np.count_nonzero(dropped == code)) for name, code in reasons.items() if name})
    text = Text(task, "train", parts, dropped == 0, +counts)
    if options.dropped:
        with progress.stage("reading dropped pairs", size, "bytes") as consumed:
            again = (block for part in parts for block in task.blocks(part.prefix, consumed))
            write_sample(options.dropped, task, again, dropped, list(reasons))
    if not len(text):
        problems = ", ".join(f"{reason} {count}" for reason, count in text.dropped.most_common())
        problem = f"all {len(dropped)} pairs were dropped: {problems}" if len(dropped) else "the files are empty"
        raise DataError(f"--train {' '.join(part.prefix for part in parts)}: {problem}")
    return [text, *taken], found


def _clean(
    state: tuple[Task, Set[str], Sequence[Filter]], block: Any, compared: slice | None, with_sides: bool
) -> _Cleaned:
    task, watched, filters = state
    examples = task.examples(block)
    reasons = list(map(task.rejection, examples))
    texts = [tuple(map(task.without_symbols, example[:2])) for example in examples] if filters else []
    for name, drops in filters:
        reasons = [old or (name if drops(*text) else None) for old, text in zip(reasons, texts, strict=True)]
    kept = [example for example, reason in zip(examples, reasons, strict=True) if reason is None]
    return _Cleaned(
        reasons,
        b"".join(pair_hash(*example[compared]) for example in kept) if compared else b"",
        watched & {one_spaced(source) for source, _, _ in kept} if watched else frozenset(),
        b"".join(pair_hash(side) for example in kept for side in _compared(task, example)) if with_sides else b"",
        sum(source == target for source, target, _ in kept),
    )


def _compared(task: Task, example: Example) -> Iterator[str]:
    """Yield both sides as models see them, without symbols: text that differs in spaces alone is equal."""
    return (one_spaced(task.without_symbols(side)) for side in task.normalise(example))


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
