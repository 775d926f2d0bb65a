"""A run's folder: its configuration, its metrics, its checkpoints, and the lock that keeps a second process out.

RUN/config.json                       what is trained, on what; a later start must agree
RUN/metrics.jsonl                     a line a report
RUN/checkpoints/step-00001500/        the last N checkpoints that --save-every asked for
RUN/checkpoints/latest-00001234/      what a signal or a good validation left, until there is a later one
RUN/best -> checkpoints/best-00001500 the checkpoint with the best validation loss
"""

from __future__ import annotations

import fcntl
import itertools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from nmt_cli import checkpoint
from nmt_cli.config import flag
from nmt_cli.errors import CheckpointError, UsageError
from nmt_cli.files import durable

CONFIG, METRICS, LOCK, BEST, SUMMARY = "config.json", "metrics.jsonl", ".lock", "best", "summary.json"


class RunFolder:
    """The files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / checkpoint.FOLDER_OF_RUN
        self._lock: IO[str] | None = None

    def claim(
        self,
        description: Mapping[str, Any],
        may_change: frozenset[str],
        fingerprint: str = "",
        defaults: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Takes the folder for this process: a new one, or one whose configuration agrees with `description`.

        Args:
            description: the configuration's sections and the data's fingerprint, as JSON.
            may_change: settings that may differ from the first start's.
            fingerprint: what the run's checkpoints call it; they vouch for it where the configuration is damaged.
            defaults: by section, the settings of a run that was begun before they existed.

        Raises:
            UsageError: it is in use, belongs to something else, or was started with other settings (named).
        """
        if self.path.exists() and not self.path.is_dir():
            raise UsageError(f"{self.path}: is a file; --out must name a folder, new or of an earlier run")
        if self.path.exists() and not (self.path / CONFIG).exists() and not self._is_new():
            raise UsageError(
                f"{self.path}: this folder is in use for something else (it has files but no {CONFIG}); give "
                f"another --out"
            )
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        self._take_lock()
        if (self.path / CONFIG).exists():
            self._check_agreement(description, may_change, fingerprint, defaults or {})
        durable.write_text(self.path / CONFIG, json.dumps(description, indent=2, sort_keys=True) + "\n")
        durable.recover_all(self.checkpoints)

    def release(self) -> None:
        """Lets another process have the folder."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def newest(self, note: Callable[[str], None]) -> Path | None:
        """The newest checkpoint that is whole; `note(text)` hears of damaged ones.

        Raises:
            CheckpointError: there are checkpoints, and every one is damaged.
        """
        found = checkpoint.resumable_of(self.path)
        for folder in reversed(found):
            damage = _damage(folder)
            if damage:
                note(f"warning: {damage}")
                continue
            if folder != found[-1]:
                note(f"going back to {folder}, the newest checkpoint that is whole")
            return folder
        if found:
            raise CheckpointError(
                f"{self.checkpoints}: every checkpoint is damaged; move the folder away to start anew"
            )
        return None

    def folder_of(self, step: int) -> Path:
        """Where the checkpoint of `step` lies."""
        return self.checkpoints / f"step-{step:08d}"

    def latest_of(self, step: int) -> Path:
        """Where the checkpoint of `step` lies that is kept until there is a later one."""
        return self.checkpoints / f"latest-{step:08d}"

    def keep_best(self, step: int) -> None:
        """Makes the checkpoint of `step` the best one; does what is left to do where that was cut off."""
        best = self._best_of(step)
        if not best.exists():
            checkpoint.link(self._original_of(step), best)
        aside = self.path / f".{BEST}.part"
        aside.unlink(missing_ok=True)
        aside.symlink_to(best.relative_to(self.path))
        aside.replace(self.path / BEST)
        for older in self.checkpoints.glob("best-*"):
            if older != best:
                durable.delete(older)

    def mend_best(self, step: int, note: Callable[[str], None]) -> None:
        """Sees to it that the checkpoint of `step` is kept as the best one, and whole; `note` hears where it is not."""
        best, original = self._best_of(step), self._original_of(step)
        damage = _damage(best)
        if damage and _damage(original):
            note(f"warning: the best checkpoint so far, of step {step:,}, is lost: {damage}")
            return
        if damage and best.exists():
            note(f"warning: {damage} It is made again from {original}.")
            durable.delete(best)
        self.keep_best(step)

    def forget_old(self, keep: int) -> None:
        """Deletes all but the newest `keep` checkpoints that were asked for, and what was left between them."""
        earlier = checkpoint.resumable_of(self.path)[:-1]
        between = [folder for folder in earlier if not folder.name.startswith("step-")]
        for folder in [*checkpoint.checkpoints_of(self.path)[:-keep], *between]:
            durable.delete(folder)

    def forget_after(self, step: int, reported: bool = True) -> None:
        """Puts aside the damaged checkpoints that came after `step`, and drops reports that will be written again:
        that of `step` itself, too, if it was not `reported` when its checkpoint was saved.
        """
        for folder in checkpoint.resumable_of(self.path):
            if checkpoint.step_of(folder) > step:
                folder.rename(_free_name(folder.with_name(f"damaged-{folder.name}")))
        path = self.path / METRICS
        if path.exists():
            kept = [
                line
                for line in path.read_text(encoding="utf-8", errors="replace").split("\n")
                if _step_of(line, default=step + 1) < step + reported
            ]
            durable.write_text(path, "".join(line + "\n" for line in kept))

    def append_metrics(self, record: Mapping[str, Any]) -> None:
        """Adds one line to the metrics; it is on the disk before the checkpoint that counts on it."""
        durable.append_line(self.path / METRICS, json.dumps(record))

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Writes the run's figures at its end, for recipes and machines."""
        durable.write_text(self.path / SUMMARY, json.dumps(summary, indent=2) + "\n")

    def summarised_step(self) -> int:
        """The step of which the summary tells; 0 where there is none, or a torn one."""
        try:
            return int(json.loads((self.path / SUMMARY).read_text(encoding="utf-8"))["steps"])
        except (OSError, ValueError, KeyError, TypeError):
            return 0

    def _take_lock(self) -> None:
        self._lock = (self.path / LOCK).open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"{self.path}: another `nmt train` is writing to this folder; wait for it, stop it, or give "
                f"another --out"
            ) from None

    def _check_agreement(
        self,
        description: Mapping[str, Any],
        may_change: frozenset[str],
        fingerprint: str,
        defaults: Mapping[str, Mapping[str, Any]],
    ) -> None:
        try:
            before = json.loads((self.path / CONFIG).read_text(encoding="utf-8"))
            different = _differences(_completed(before, description, defaults), description, may_change)
        except (ValueError, AttributeError, RecursionError) as error:
            if self._is_of(fingerprint):
                return
            raise UsageError(
                f"{self.path / CONFIG}: not the configuration of a run ({error}), and no checkpoint shows that it is "
                "this command's; give another --out"
            ) from error
        if different:
            raise UsageError(
                f"{self.path}: this run was started with other settings: {'; '.join(different)}. "
                "Give the same command to resume it, or another --out to start a new run."
            )

    def _is_new(self) -> bool:
        """Whether nothing is there but what a start leaves that was cut off before the configuration was written."""
        ours = {LOCK, durable.part_of(self.path / CONFIG).name, self.checkpoints.name}
        return {entry.name for entry in self.path.iterdir()} <= ours and not (
            self.checkpoints.is_dir() and any(self.checkpoints.iterdir())
        )

    def _is_of(self, fingerprint: str) -> bool:
        """Whether the run's newest readable checkpoint is of the run with this fingerprint."""
        whole = (folder for folder in reversed(checkpoint.resumable_of(self.path)) if not _damage(folder))
        newest = next(whole, None)
        return newest is not None and checkpoint.read_contents(newest).run == fingerprint

    def _best_of(self, step: int) -> Path:
        return self.checkpoints / f"best-{step:08d}"

    def _original_of(self, step: int) -> Path:
        return self.folder_of(step) if self.folder_of(step).exists() else self.latest_of(step)


def _completed(
    before: Mapping[str, Any], now: Mapping[str, Any], defaults: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """`before` with the defaults of settings that it lacks, in the sections that configure the same component."""
    completed = dict(before)
    for section, values in defaults.items():
        old = before.get(section)
        if isinstance(old, Mapping) and old.get("name") == now[section].get("name"):
            completed[section] = {**values, **old}
    return completed


def _differences(before: Mapping[str, Any], now: Mapping[str, Any], may_change: frozenset[str]) -> list[str]:
    different = []
    for section in sorted(before.keys() | now.keys()):
        old, new = before.get(section), now.get(section)
        if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
            if old != new:
                different.append(f"the {section} was {old}, now {new}")
            continue
        for name in sorted(old.keys() | new.keys()):
            if name not in may_change and old.get(name) != new.get(name):
                label = f"--{section}" if name == "name" else flag(name)
                different.append(f"{label} was {old.get(name)}, now {new.get(name)}")
    return different


def _step_of(line: str, default: int) -> int:
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return default  # a line that a crash cut off


def _damage(folder: Path) -> str:
    """What is wrong with a checkpoint; nothing where it is whole."""
    try:
        checkpoint.verify(folder)
    except CheckpointError as error:
        return str(error)
    return ""


def _free_name(path: Path) -> Path:
    """`path`, or `path.2` and so on where that is taken."""
    names = (path.with_name(f"{path.name}.{number}") for number in itertools.count(2))
    return next(name for name in itertools.chain([path], names) if not name.exists())
