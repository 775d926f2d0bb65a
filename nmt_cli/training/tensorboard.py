"""The figures of a run's metrics.jsonl for TensorBoard (`nmt train --tensorboard`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nmt_cli.errors import missing_package
from nmt_cli.training.run_directory import METRICS


class TensorBoard:
    """Writes to RUN/tensorboard, at first all lines of metrics.jsonl anew, because a resumed run repeats steps."""

    def __init__(self, run: Path) -> None:
        for old in (run / "tensorboard").glob("events.out.tfevents.*"):
            old.unlink()
        self.writer = summary_writer()(str(run / "tensorboard"))
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


def summary_writer() -> Any:
    """Return the class of PyTorch; raise a UsageError if the package tensorboard is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise missing_package("--tensorboard", error, "tensorboard") from error
    return SummaryWriter
