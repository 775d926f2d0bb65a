"""`nmt prepare`: raw text to a memory-mapped corpus of ids, for any task.

Validation and test text is read and checked first. Training text is then streamed three times: to
clean it, to learn the vocabulary from a sample of it, and to encode it. Memory holds a byte and a
hash of 8 bytes for each training pair.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from nmt_cli import __version__, checkpoint, registry
from nmt_cli.commands.prepare_text import (
    Cleaning,
    CleaningOptions,
    PairFilter,
    Part,
    Sample,
    encode,
    read_held_out,
)
from nmt_cli.config import COMMAND_LINE, Section, sections
from nmt_cli.cores import available_cores
from nmt_cli.data import parallel
from nmt_cli.data.corpus import MANIFEST, RAW_SPLITS, SCHEMA, SIDES, SPLITS
from nmt_cli.errors import CheckpointError, UsageError, command_line, import_flags
from nmt_cli.files import durable, staging
from nmt_cli.files.text import STANDARD_INPUT, check_read_once, fingerprint, weighted, write_object
from nmt_cli.flags import Command, FromFile, components_in, import_option, values_of
from nmt_cli.presets import PRESETS
from nmt_cli.registry import REQUIRED, group, option
from nmt_cli.streams import columns, say, warn
from nmt_cli.task import TASK_FILE, Task
from nmt_cli.training.settings import TrainingConfig

TASK = "task"
DEFAULT_TASK = "translation"
# A smaller model suits text that a preset would read more often.
USUAL_EPOCHS = 100
_ENDINGS = ("ids", "offsets", "txt")
_FILES = [f"{split}.{side}.{name}" for split in SPLITS for side in SIDES for name in _ENDINGS]


@dataclass(frozen=True, kw_only=True)
class PrepareOptions(FromFile):
    """Turn raw text into a memory-mapped corpus of subword ids."""

    out: Path = option(REQUIRED, "Directory to create.", metavar="DATA")
    train: tuple[str, ...] = option(
        (),
        "Training text: corpus/train for corpus/train.en and corpus/train.de, plain or compressed, "
        "train.tsv for a table, or - for a table on standard input. Repeat for more. PREFIX*3: "
        "every epoch has its sentences three times. PREFIX@<bt>: before each source is the tag "
        "<bt>.",
        metavar="PREFIX[@TAG][*WEIGHT]",
    )
    valid: str | None = option(None, "Validation text. Every line is kept.", metavar="PREFIX")
    test: str | None = option(None, "Test text. Every line is kept.", metavar="PREFIX")
    train_source: tuple[str, ...] = option(
        (), "Training text, its source file. Repeat for more.", metavar="FILE"
    )
    train_target: tuple[str, ...] = option(
        (), "Target file of each --train-source.", metavar="FILE[@TAG][*WEIGHT]"
    )
    valid_source: str | None = option(None, "Validation text, its source file.", metavar="FILE")
    valid_target: str | None = option(None, "Its target file.", metavar="FILE[@TAG]")
    test_source: str | None = option(None, "Test text, its source file.", metavar="FILE")
    test_target: str | None = option(None, "Its target file.", metavar="FILE[@TAG]")
    subwords_from: Path | None = option(
        None,
        "Use the vocabulary of prepared data, a checkpoint or a run instead of learning one.",
        metavar="PATH",
    )
    workers: int | None = option(
        None,
        "Processes. The result does not depend on it. [default: number of cores, at most 8]",
        minimum=1,
        maximum=parallel.MOST,
    )
    overwrite: bool = option(False, "Replace existing prepared data.")
    imports: tuple[str, ...] = import_option()
    cleaning: CleaningOptions = group("duplicates and held-out text", CleaningOptions)

    def parts(self) -> list[Part]:
        """Return the prefixes of the training text with their weights.

        Raises:
            UsageError: a weight is out of range, there is no text, or a source has no target.
        """
        texts = [*self.train, *_pairs_of_files("train", self.train_source, self.train_target)]
        if not texts:
            raise UsageError(
                "there is no training text: give --train PREFIX, or --train-source and "
                "--train-target"
            )
        return [Part(*weighted(text, "--train ")) for text in texts]

    def held_out(self) -> dict[str, str]:
        """Return the prefixes of validation and test text by split.

        Raises:
            UsageError: there are two of one split, or --hold-out takes this text from elsewhere.
        """
        prefixes = {}
        for split in RAW_SPLITS:
            prefix = getattr(self, split)
            source = getattr(self, f"{split}_source")
            target = getattr(self, f"{split}_target")
            pairs = _pairs_of_files(split, [source] if source else [], [target] if target else [])
            if prefix and pairs:
                raise UsageError(
                    f"--{split} and --{split}-source contradict each other: give one of them"
                )
            if prefix or pairs:
                prefixes[split] = prefix or pairs[0]
        if prefixes and self.cleaning.hold_out is not None:
            raise UsageError(
                "--hold-out takes validation and test text from --train, and cannot be used with "
                "--valid or --test"
            )
        return prefixes


@contextmanager
def _with_standard_input(options: PrepareOptions) -> Iterator[PrepareOptions]:
    """Copy standard input to a file while the body runs, if `--train -` is given."""
    places = [place for place, text in enumerate(options.train) if re.match(r"-(@<|\*|$)", text)]
    if not places:
        yield options
        return
    check_read_once([STANDARD_INPUT] * len(places))
    out = Path(os.path.realpath(options.out))
    staging.check_name(out)
    path = durable.beside(out, "stdin.tsv")
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(durable.open_ours(path), "wb") as file:
        if not staging.try_lock(file.fileno()):
            raise UsageError(f"--out {options.out}: another process is writing this directory")
        try:
            with durable.named(path):
                file.truncate()
                shutil.copyfileobj(sys.stdin.buffer, file)
                file.flush()
            train = list(options.train)
            place = places[0]
            train[place] = f"{path}{train[place].removeprefix('-')}"  # with its tag and weight
            yield replace(options, train=tuple(train))
        finally:
            durable.discard(path)


def prepare(options: PrepareOptions, flags: Mapping[str, Any]) -> None:
    """Do what `prepare_files` does, with text that may come from standard input."""
    with _with_standard_input(options) as options:
        prepare_files(options, flags)


def prepare_files(options: PrepareOptions, flags: Mapping[str, Any]) -> None:
    """Write the directory `options.out` for the task that `flags` configure, and print the counts.

    Raises:
        UsageError: settings do not fit, or the directory is in use.
        DataError: text cannot be read or is unfit. Nothing is written then, nor where an OSError is
            raised.
    """
    layers = {f"{options.config}: ": options.of_components(), COMMAND_LINE: flags}
    settings = sections(layers, {TASK: DEFAULT_TASK}, **filter_configs())
    task: Task = registry.build(settings.pop(TASK).instance())
    filters: list[PairFilter] = []
    for section in settings.values():
        filters.append(registry.build(section.instance()))
    parts = options.parts()
    held_out = options.held_out()
    files = {"train": [file for part in parts for file in task.files(part.prefix)]}
    for split, prefix in held_out.items():
        files[split] = task.files(prefix)
    for pair_filter in filters:
        files |= pair_filter.inputs
    # All that can be refused is refused before the directory is made.
    options.cleaning.check()
    for pair_filter in filters:
        pair_filter.check(chain.from_iterable(files.values()))
    saved = None
    if options.subwords_from is not None:
        chosen = {name.removeprefix("task.") for layer in layers.values() for name in layer}
        saved = _saved_task(options.subwords_from, task.name)
        task.adopt(saved, chosen)
    prefixes = [part.prefix for part in parts]
    task.look_ahead(prefixes, held_out.values(), adopted=saved is not None)
    allowed = (MANIFEST, TASK, *_FILES)
    with staging.staged(
        options.out, overwrite=options.overwrite, allowed=allowed, marker=MANIFEST
    ) as directory:
        splits = _write(directory, task, options, filters, files)
    following = _next_command(options, task, saved, splits["train"]["target"]["tokens"])
    say(f"{options.out}:\n{_table(splits)}\nnext: {following}")


def _next_command(
    options: PrepareOptions, task: Task, saved: Task | None, target_tokens: int
) -> str:
    """Return the command that trains on the data: a new model, or the one of --subwords-from."""
    source = options.subwords_from
    flags: Sequence[object] = ()
    if saved is None or source is None:
        flags = _fitting_preset(task, target_tokens)
    elif not (source / MANIFEST).exists() and saved.languages == task.languages:
        flags = ("--init-from", source, "--schedule", "constant", "--learning-rate", "0.0001")
    imports = import_flags(options.imports)
    return command_line("train", options.out, *flags, *imports, "--out", "RUN")


def _fitting_preset(task: Task, target_tokens: int) -> Sequence[str]:
    """Return the flag of the task's largest preset with `USUAL_EPOCHS`, or of its smallest one."""
    # The data are written. `nmt train` names the module that cannot be imported.
    with suppress(UsageError):
        registry.discover()
    flag: Sequence[str] = ()
    for name in task.presets:
        if name in PRESETS:
            flag = ("--preset", name)
            settings = asdict(TrainingConfig()) | PRESETS[name].differs
            if settings["max_steps"] * settings["batch_tokens"] <= USUAL_EPOCHS * target_tokens:
                break
    return flag


def _saved_task(path: Path, name: str) -> Task:
    """Return the task of prepared data, of a checkpoint, or of the newest checkpoint of a run."""
    directory = path
    if not (path / TASK / TASK_FILE).is_file():
        try:
            directory = checkpoint.locate(path)
        except CheckpointError as error:
            raise CheckpointError(
                f"--subwords-from: expected prepared data, a checkpoint or a run: {error}"
            ) from error
        say(f"--subwords-from {path}: using {directory}")
    task = checkpoint.load_task(directory / TASK)
    if task.name != name:
        raise UsageError(f"--subwords-from {path}: its task is {task.name!r}, not {name!r}")
    return task


def _write(
    directory: Path,
    task: Task,
    options: PrepareOptions,
    filters: Sequence[PairFilter],
    files: Mapping[str, Sequence[Path]],
) -> dict[str, Any]:
    """Write all files, and return the manifest's entries of the splits."""
    workers = options.workers or min(8, available_cores())
    held_out = []
    for split, prefix in options.held_out().items():
        held_out.append(read_held_out(task, split, prefix, filters))
    watched = {line for other in held_out for line in other.sources}
    size = sum(path.stat().st_size for path in files["train"])
    cleaning = Cleaning(task, options.parts(), size, options.cleaning, filters)
    cleaned = cleaning.read(watched, workers)
    del cleaning  # it has bytes of every pair
    for other in held_out:
        shared = sum(line in cleaned.watched for line in other.sources)
        if shared:
            warn(
                f"{shared:,} of {len(other.sources):,} {other.text.split} source lines are also "
                "training text"
            )
    if options.subwords_from is None:
        say("learning the vocabulary ...")
        start = time.monotonic()
        # Apart, so that the memory of learning is free when the text is encoded.
        task = parallel.apart(Sample(task, cleaned.train, workers).learn)
        say(f"learning the vocabulary: done in {time.monotonic() - start:.1f} s")
    (directory / TASK).mkdir()
    task.save(directory / TASK)
    texts = [cleaned.train, *[other.text for other in held_out], *cleaned.taken]
    splits = {text.split: encode(directory, task, text, workers) for text in texts}
    # No date and no number of workers: the same input gives the same bytes.
    manifest = {
        "schema": SCHEMA,
        "nmt": __version__,
        "task": task.describe(),
        "settings": _settings(options, filters),
        "inputs": [_input(split, path) for split, paths in files.items() for path in paths],
        "splits": splits,
    }
    write_object(directory / MANIFEST, manifest)
    return splits


def _settings(options: PrepareOptions, filters: Sequence[PairFilter]) -> dict[str, Any]:
    """Return the manifest's entry of settings."""
    settings: dict[str, Any] = {
        "keep_duplicates": options.cleaning.keep_duplicates,
        "unique": options.cleaning.unique,
    }
    for pair_filter in filters:
        settings |= pair_filter.settings
    settings["hold_out"] = options.cleaning.hold_out
    vocabulary = options.subwords_from
    settings["subwords_from"] = None if vocabulary is None else str(vocabulary)
    return settings


def _input(split: str, path: Path) -> dict[str, Any]:
    """Return the manifest's entry of a file that is read."""
    return {
        "split": split,
        "file": str(path),
        "bytes": path.stat().st_size,
        "sha256": fingerprint(path),
    }


def _pairs_of_files(split: str, sources: Sequence[str], targets: Sequence[str]) -> list[str]:
    """Return the two files of each pair, with a tab between them: `Task.files` takes them so."""
    if len(sources) != len(targets):
        raise UsageError(
            f"--{split}-source and --{split}-target belong together: give one for each of the other"
        )
    return ["\t".join(pair) for pair in zip(sources, targets, strict=True)]


def _table(splits: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the counts of each split as text, without rows of zeros."""
    counts = splits.values()
    rows = {"pairs read": [split["read"] for split in counts]}
    reasons = dict.fromkeys(chain.from_iterable(split["dropped"] for split in counts))
    for reason in reasons:
        rows[f"dropped: {reason}"] = [split["dropped"].get(reason, 0) for split in counts]
    rows["pairs kept"] = [split["sentences"] for split in counts]
    for side in SIDES:
        tokens = [split[side]["tokens"] for split in counts]
        rows[f"{side} tokens"] = tokens
        rows[f"{side} tokens per sentence"] = [
            round(number / max(split["sentences"], 1), 1)
            for number, split in zip(tokens, counts, strict=True)
        ]
        rows[f"{side} unknown tokens"] = [split[side]["unknown"] for split in counts]
    table = [["", *splits]]
    for label, numbers in rows.items():
        if any(numbers):
            table.append([f"  {label}", *map("{:,}".format, numbers)])
    return "\n".join(columns(table, numbers=range(1, len(splits) + 1)))


def filter_configs() -> dict[str, type[Any]]:
    return {component.name: component.config for component in registry.components("filter")}


def _more_flags(words: Sequence[str]) -> dict[str, Section]:
    """Return the flags of tasks and filters. Models are not discovered, as they need torch."""
    registry.discover(values_of(words, "--import"), homes=("tasks",))
    selected = components_in(words, [TASK])
    return sections({COMMAND_LINE: selected}, {TASK: DEFAULT_TASK}, **filter_configs())


command = Command(
    PrepareOptions,
    prepare,
    _more_flags,
    examples=[
        "nmt prepare --source-lang en --target-lang de \\\n      --train corpus/train --valid "
        "corpus/valid --out data",
        "nmt prepare --source-lang en --target-lang de \\\n      --train a --train b --vocab-size "
        "32000 --out data",
        "nmt prepare --source-lang en --target-lang de \\\n      --train news --subwords-from run "
        "--out news-data",
    ],
)
