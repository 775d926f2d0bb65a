"""The figures of a run's metrics.jsonl for TensorBoard (`nmt train --tensorboard`)."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmt_cli.errors import missing_package
from nmt_cli.files import durable
from nmt_cli.registry import option, register
from nmt_cli.training.observers import Observer

if TYPE_CHECKING:
    from nmt_cli.training.run import Run

RECORD = ".tensorboard"  # in the run. It has the ending of the names of its event files


@dataclass(frozen=True)
class TensorBoardConfig:
    tensorboard: bool = option(False, "Write the metrics to RUN/tensorboard, too.", may_change=True)


@register("observer", "tensorboard", TensorBoardConfig)
class TensorBoard(Observer):
    """Writes the metrics to RUN/tensorboard.

    At first it deletes the run's files and writes all lines of metrics.jsonl anew, because a
    resumed run repeats steps. Files of other runs may be there. RUN/.tensorboard has the ending of
    the run's files.
    """

    def __init__(self, config: TensorBoardConfig, run: Run) -> None:
        super().__init__(config, run)
        durable.check_ours(run.directory.path / RECORD)
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise missing_package("--tensorboard", error, "tensorboard") from error
        self.writer_class = SummaryWriter

    def started(self) -> None:
        if not self.run.world.is_main:
            return
        run = self.run.directory.path
        folder, ending = run / "tensorboard", _ending(run)
        for old in folder.glob(f"events.out.tfevents.*{ending}"):
            durable.discard(old)
        self.writer = self.writer_class(str(folder), filename_suffix=ending)
        metrics = run / "metrics.jsonl"
        if metrics.exists():
            for line in metrics.read_text(encoding="utf-8").splitlines():
                self.logged(json.loads(line))

    def logged(self, record: Mapping[str, Any]) -> None:
        """Write the numbers of a line of metrics as `train/NAME` and `validation/NAME`."""
        for name, value in record.items():
            if isinstance(value, (int, float)) and name != "step":
                short = name.removeprefix("validation_")
                section = "train" if short == name else "validation"
                self.writer.add_scalar(f"{section}/{short}", value, record["step"])
        self.writer.flush()


def _ending(run: Path) -> str:
    """Return the recorded ending of a run's files. The first time, record a random one.

    A copy of a run whose RUN/tensorboard is a link gets another ending: the files there are the
    original's.
    """
    record = run / RECORD
    directory = str(run.stat().st_ino)  # another one for a copy
    known = ""
    if record.exists():
        known = record.read_text(encoding="utf-8", errors="replace")
    recorded = re.fullmatch(r"(\.nmt-[0-9a-f]{16}) (\d+)", known)
    if recorded and (recorded[2] == directory or not (run / "tensorboard").is_symlink()):
        return recorded[1]
    ending = f".{durable.MARK}{os.urandom(8).hex()}"
    durable.write_text(record, f"{ending} {directory}")
    return ending
