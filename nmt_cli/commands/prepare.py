"""`nmt prepare`: raw text to a memory-mapped corpus of ids, for any task.

Training text is read three times, streaming: to clean it, to learn the vocabularies from a sample, and to write ids.
What is remembered in between is a byte and a hash of 8 bytes for each pair.
"""

from __future__ import annotations

import dataclasses
import errno
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nmt_cli import __version__, registry
from nmt_cli.commands import progress
from nmt_cli.commands.prepare_table import show_counts
from nmt_cli.config import COMMAND_LINE, configure
from nmt_cli.data import parallel
from nmt_cli.data.cleaning import DUPLICATE, EMPTY, PairHashes
from nmt_cli.data.corpus import MANIFEST, RAW_SPLITS, SCHEMA, SIDES, SPLITS, CorpusWriter
from nmt_cli.errors import CheckpointError, DataError, UsageError
from nmt_cli.files import staging
from nmt_cli.files.text import fingerprint
from nmt_cli.flags import IMPORTS_HELP, Command, MoreFlags, Panel
from nmt_cli.interfaces import TASK_FILE, UNK, Example, Task
from nmt_cli.registry import REQUIRED, option

TASK = "task"
DEFAULT_TASK = "translation"
_CHUNK = 1000  # pairs that travel to a worker together
_OURS = (
    MANIFEST,
    TASK,
    *(f"{split}.{side}.{name}" for split in SPLITS for side in SIDES for name in ("ids", "offsets", "txt")),
)


@dataclass(frozen=True, kw_only=True)
class PrepareOptions:
    """Turn raw text into a memory-mapped corpus of subword ids."""

    out: Path = option(REQUIRED, "Folder to create.", metavar="DATA")
    train: tuple[str, ...] = option(
        REQUIRED,
        "Training text; corpus/train stands for corpus/train.en[.gz] and corpus/train.de[.gz].",
        metavar="PREFIX",
    )
    valid: str | None = option(None, "Validation text; every line is kept.", metavar="PREFIX")
    test: str | None = option(None, "Test text; every line is kept.", metavar="PREFIX")
    subwords_from: Path | None = option(
        None, "Use the vocabulary of this data or model instead of learning one.", metavar="DATA|CHECKPOINT"
    )
    keep_duplicates: bool = option(False, "Keep repeated training pairs.")
    workers: int | None = option(None, "Processes; the result is the same. [default: the cores, at most 8]", minimum=1)
    overwrite: bool = option(False, "Replace prepared data that is there.")
    imports: tuple[str, ...] = option((), IMPORTS_HELP, metavar="MODULE", names=("--import",))
    chosen: frozenset[str] = frozenset()  # the task's settings that were given, though they may be the defaults

    def prefixes(self) -> dict[str, tuple[str, ...]]:
        """The prefixes of each split that is wanted."""
        single = {"valid": self.valid, "test": self.test}
        return {"train": self.train, **{split: (prefix,) for split, prefix in single.items() if prefix is not None}}


def default_workers() -> int:
    """As many processes as there are cores for us, but at most 8: the reading process feeds no more."""
    return min(8, parallel.available_cores())


def task_config(flags: Mapping[str, Any]) -> Any:
    """The configuration of the task that `flags` select and set, by field name.

    Raises:
        UsageError: no such task, a value that does not fit, or a flag of a task that is not selected.
    """
    return configure({COMMAND_LINE: flags}, {TASK: DEFAULT_TASK})[TASK]


def prepare(config: Any, settings: PrepareOptions) -> dict[str, Any]:
    """Makes the folder `settings.out` for the task that `config` configures; returns its manifest.

    Raises:
        UsageError: settings that do not fit, or the folder is in use.
        DataError: text that cannot be read or is unfit, or a full disk. Nothing is left behind, nothing written over.
    """
    if not settings.train:
        raise UsageError("--train is needed: the prefix of the training files, as data/train for data/train.en")
    task: Task = registry.build(config)
    inputs = _inputs(task, settings)
    if settings.subwords_from is not None:
        task.adopt(_saved_task(settings.subwords_from, task.name), settings.chosen)
    try:
        with staging.staged(settings.out, overwrite=settings.overwrite, ours=_OURS, marker=MANIFEST) as folder:
            manifest = _prepare_into(folder, task, settings, inputs)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DataError(
                f"--out {settings.out}: the disk is full; nothing was left behind. Make room, or choose another disk"
            ) from error
        raise
    show_counts(manifest["splits"], settings.out)
    return manifest


def _prepare_into(folder: Path, task: Task, settings: PrepareOptions, inputs: dict[str, list[Path]]) -> dict[str, Any]:
    train = _clean(task, settings, inputs["train"])
    if settings.subwords_from is None:
        with progress.silent_stage("learning the vocabulary"):
            task = parallel.apart(
                partial(_learned, task, _Sample(task, train, (settings.workers or default_workers())))
            )
    (folder / TASK).mkdir()
    task.save(folder / TASK)
    splits = {"train": _encode(folder, "train", task, train, train.kept_count, (settings.workers or default_workers()))}
    splits["train"] = train.counts(splits["train"])
    for split in RAW_SPLITS:
        if split in inputs:
            splits[split] = _encode_whole(folder, split, task, settings, inputs[split])
    manifest = _manifest(task, settings, inputs, splits)
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return manifest


class _Cleaned:
    """The training pairs that stay, read anew from the files each time."""

    def __init__(self, task: Task, prefixes: Sequence[str], kept: npt.NDArray[np.bool_], dropped: Counter[str]) -> None:
        self._task = task
        self._prefixes = prefixes
        self._kept = kept
        self.dropped = dropped
        self.kept_count = int(np.count_nonzero(kept))

    def __iter__(self) -> Iterator[Example]:
        number = 0
        for prefix in self._prefixes:
            for example in self._task.read(prefix):
                if number >= len(self._kept):
                    raise self._changed()
                if self._kept[number]:
                    yield example
                number += 1
        if number != len(self._kept):
            raise self._changed()

    def sample(self, size: int) -> Iterator[Example]:
        """`size` of the pairs that stay, evenly spaced."""
        for number, example in enumerate(self):
            if (number + 1) * size // self.kept_count > number * size // self.kept_count:
                yield example

    def counts(self, written: dict[str, Any]) -> dict[str, Any]:
        """The manifest's entry of the split, with what was read and dropped."""
        dropped = self.dropped.copy()
        if lost := self.kept_count - written["sentences"]:
            dropped[EMPTY] += lost  # nothing was left of them after normalisation
        return {"read": len(self._kept), "dropped": dict(sorted(dropped.items())), **written}

    def _changed(self) -> DataError:
        return DataError(f"{', '.join(self._prefixes)}: the files changed while they were read; run the command again")


class _Sample:
    """Normalised pairs for the vocabularies; iterating again reads again."""

    def __init__(self, task: Task, train: _Cleaned, workers: int) -> None:
        self._task = task
        self._train = train
        self._workers = workers

    def __iter__(self) -> Iterator[tuple[str, str]]:
        size = min(self._task.sample_pairs, self._train.kept_count)
        pieces = parallel.chunks(self._train.sample(size), _CHUNK)
        with progress.stage("reading a sample", size, "pairs") as advance:
            for chunk, pairs in parallel.mapped(_normalise_chunk, self._task, pieces, self._workers):
                advance(len(chunk))
                yield from pairs


def _learned(task: Task, sample: _Sample) -> Task:
    task.learn(sample)
    return task


class _Encoded(NamedTuple):
    """The ids of a chunk's sentences: flat, with each sentence's length; and the pairs that stay."""

    ids: tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]  # source, target
    lengths: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]


def _inputs(task: Task, settings: PrepareOptions) -> dict[str, list[Path]]:
    """The files of each split; finding them first means that a wrong name costs no time."""
    return {
        split: [path for prefix in prefixes for path in task.files(prefix)]
        for split, prefixes in settings.prefixes().items()
    }


def _saved_task(folder: Path, name: str) -> Any:
    """The task inside prepared data or a checkpoint."""
    path = folder / TASK / TASK_FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["name"]
    except OSError as error:
        raise CheckpointError(
            f"--subwords-from {folder}: neither prepared data nor a checkpoint: cannot read {path}: {error.strerror}"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path}: damaged: {type(error).__name__}: {error}") from error
    if found != name:
        raise UsageError(f"--subwords-from {folder}: it was made for the task {found!r}, not {name!r}")
    return registry.find("task", name).build.load(folder / TASK)  # type: ignore[attr-defined]


def _clean(task: Task, settings: PrepareOptions, files: Sequence[Path]) -> _Cleaned:
    kept = bytearray()
    dropped: Counter[str] = Counter()
    hashes = PairHashes()
    with progress.stage("reading train", _size(files), "bytes") as consumed:
        for prefix in settings.train:
            for example in task.read(prefix, consumed):
                reason = task.rejection(example)
                kept.append(reason is None)
                if reason is not None:
                    dropped[reason] += 1
                elif not settings.keep_duplicates:
                    hashes.add(example.source, example.target)
    stays = np.frombuffer(kept, dtype=bool)
    if not settings.keep_duplicates:
        repeated = hashes.repeated()
        stays[stays] = ~repeated
        dropped[DUPLICATE] += int(np.count_nonzero(repeated))
    cleaned = _Cleaned(task, settings.train, stays, +dropped)
    if not cleaned.kept_count:
        raise _nothing_left(settings.train, len(kept), dropped)
    return cleaned


def _nothing_left(prefixes: Sequence[str], read: int, dropped: Counter[str]) -> DataError:
    what = f"--train {' '.join(prefixes)}"
    if not read:
        return DataError(f"{what}: the files are empty; there is nothing to train on")
    reasons = ", ".join(f"{reason} {count}" for reason, count in dropped.most_common() if count)
    return DataError(f"{what}: none of the {read} pairs is fit to train on; dropped: {reasons}")


def _encode_whole(
    folder: Path, split: str, task: Task, settings: PrepareOptions, files: Sequence[Path]
) -> dict[str, Any]:
    """Encodes every line of a split that must stay whole."""
    (prefix,) = settings.prefixes()[split]
    total = sum(1 for _ in task.read(prefix))
    if not total:
        raise DataError(f"--{split} {prefix}: the files are empty")
    written = _encode(
        folder, split, task, _without_nul(task.read(prefix), split), total, (settings.workers or default_workers())
    )
    if written["sentences"] != total:
        raise DataError(f"--{split} {prefix}: the files changed while they were read; run the command again")
    return {"read": total, "dropped": {}, **written}


def _without_nul(examples: Iterable[Example], split: str) -> Iterator[Example]:
    for example in examples:
        if "\0" in example.source or "\0" in example.target:
            raise DataError(
                f"{example.place}: a NUL byte in this {split} line or in its counterpart; mend it, the line must stay"
            )
        yield example


def _encode(
    folder: Path, split: str, task: Task, examples: Iterable[Example], total: int, workers: int
) -> dict[str, Any]:
    unknown: Counter[str] = Counter()
    encode = _encode_chunk if split in RAW_SPLITS else _encode_fit_chunk
    sizes = (task.source_vocabulary_size, task.target_vocabulary_size)
    with progress.stage(f"encoding {split}", total, "pairs") as advance, CorpusWriter(folder, split, sizes) as writer:
        for chunk, encoded in parallel.mapped(encode, task, parallel.chunks(examples, _CHUNK), workers):
            for side, ids, lengths, lines in zip(
                SIDES, *encoded, zip(*((e.source, e.target) for e in chunk), strict=True), strict=True
            ):
                writer.add(side, ids, lengths, lines)
                unknown[side] += int(np.count_nonzero(ids == UNK))
            advance(len(chunk))
        written = writer.close()
    for side in SIDES:
        written[side]["unknown"] = unknown[side]
    return written


def _normalise_chunk(task: Task, examples: Sequence[Example]) -> list[tuple[str, str]]:
    return [task.normalise(example) for example in examples]


def _encode_chunk(task: Task, examples: Sequence[Example]) -> _Encoded:
    return _packed([(task.encode_source(e.source), task.encode_target(e.target)) for e in examples])


def _encode_fit_chunk(task: Task, examples: Sequence[Example]) -> _Encoded:
    """Leaves out pairs of which normalisation left nothing on a side."""
    pairs = [(task.encode_source(e.source), task.encode_target(e.target)) for e in examples]
    return _packed([(source, target) for source, target in pairs if source and target])


def _packed(pairs: Sequence[tuple[list[int], list[int]]]) -> _Encoded:
    sides = [[pair[side] for pair in pairs] for side in range(2)]
    ids = [np.array([i for sentence in side for i in sentence], dtype=np.uint32) for side in sides]
    lengths = [np.array([len(sentence) for sentence in side], dtype=np.int64) for side in sides]
    return _Encoded((ids[0], ids[1]), (lengths[0], lengths[1]))


def _manifest(
    task: Task, settings: PrepareOptions, inputs: dict[str, list[Path]], splits: dict[str, Any]
) -> dict[str, Any]:
    """Where the data comes from. No date and no number of workers in it: the same run, the same bytes."""
    return {
        "schema": SCHEMA,
        "nmt": __version__,
        "task": task.describe(),
        "settings": {
            "keep_duplicates": settings.keep_duplicates,
            "subwords_from": None if settings.subwords_from is None else str(settings.subwords_from),
        },
        "inputs": [
            {"split": split, "file": str(path), "bytes": path.stat().st_size, "sha256": fingerprint(path)}
            for split, paths in inputs.items()
            for path in paths
        ],
        "splits": splits,
    }


def _size(files: Sequence[Path]) -> int:
    return sum(path.stat().st_size for path in files)


def _task_flags(imports: Sequence[str]) -> MoreFlags:
    """The flags of every registered task; models are not looked for, as they need torch."""
    registry.discover(imports, homes=("tasks",))
    tasks = sorted(registry.components("task"), key=lambda component: component.name != DEFAULT_TASK)
    panels = [Panel(f"task {component.name}", component.config, "task") for component in tasks]
    return MoreFlags(panels, {"task": registry.names("task")})


def _run(options: PrepareOptions, flags: Mapping[str, Any]) -> None:
    prepare(
        task_config(flags), dataclasses.replace(options, chosen=frozenset(name.removeprefix("task.") for name in flags))
    )


command = Command(
    PrepareOptions,
    _run,
    _task_flags,
    examples=[
        "nmt prepare --source-lang en --target-lang de --train corpus/train --valid corpus/valid --out data",
        "nmt prepare --source-lang en --target-lang de --train news --train europarl --vocab-size 32000 --out data",
        "nmt prepare --source-lang en --target-lang de --train news --subwords-from run --out news-data",
    ],
)
