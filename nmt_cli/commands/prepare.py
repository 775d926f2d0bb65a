"""`nmt prepare`: raw text to a memory-mapped corpus of ids, for any task.

Validation and test text is read and checked first. Training text is then streamed three times: to clean it, to learn
the vocabulary from a sample of it, and to encode it. Memory holds a byte and a hash of 8 bytes for each training pair.
"""

from __future__ import annotations

import errno
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from nmt_cli import __version__, registry
from nmt_cli.commands import progress
from nmt_cli.config import COMMAND_LINE, configure
from nmt_cli.data import parallel
from nmt_cli.data.cleaning import DUPLICATE, EMPTY, Overlap, PairHashes
from nmt_cli.data.corpus import MANIFEST, RAW_SPLITS, SCHEMA, SIDES, SPLITS, CorpusWriter, Ids
from nmt_cli.errors import CheckpointError, DataError, UsageError
from nmt_cli.files import staging
from nmt_cli.files.text import fingerprint
from nmt_cli.flags import IMPORTS_HELP, Command, MoreFlags, Panel
from nmt_cli.interfaces import TASK_FILE, UNK, Example, Task
from nmt_cli.registry import REQUIRED, option

TASK = "task"
DEFAULT_TASK = "translation"
_CHUNK = 1000  # pairs sent to a worker process at once
_OURS = (
    MANIFEST,
    TASK,
    *(f"{split}.{side}.{name}" for split in SPLITS for side in SIDES for name in ("ids", "offsets", "txt")),
)


@dataclass(frozen=True, kw_only=True)
class PrepareOptions:
    """Turn raw text into a memory-mapped corpus of subword ids."""

    out: Path = option(REQUIRED, "Directory to create.", metavar="DATA")
    train: tuple[str, ...] = option(
        REQUIRED,
        "Training text; corpus/train stands for corpus/train.en[.gz] and corpus/train.de[.gz]. Repeat for more.",
        metavar="PREFIX",
    )
    valid: str | None = option(None, "Validation text; every line is kept.", metavar="PREFIX")
    test: str | None = option(None, "Test text; every line is kept.", metavar="PREFIX")
    subwords_from: Path | None = option(
        None, "Use the vocabulary of prepared data, a checkpoint or a run instead of learning one.", metavar="PATH"
    )
    keep_duplicates: bool = option(False, "Keep repeated training pairs.")
    workers: int | None = option(
        None, "Processes; the result does not depend on it. [default: number of cores, at most 8]", minimum=1
    )
    overwrite: bool = option(False, "Replace existing prepared data.")
    imports: tuple[str, ...] = option((), IMPORTS_HELP, metavar="MODULE", names=("--import",))

    def prefixes(self) -> dict[str, tuple[str, ...]]:
        """Return the prefixes of each split."""
        single = {"valid": self.valid, "test": self.test}
        return {"train": self.train, **{split: (prefix,) for split, prefix in single.items() if prefix is not None}}


def task_config(flags: Mapping[str, Any]) -> Any:
    """Return the configuration of the task that `flags` (by field name) select and set.

    Raises:
        UsageError: an unknown task, an invalid value, or a flag of another task.
    """
    return configure({COMMAND_LINE: flags}, {TASK: DEFAULT_TASK})[TASK]


def prepare(options: PrepareOptions, flags: Mapping[str, Any]) -> None:
    """Write the directory `options.out` for the task that `flags` configure, and print the counts.

    Raises:
        UsageError: settings do not fit, or the directory is in use.
        DataError: text cannot be read or is unfit, or the disk is full. Nothing is written then.
    """
    task: Task = registry.build(task_config(flags))
    inputs = {split: list(chain(*map(task.files, prefixes))) for split, prefixes in options.prefixes().items()}
    if options.subwords_from is not None:
        chosen = {name.removeprefix("task.") for name in flags}
        task.adopt(_saved_task(options.subwords_from, task.name), chosen)
    try:
        with staging.staged(options.out, overwrite=options.overwrite, ours=_OURS, marker=MANIFEST) as directory:
            splits = _write(directory, task, options, inputs)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DataError(f"--out {options.out}: the disk is full; nothing was written") from error
        raise
    print(f"{options.out}:\n{_table(splits)}\nnext: nmt train {options.out} --out RUN", file=sys.stderr)


def _saved_task(path: Path, name: str) -> Task:
    """Return the task of prepared data, of a checkpoint, or of the newest checkpoint of a run."""
    from nmt_cli import checkpoint  # imports torch

    directory = path
    if not (path / TASK / TASK_FILE).is_file():
        try:
            directory = checkpoint.locate(path)
        except CheckpointError as error:
            raise CheckpointError(f"--subwords-from: expected prepared data, a checkpoint or a run: {error}") from error
        print(f"--subwords-from {path}: using {directory}", file=sys.stderr)
    task = checkpoint.load_task(directory / TASK)
    if task.name != name:
        raise UsageError(f"--subwords-from {path}: its task is {task.name!r}, not {name!r}")
    return task


def _write(directory: Path, task: Task, options: PrepareOptions, inputs: dict[str, list[Path]]) -> dict[str, Any]:
    """Write all files; return the manifest's entries of the splits."""
    workers = options.workers or min(8, parallel.available_cores())
    overlap = Overlap()
    held_out = [_read_held_out(task, split, options, overlap) for split in RAW_SPLITS if split in inputs]
    train = _read_train(task, options, sum(path.stat().st_size for path in inputs["train"]), overlap)
    for text in held_out:
        if warning := overlap.warning(text.split):
            print(f"warning: {warning}", file=sys.stderr)
    if options.subwords_from is None:
        print("learning the vocabulary ...", file=sys.stderr, flush=True)
        start = time.monotonic()
        task = parallel.apart(_Sample(task, train, workers).learn)
        print(f"learning the vocabulary: done in {time.monotonic() - start:.1f} s", file=sys.stderr, flush=True)
    (directory / TASK).mkdir()
    task.save(directory / TASK)
    splits = {text.split: _encode(directory, task, text, workers) for text in (train, *held_out)}
    # No date and no number of workers: the same input gives the same bytes.
    manifest = {
        "schema": SCHEMA,
        "nmt": __version__,
        "task": task.describe(),
        "settings": {
            "keep_duplicates": options.keep_duplicates,
            "subwords_from": None if options.subwords_from is None else str(options.subwords_from),
        },
        "inputs": [
            {"split": split, "file": str(path), "bytes": path.stat().st_size, "sha256": fingerprint(path)}
            for split, paths in inputs.items()
            for path in paths
        ],
        "splits": splits,
    }
    (directory / MANIFEST).write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return splits


class _Text:
    """The pairs of a split that are kept, read from the files again on each iteration.

    Args:
        kept: for each pair in the files, whether it is kept.
        dropped: the number of pairs dropped for each reason.
    """

    def __init__(
        self, task: Task, split: str, prefixes: Sequence[str], kept: Sequence[bool] | Ids, dropped: Counter[str]
    ) -> None:
        self.split = split
        self.size = int(np.count_nonzero(kept))
        self.dropped = dropped
        self.read = len(kept)
        self._task, self._prefixes, self._kept = task, prefixes, kept

    def __iter__(self) -> Iterator[Example]:
        number = 0
        for example in chain.from_iterable(map(self._task.read, self._prefixes)):
            if number < self.read and self._kept[number]:
                yield example
            number += 1
        if number != self.read:
            raise DataError(f"{', '.join(self._prefixes)}: a file changed while it was read; run the command again")

    def sample(self, size: int) -> Iterator[Example]:
        """Yield `size` of the pairs, evenly spaced."""
        for number, example in enumerate(self):
            if (number + 1) * size // self.size > number * size // self.size:
                yield example


def _read_held_out(task: Task, split: str, options: PrepareOptions, overlap: Overlap) -> _Text:
    """Read validation or test text, of which every line is kept."""
    prefixes = options.prefixes()[split]
    count = 0
    for example in task.read(prefixes[0]):
        if "\0" in example.source or "\0" in example.target:
            raise DataError(f"{example.place}: NUL byte in this line of the {split} text, or in its translation")
        overlap.watch(split, example.source, example.target, example.place)
        count += 1
    if not count:
        raise DataError(f"--{split} {' '.join(prefixes)}: the files are empty")
    return _Text(task, split, prefixes, [True] * count, Counter())


def _read_train(task: Task, options: PrepareOptions, size: int, overlap: Overlap) -> _Text:
    """Read the training text and decide which pairs are kept."""
    kept = bytearray()
    dropped: Counter[str] = Counter()
    hashes = PairHashes()
    with progress.stage("reading train", size, "bytes") as consumed:
        for example in chain.from_iterable(task.read(prefix, consumed) for prefix in options.train):
            reason = task.rejection(example)
            kept.append(reason is None)
            if reason is not None:
                dropped[reason] += 1
                continue
            overlap.compare(example.source, example.target)
            if not options.keep_duplicates:
                hashes.add(example.source, example.target)
    mask = np.frombuffer(kept, dtype=bool)
    if not options.keep_duplicates:
        repeated = hashes.repeated()
        mask[mask] = ~repeated
        dropped[DUPLICATE] = int(np.count_nonzero(repeated))
    text = _Text(task, "train", options.train, mask, +dropped)
    if not text.size:
        reasons = ", ".join(f"{reason} {count}" for reason, count in text.dropped.most_common())
        problem = f"all {text.read} pairs were dropped: {reasons}" if text.read else "the files are empty"
        raise DataError(f"--train {' '.join(options.train)}: {problem}")
    return text


class _Sample:
    """Normalised training pairs to learn the vocabulary from, read again on each iteration."""

    def __init__(self, task: Task, train: _Text, workers: int) -> None:
        self._task, self._train, self._workers = task, train, workers

    def __iter__(self) -> Iterator[tuple[str, str]]:
        size = min(self._task.sample_pairs, self._train.size)
        chunks = parallel.chunks(self._train.sample(size), _CHUNK)
        with progress.stage("reading a sample", size, "pairs") as advance:
            for chunk, pairs in parallel.mapped(_normalise, self._task, chunks, self._workers):
                advance(len(chunk))
                yield from pairs

    def learn(self) -> Task:
        """Return the task with a vocabulary learned from the sample."""
        self._task.learn(self)
        return self._task


def _normalise(task: Task, examples: Sequence[Example]) -> list[tuple[str, str]]:
    return [task.normalise(example) for example in examples]


def _encode(directory: Path, task: Task, text: _Text, workers: int) -> dict[str, Any]:
    """Write the ids of a split; return its entry in the manifest."""
    unknown: Counter[str] = Counter()
    encode = partial(_encode_chunk, drop_empty=text.split not in RAW_SPLITS)
    sizes = (task.source_vocabulary_size, task.target_vocabulary_size)
    with (
        progress.stage(f"encoding {text.split}", text.size, "pairs") as advance,
        CorpusWriter(directory, text.split, sizes) as writer,
    ):
        for chunk, encoded in parallel.mapped(encode, task, parallel.chunks(text, _CHUNK), workers):
            lines = ([example.source for example in chunk], [example.target for example in chunk])
            for side, (ids, lengths), raw in zip(SIDES, encoded, lines, strict=True):
                writer.add(side, ids, lengths, raw)
                unknown[side] += int(np.count_nonzero(ids == UNK))
            advance(len(chunk))
        written = writer.close()
    for side in SIDES:
        written[side]["unknown"] = unknown[side]
    dropped = text.dropped + Counter({EMPTY: text.size - written["sentences"]})
    return {"read": text.read, "dropped": dict(sorted(dropped.items())), **written}


def _encode_chunk(task: Task, examples: Sequence[Example], drop_empty: bool) -> list[tuple[Ids, Ids]]:
    """Return, for source and target, the ids of all sentences in one array, and the sentences' lengths."""
    pairs = [(task.encode_source(e.source), task.encode_target(e.target)) for e in examples]
    if drop_empty:  # normalisation may leave nothing of a line
        pairs = [pair for pair in pairs if all(pair)]
    sides = ([source for source, _ in pairs], [target for _, target in pairs])
    return [(np.fromiter(chain(*side), np.uint32), np.fromiter(map(len, side), np.int64)) for side in sides]


def _table(splits: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the counts of each split as text, without rows of zeros."""
    reasons = dict.fromkeys(chain.from_iterable(counts["dropped"] for counts in splits.values()))
    rows: dict[str, list[Any]] = {
        "": list(splits),
        "pairs read": [counts["read"] for counts in splits.values()],
        **{f"dropped: {name}": [counts["dropped"].get(name, 0) for counts in splits.values()] for name in reasons},
        "pairs kept": [counts["sentences"] for counts in splits.values()],
    }
    for side in SIDES:
        rows[f"{side} tokens"] = [counts[side]["tokens"] for counts in splits.values()]
        rows[f"{side} tokens per sentence"] = [c[side]["tokens"] / max(c["sentences"], 1) for c in splits.values()]
        rows[f"{side} unknown tokens"] = [counts[side]["unknown"] for counts in splits.values()]
    formats = {int: "{:>14,}", float: "{:>14,.1f}", str: "{:>14}"}
    return "\n".join(
        f"  {label:28}" + "".join(formats[type(value)].format(value) for value in values)
        for label, values in rows.items()
        if any(values)
    )


def _task_flags(imports: Sequence[str]) -> MoreFlags:
    """Return the flags of every registered task. Models are not discovered, as they need torch."""
    registry.discover(imports, homes=("tasks",))
    tasks = sorted(registry.components("task"), key=lambda component: component.name != DEFAULT_TASK)
    panels = [Panel(f"task {component.name}", component.config, "task") for component in tasks]
    return MoreFlags(panels, {"task": registry.names("task")})


command = Command(
    PrepareOptions,
    prepare,
    _task_flags,
    examples=[
        "nmt prepare --source-lang en --target-lang de \\\n      --train corpus/train --valid corpus/valid --out data",
        "nmt prepare --source-lang en --target-lang de \\\n      --train a --train b --vocab-size 32000 --out data",
        "nmt prepare --source-lang en --target-lang de \\\n      --train news --subwords-from run --out news-data",
    ],
)
