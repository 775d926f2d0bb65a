"""The files of a run.

RUN/config.json                    the settings and the data, with which a resumed run must agree
RUN/metrics.jsonl                  a line for each log line
RUN/summary.json                   the run's figures, written at its end
RUN/checkpoints/step-00001500      the last N checkpoints of --save-every
RUN/checkpoints/latest-00001234    saved when a signal stopped the run, deleted after a later one
RUN/checkpoints/best-00001500      the best checkpoint by --best-by
RUN/best                           a link to the best checkpoint, or a copy of it

RUN/checkpoints may be a link to a directory, which may have other files. The files of a run must
not be links.
"""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from nmt_cli import checkpoint, registry
from nmt_cli.config import ABOUT_RUN, extended, flag, flatten
from nmt_cli.data.corpus import MANIFEST
from nmt_cli.errors import CheckpointError, UsageError, command_line
from nmt_cli.files import durable
from nmt_cli.files.staging import try_lock
from nmt_cli.files.text import json_text, read_object
from nmt_cli.streams import warn
from nmt_cli.training.reporter import readable
from nmt_cli.training.settings import TrainingConfig

CONFIG = "config.json"
METRICS = "metrics.jsonl"
LOCK = ".lock"
BEST = "best"
SUMMARY = "summary.json"

_FILES = (LOCK, CONFIG, METRICS, SUMMARY)
# Parts of checkpoints that killed processes leave. Version 1.0 made the names without the mark.
_REMAINS = re.compile(rf"\.((?:step|best|latest)-[0-9]{{8,}})\.({durable.MARK}|)(?:part|old|gone)")


class RunDirectory:
    """The directory of a run. One process at a time writes to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / checkpoint.FOLDER_OF_RUN
        self._lock: int | None = None
        self._writer = ThreadPoolExecutor(max_workers=1)
        self._writing: Future[None] | None = None

    def claim(self, description: Mapping[str, Any]) -> None:
        """Create the directory, or take an earlier run's, and lock it.

        Args:
            description: the content of config.json, with which an earlier run's must agree.

        Raises:
            UsageError: it is in use, is not a run, or was started with other settings or data.
        """
        config = self.path / CONFIG
        if self.path.exists() and not self.path.is_dir():
            raise UsageError(
                f"{self.path} is not a directory; --out takes a new directory or an earlier run"
            )
        self.path.mkdir(parents=True, exist_ok=True)
        for name in _FILES:
            durable.check_ours(self.path / name)
        if config.exists():
            check_agreement(self.path, description)
        else:
            self._check_unused()
        self._lock = durable.open_ours(self.path / LOCK)
        if not try_lock(self._lock):
            raise UsageError(f"{self.path}: another `nmt train` is writing to this directory")
        self._recover()
        durable.write_text(config, json.dumps(description, indent=2, sort_keys=True) + "\n")
        self.checkpoints.mkdir(exist_ok=True)

    def _check_unused(self) -> None:
        """Raise a UsageError if the directory has files of something else.

        Only names that a run needs count: a user may have a log there.
        """
        names = []
        for name in (METRICS, SUMMARY, BEST, MANIFEST):
            if os.path.lexists(self.path / name):
                names.append(name)
        names += [folder.name for folder in checkpoint.resumable_of(self.path)]
        if names:
            raise UsageError(
                f"{self.path} is in use: it has {names[0]} but no {CONFIG}; give another --out"
            )

    def _recover(self) -> None:
        """Clean up after a killed process."""
        patterns = [f".*.{durable.MARK}part"]
        for name in _FILES:  # version 1.0 made the names without the mark
            patterns.append(f".{name}.[0-9a-f]*part")
        for pattern in patterns:
            for path in self.path.glob(pattern):
                if path.is_file() and not path.is_symlink():
                    durable.discard(path)
        durable.recover(self.path / BEST)
        for path in sorted(self.checkpoints.glob(".*")):
            remains = _REMAINS.fullmatch(path.name)
            if remains:
                durable.recover(self.checkpoints / remains[1], remains[2])

    def release(self) -> None:
        """Finish writing, and unlock the directory."""
        self._writer.shutdown()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def write(self, job: Callable[[], None]) -> None:
        """Start `job` in a thread. The next call of a method here raises its error."""
        self.wait()
        self._writing = self._writer.submit(job)

    def wait(self) -> None:
        """Wait for the job, and raise its error."""
        if self._writing is not None:
            writing = self._writing
            self._writing = None
            writing.result()

    def check(self) -> None:
        """Raise the error of a job that has ended with one. Do not wait."""
        if self._writing is not None and self._writing.done():
            self.wait()

    def place(self, kind: str, step: int) -> Path:
        """Return the path of the checkpoint of `step`. `kind` is `step`, `latest` or `best`."""
        return self.checkpoints / f"{kind}-{step:08d}"

    def newest(self, note: Callable[[str], None]) -> Path | None:
        """Return the newest undamaged checkpoint, if there is one. Report damage with `note`.

        Raises:
            CheckpointError: there are checkpoints, and all are damaged.
        """
        checkpoints = checkpoint.resumable_of(self.path)
        for folder in reversed(checkpoints):
            damage = _damage(folder)
            if damage:
                note(f"warning: {damage}")
                continue
            if folder != checkpoints[-1]:
                note(f"resuming from {folder}, the newest undamaged checkpoint")
            return folder
        if checkpoints:
            raise CheckpointError(
                f"{self.checkpoints}: all checkpoints are damaged; move the directory to start anew"
            )
        return None

    def rewind(self, to: Path | None, step: int) -> None:
        """Go back to the checkpoint `to`: rename newer ones, and drop the metrics after `step`.

        Newer checkpoints are damaged. Without a checkpoint, all metrics are dropped.
        """
        if to is not None:
            checkpoints = checkpoint.resumable_of(self.path)
            for folder in checkpoints[checkpoints.index(to) + 1 :]:
                durable.set_aside(folder, "damaged")
        path = self.path / METRICS
        if not path.exists():
            return
        lines: list[str] = []
        if to is not None:
            lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
        remaining = [f"{line}\n" for line in lines if 0 <= _step_of(line) <= step]
        durable.write_text(path, "".join(remaining))

    def keep_best(self, step: int) -> None:
        """Keep the checkpoint of `step` as the best one, and no other."""
        best = self.place("best", step)
        if not best.exists():
            checkpoint.link(self.place("step", step), best)
        self._point_to(best)
        for older in checkpoint.resumable_of(self.path):
            if older.name.startswith("best-") and older != best:
                delete_checkpoint(older)

    def _point_to(self, best: Path) -> None:
        """Make RUN/best a link to the checkpoint, or a copy where the file system has no links."""
        place = self.path / BEST
        if place.exists() and not place.is_symlink() and not _same_run(place, best):
            reason = "is not a checkpoint of this run, so it stays"
            warn(f"{place} {reason}. The best checkpoint is {best}")
            return
        try:
            durable.new_link(place, best.relative_to(self.path))
        except OSError:
            checkpoint.link(best, place)

    def repair_best(self, step: int, note: Callable[[str], None]) -> None:
        """Do `keep_best` again, in case a kill interrupted it or the copy is damaged."""
        best = self.place("best", step)
        original = self.place("step", step)
        damage = _damage(best)
        if damage and _damage(original):
            note(f"warning: the best checkpoint, of step {step:,}, is lost: {damage}")
            return
        if damage and best.exists():
            note(f"warning: {damage} It is copied again from {original}.")
            delete_checkpoint(best)
        self.keep_best(step)

    def delete_old(self, keep: int) -> None:
        """Delete all but the newest `keep` checkpoints of `--save-every`, and an old `latest-*`."""
        earlier = checkpoint.resumable_of(self.path)[:-1]
        latest = [folder for folder in earlier if folder.name.startswith("latest-")]
        for folder in [*checkpoint.checkpoints_of(self.path)[:-keep], *latest]:
            delete_checkpoint(folder)

    def append_metrics(self, record: Mapping[str, Any]) -> None:
        """Add a line to metrics.jsonl."""
        durable.append_line(self.path / METRICS, json_text(record))

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write summary.json."""
        durable.write_text(self.path / SUMMARY, json_text(summary, indent=2) + "\n")


def delete_checkpoint(folder: Path) -> None:
    """Delete a checkpoint and its exports beside it. If a user's files are in it, rename it."""
    name = glob.escape(folder.name)
    exports = [record.parent for record in folder.parent.glob(f".{name}.*/{checkpoint.EXPORT}")]
    unfinished = folder.parent.glob(f"..{name}.*.{durable.MARK}*")
    for path in [*exports, *unfinished]:
        durable.delete(path)
    users_files = []
    for path in folder.iterdir():
        if path.name not in checkpoint.FILES and not path.name.startswith("."):
            users_files.append(path.name)
    if not users_files:
        durable.delete(folder)
        return
    place = durable.set_aside(folder, "kept")
    warn(f"{folder}: is not deleted but renamed to {place}: {min(users_files)} is in it")


def read_config(run: Path) -> dict[str, Any]:
    """Return the content of a run's config.json.

    Raises:
        UsageError: it is missing, or not a run's.
    """
    path = run / CONFIG
    if not run.is_dir():
        raise UsageError(f"{run}: no such directory")
    if not path.exists():
        if (run / MANIFEST).exists():
            raise UsageError(f"{run}: prepared data, not a run")
        raise UsageError(f"{run}: not a run: it has no {CONFIG}")
    content = read_object(path, UsageError, "Give the directory that was --out of `nmt train`.")
    if "sections" in content:
        raise UsageError(
            f"{run}: a checkpoint, not a run; give the directory that was --out of `nmt train`"
        )
    try:
        _check_types(content)
    except (KeyError, TypeError) as error:
        raise UsageError(f"{path}: not the configuration of a run: {error}") from error
    return content


def _check_types(content: Mapping[str, Any]) -> None:
    """Raise a KeyError or a TypeError for what is not the content of a run's config.json."""
    data = content["data"]
    texts = [data["path"], content["training"]["precision"], *data.get("paths", [])]
    if content.get("origin"):
        texts.append(content["origin"]["path"])
    are_texts = all(isinstance(text, str) for text in texts)
    if not are_texts or not isinstance(content["imports"], list):
        raise TypeError("data, training, imports or origin have the wrong type")


def recorded_config(run: Path | None) -> dict[str, Any] | None:
    """Return the content of the config.json of an earlier run, or None if the run is new."""
    if run is None or not (run / CONFIG).exists():
        return None
    return read_config(run)


def check_agreement(run: Path, description: Mapping[str, Any]) -> None:
    """Raise a UsageError unless a run was started on these data with these settings.

    Args:
        description: the content of config.json with the present data and settings.
    """
    recorded = read_config(run)
    former_data = recorded["data"]
    data = description["data"]
    if former_data.get("fingerprint") != data["fingerprint"]:
        change = f"and {data['path']} holds other data"
        if former_data["path"] == data["path"]:
            change = "which has changed since"
        raise UsageError(
            f"{run}: this run was started on {former_data['path']}, {change}; give its data, or "
            "another --out"
        )
    different = _different_settings(recorded, _as_json(description), run)
    if different:
        what = f"this run was started with other settings: {'; '.join(different)}"
        resume = command_line("train", "--resume", run)
        raise UsageError(f"{run}: {what}. Resume it with `{resume}`, or give another --out")


def _different_settings(
    recorded: Mapping[str, Any], description: Mapping[str, Any], run: Path
) -> list[str]:
    """Return a text for each setting that may not change and did."""
    former_settings = settings_of(recorded, run)
    settings = settings_of(description, run)
    classes = {"training": extended(TrainingConfig)}
    for name, value in settings.items():
        if "." not in name:  # a component, such as the model
            classes[name] = registry.find(name, value).config
    different = []
    for name in sorted(settings):
        value = settings[name]
        former_value = former_settings.get(name, value)
        section, _, field = name.partition(".")
        if field:
            definition = classes[section].__dataclass_fields__[field]
            if definition.metadata.get("may_change"):
                continue
            if name not in former_settings:  # the setting is newer than the run
                former_value = _as_json(definition.metadata.get("before", definition.default))
        if former_value != value:
            different.append(f"{flag(name)} was {readable(former_value)}, now {readable(value)}")
    return different


def _as_json(value: Any) -> Any:
    """Return `value` as JSON gives it back, with lists in place of tuples."""
    return json.loads(json.dumps(value))


def settings_of(content: Mapping[str, Any], run: Path) -> dict[str, Any]:
    """Return the settings in the content of a config.json by name, such as `model.d_ff`."""
    sections = {name: section for name, section in content.items() if name not in ABOUT_RUN}
    return flatten(sections, str(run))


def _step_of(line: str) -> int:
    """Return the step of a line of metrics, or -1 for an incomplete or damaged line."""
    try:
        step = json.loads(line)["step"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return -1
    return step if isinstance(step, int) else -1


def _same_run(folder: Path, other: Path) -> bool:
    """Return whether both are checkpoints of one run, and nothing else is in `folder`."""
    try:
        run = checkpoint.read_contents(folder).run
        other_run = checkpoint.read_contents(other).run
    except CheckpointError:
        return False
    names = {path.name for path in folder.iterdir()}
    return run == other_run and names <= checkpoint.FILES


def _damage(folder: Path) -> str:
    """Return the damage of a checkpoint, or "" if it has none."""
    try:
        checkpoint.verify(folder)
    except CheckpointError as error:
        return str(error)
    return ""
