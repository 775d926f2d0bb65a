"""The figures of a run's metrics.jsonl for TensorBoard (`nmt train --tensorboard`)."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nmt_cli.errors import missing_package
from nmt_cli.files import durable
from nmt_cli.training.run_directory import METRICS, TENSORBOARD


class TensorBoard:
    """Writes to RUN/tensorboard, at first all lines of metrics.jsonl anew, because a resumed run repeats steps.

    Files of other runs may be there: RUN/.tensorboard has the ending of the run's own, which are deleted.
    """

    def __init__(self, run: Path) -> None:
        folder, ending = run / "tensorboard", _ending(run)
        for old in folder.glob(f"events.out.tfevents.*{ending}"):
            durable.discard(old)
        self.writer = summary_writer()(str(folder), filename_suffix=ending)
        if (metrics := run / METRICS).exists():
            for line in metrics.read_text(encoding="utf-8").splitlines():
                self.add(json.loads(line))

    def add(self, record: Mapping[str, Any]) -> None:
        """Write the numbers of a line of metrics as `train/NAME` and `validation/NAME`."""
        for name, value in record.items():
            if isinstance(value, (int, float)) and name != "step":
                short = name.removeprefix("validation_")
                self.writer.add_scalar(f"{'train' if short == name else 'validation'}/{short}", value, record["step"])
        self.writer.flush()


def _ending(run: Path) -> str:
    """Return the recorded ending of the files of `run`, or for the first time a random one, which is recorded.

    A copy of a run whose RUN/tensorboard is a link gets an ending of its own: the files there are the original's.
    """
    record, directory = run / TENSORBOARD, str(run.stat().st_ino)
    durable.check_ours(record)
    known = record.read_text(encoding="utf-8", errors="replace") if record.exists() else ""
    recorded = re.fullmatch(r"(\.nmt-[0-9a-f]{16}) (\d+)", known)
    if recorded and (recorded[2] == directory or not (run / "tensorboard").is_symlink()):
        return recorded[1]
    ending = f".{durable.MARK}{os.urandom(8).hex()}"
    durable.write_text(record, f"{ending} {directory}")
    return ending


def summary_writer() -> Any:
    """Return the class of PyTorch; raise a UsageError if the package tensorboard is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise missing_package("--tensorboard", error, "tensorboard") from error
    return SummaryWriter
