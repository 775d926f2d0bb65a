"""The files of a run.

RUN/config.json                        the settings and the data; a resumed run must agree with them
RUN/metrics.jsonl                      a line for each log line
RUN/summary.json                       the run's figures, written at its end
RUN/checkpoints/step-00001500          the last N checkpoints of --save-every
RUN/checkpoints/latest-00001234        saved when a signal stopped the run, until a later checkpoint is saved
RUN/checkpoints/best-00001500          the best checkpoint by --best-by; RUN/best is a link to it, or a copy

RUN/checkpoints may be a link to a directory, which other files may be in. The files of a run must
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

CONFIG, METRICS, LOCK, BEST, SUMMARY = (
    "config.json",
    "metrics.jsonl",
    ".lock",
    "best",
    "summary.json",
)

_FILES = (LOCK, CONFIG, METRICS, SUMMARY)
# What killed processes leave of checkpoints. Version 1.0 made the names without the mark.
_REMAINS = re.compile(rf"\.((?:step|best|latest)-[0-9]{{8,}})\.({durable.MARK}|)(?:part|old|gone)")


class RunDirectory:
    """The directory of one run; one process at a time writes to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / checkpoint.FOLDER_OF_RUN
        self._lock: int | None = None
        self._writer = ThreadPoolExecutor(max_workers=1)
        self._writing: Future[None] | None = None

    def claim(self, description: Mapping[str, Any]) -> None:
        """Create the directory, or take one whose configuration agrees with `description`; lock it.

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
            names = [
                name
                for name in (METRICS, SUMMARY, BEST, MANIFEST)
                if os.path.lexists(self.path / name)
            ]
            names += [folder.name for folder in checkpoint.resumable_of(self.path)]
            if names:  # a log of the user's is no reason
                raise UsageError(
                    f"{self.path} is in use: it has {names[0]} but no {CONFIG}; give another --out"
                )
        self._lock = durable.open_ours(self.path / LOCK)
        if not try_lock(self._lock):
            raise UsageError(f"{self.path}: another `nmt train` is writing to this directory")
        self._recover()
        durable.write_text(config, json.dumps(description, indent=2, sort_keys=True) + "\n")
        self.checkpoints.mkdir(exist_ok=True)

    def _recover(self) -> None:
        """Clean up after a killed process."""
        # Version 1.0 made the names without the mark.
        former = (f".{name}.[0-9a-f]*part" for name in _FILES)
        for pattern in (f".*.{durable.MARK}part", *former):
            for path in self.path.glob(pattern):
                if path.is_file() and not path.is_symlink():
                    durable.discard(path)
        durable.recover(self.path / BEST)
        for path in sorted(self.checkpoints.glob(".*")):
            remains = _REMAINS.fullmatch(path.name)
            if remains:
                durable.recover(self.checkpoints / remains[1], remains[2])

    def release(self) -> None:
        self._writer.shutdown()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def write(self, job: Callable[[], None]) -> None:
        """Start `job` in a thread, after the one before it has ended. Its error is raised by the
        next call here.
        """
        self.wait()
        self._writing = self._writer.submit(job)

    def wait(self) -> None:
        """Wait for the job; raise its error."""
        if self._writing is not None:
            writing = self._writing
            self._writing = None
            writing.result()

    def check(self) -> None:
        """Raise the error of a job that has ended with one; do not wait."""
        if self._writing is not None and self._writing.done():
            self.wait()

    def place(self, kind: str, step: int) -> Path:
        """Return the path of the checkpoint of `step`; `kind` is `step`, `latest` or `best`."""
        return self.checkpoints / f"{kind}-{step:08d}"

    def newest(self, note: Callable[[str], None]) -> Path | None:
        """Return the newest undamaged checkpoint; report damaged ones with `note`.

        Raises:
            CheckpointError: there are checkpoints, and all are damaged.
        """
        checkpoints = checkpoint.resumable_of(self.path)
        for folder in reversed(checkpoints):
            damage = _damage(folder)
            if not damage:
                if folder != checkpoints[-1]:
                    note(f"resuming from {folder}, the newest undamaged checkpoint")
                return folder
            note(f"warning: {damage}")
        if checkpoints:
            raise CheckpointError(
                f"{self.checkpoints}: all checkpoints are damaged; move the directory to start anew"
            )
        return None

    def rewind(self, to: Path | None, step: int) -> None:
        """Rename the (damaged) checkpoints newer than `to`, and drop the metrics after `step`;
        without `to`, all.
        """
        lines: list[str] = []
        path = self.path / METRICS
        if to is not None:
            checkpoints = checkpoint.resumable_of(self.path)
            for folder in checkpoints[checkpoints.index(to) + 1 :]:
                durable.set_aside(folder, "damaged")
            if path.exists():
                lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
        if path.exists():
            durable.write_text(
                path, "".join(f"{line}\n" for line in lines if 0 <= _step_of(line) <= step)
            )

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
        """Make RUN/best a link to the checkpoint, or a copy of it where the file system has no
        links.
        """
        place = self.path / BEST
        if place.exists() and not place.is_symlink() and not _same_run(place, best):
            warn(
                f"{place} is not a checkpoint of this run, so it stays. The best checkpoint is "
                f"{best}"
            )
            return
        try:
            durable.new_link(place, best.relative_to(self.path))
        except OSError:
            checkpoint.link(best, place)

    def repair_best(self, step: int, note: Callable[[str], None]) -> None:
        """Do `keep_best` again, in case a kill interrupted it or the copy is damaged."""
        best, original = self.place("best", step), self.place("step", step)
        damage = _damage(best)
        if damage and _damage(original):
            note(f"warning: the best checkpoint, of step {step:,}, is lost: {damage}")
            return
        if damage and best.exists():
            note(f"warning: {damage} It is copied again from {original}.")
            delete_checkpoint(best)
        self.keep_best(step)

    def delete_old(self, keep: int) -> None:
        """Delete all but the newest `keep` checkpoints of `--save-every`, and `latest-*` once there
        is a newer one.
        """
        earlier = checkpoint.resumable_of(self.path)[:-1]
        latest = [folder for folder in earlier if folder.name.startswith("latest-")]
        for folder in [*checkpoint.checkpoints_of(self.path)[:-keep], *latest]:
            delete_checkpoint(folder)

    def append_metrics(self, record: Mapping[str, Any]) -> None:
        durable.append_line(self.path / METRICS, json_text(record))

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        durable.write_text(self.path / SUMMARY, json_text(summary, indent=2) + "\n")


def delete_checkpoint(folder: Path) -> None:
    """Delete a checkpoint, and its exports that are kept beside it. If files of the user's are in
    it, rename it.
    """
    name = glob.escape(folder.name)
    exports = [record.parent for record in folder.parent.glob(f".{name}.*/{checkpoint.EXPORT}")]
    unfinished = folder.parent.glob(f"..{name}.*.{durable.MARK}*")
    for path in [*exports, *unfinished]:
        durable.delete(path)
    others = sorted(
        path.name
        for path in folder.iterdir()
        if path.name not in checkpoint.FILES and path.name[0] != "."
    )
    if others:
        warn(
            f"{folder}: is not deleted but renamed to {durable.set_aside(folder, 'kept')}: "
            f"{others[0]} is in it"
        )
    else:
        durable.delete(folder)


def read_config(run: Path) -> dict[str, Any]:
    """Return the content of a run's config.json; raise a UsageError if it is missing, or not a
    run's.
    """
    if not (run / CONFIG).exists():
        found = (
            "prepared data, not a run"
            if (run / MANIFEST).exists()
            else f"not a run: it has no {CONFIG}"
        )
        raise UsageError(f"{run}: {found if run.is_dir() else 'no such directory'}")
    content = read_object(
        run / CONFIG, UsageError, "Give the directory that was --out of `nmt train`."
    )
    if "sections" in content:
        raise UsageError(
            f"{run}: a checkpoint, not a run; give the directory that was --out of `nmt train`"
        )
    try:
        origin = content.get("origin")
        texts = [
            content["data"]["path"],
            content["training"]["precision"],
            origin["path"] if origin else "",
        ]
        texts += content["data"].get("paths", [])
        if not all(isinstance(text, str) for text in texts) or not isinstance(
            content["imports"], list
        ):
            raise TypeError("data, training, imports or origin have the wrong type")
    except (KeyError, TypeError) as error:
        raise UsageError(f"{run / CONFIG}: not the configuration of a run: {error}") from error
    return content


def recorded_config(run: Path | None) -> dict[str, Any] | None:
    """Return the content of the config.json of an earlier run, or None if the run is new."""
    return read_config(run) if run is not None and (run / CONFIG).exists() else None


def check_agreement(run: Path, description: Mapping[str, Any]) -> None:
    """Raise UsageError unless the run was started on the same data with the same settings as
    `description`.
    """
    recorded = read_config(run)
    first, data = recorded["data"], description["data"]
    if first.get("fingerprint") != data["fingerprint"]:
        changed = first["path"] == data["path"]
        what = "which has changed since" if changed else f"and {data['path']} holds other data"
        raise UsageError(
            f"{run}: this run was started on {first['path']}, {what}; give its data, or another "
            "--out"
        )
    old = settings_of(recorded, run)
    new = settings_of(json.loads(json.dumps(description)), run)
    selected = {
        name: registry.find(name, value).config for name, value in new.items() if "." not in name
    }
    classes = {"training": extended(TrainingConfig), **selected}
    different = []
    for name in sorted(new):
        section, _, field = name.partition(".")
        before = old.get(name, new[name])
        if field:
            definition = classes[section].__dataclass_fields__[field]
            if definition.metadata.get("may_change"):
                continue
            if name not in old:  # the setting is newer than the run
                before = json.loads(
                    json.dumps(definition.metadata.get("before", definition.default))
                )
        if before != new[name]:
            different.append(f"{flag(name)} was {readable(before)}, now {readable(new[name])}")
    if different:
        what = f"this run was started with other settings: {'; '.join(different)}"
        resume = command_line("train", "--resume", run)
        raise UsageError(f"{run}: {what}. Resume it with `{resume}`, or give another --out")


def settings_of(content: Mapping[str, Any], run: Path) -> dict[str, Any]:
    """Return the settings in the content of a config.json by name, such as `model.d_ff`."""
    return flatten(
        {name: section for name, section in content.items() if name not in ABOUT_RUN}, str(run)
    )


def _step_of(line: str) -> int:
    try:
        step = json.loads(line)["step"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return -1  # an incomplete or damaged line
    return step if isinstance(step, int) else -1


def _same_run(folder: Path, other: Path) -> bool:
    try:
        runs = {checkpoint.read_contents(path).run for path in (folder, other)}
    except CheckpointError:
        return False
    return len(runs) == 1 and checkpoint.FILES.issuperset(path.name for path in folder.iterdir())


def _damage(folder: Path) -> str:
    try:
        checkpoint.verify(folder)
    except CheckpointError as error:
        return str(error)
    return ""
