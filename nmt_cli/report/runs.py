"""The files of a run, as a report shows them."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt_cli.config import ABOUT_RUN, flatten
from nmt_cli.data.corpus import read_manifest, weighted
from nmt_cli.errors import DataError, UsageError, shown
from nmt_cli.files.text import read_object
from nmt_cli.training.reporter import duration, readable
from nmt_cli.training.run_directory import METRICS, SUMMARY, read_config

CURVES = ("loss", "nll", "perplexity", "lr", "target_tokens_per_second", "gradient_norm")
"""Figures of training whose curves are shown; all figures of validation are, too."""

FIGURES = {
    "steps": "updates",
    "parameters": "parameters",
    "training_seconds": "training time",
    "target_tokens": "target tokens",
    "target_tokens_per_second": "target tokens per second",
    "peak_learning_rate": "peak of the learning rate",
    "skipped_updates": "skipped updates",
    "flops": "FLOPs, counted",
    "flops_as_table2": "FLOPs, as Table 2 estimates them",
    "model_flop_utilisation": "model-FLOP utilisation",
    "device_hours": "device hours",
    "origin_of_these_rates": "origin of the rates",
}
"""Figures of a run, and what a report calls them. Those of a run's best validation are shown, too."""


RESUME = "Resume the run to have it mended."

POINTS = 2000
"""Lines of metrics, at most, in the curves of a run, and those with a validation."""


@dataclass(frozen=True)
class RunFiles:
    """What a run's directory has."""

    path: Path
    config: Mapping[str, Any]
    metrics: list[dict[str, Any]]  # the lines of metrics.jsonl
    summary: Mapping[str, Any]  # empty until the run has ended

    @property
    def name(self) -> str:
        return str(self.path)

    def shown(self) -> dict[str, Any]:
        """Return what a page shows of the run.

        Raises:
            UsageError: a file of the run is damaged.
        """
        try:
            parts = {part.__name__: part() for part in (self.figures, self.settings, self.curves, self.prepared)}
        except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
            raise UsageError(f"{self.path}: a file of the run is damaged: {shown(error)}. {RESUME}") from error
        return {"name": self.name, **parts}

    def figures(self) -> dict[str, str]:
        """Return the figures of the run by name, readable: from its summary, or from its last line of metrics."""
        last = self.metrics[-1]
        values = {**last, "steps": last["step"], "skipped_updates": last.get("skipped"), **self.summary}
        shown = {FIGURES[name]: readable(values[name]) for name in FIGURES if values.get(name) is not None}
        shown["training time"] = duration(last["training_seconds"]) + ("" if self.summary else ", not ended")
        for name in self.summary:
            if name.startswith("best_validation_") and self.summary[name] is not None:
                label = name.replace("_", " ")
                shown[label] = f"{readable(self.summary[name])} at update {self.summary['best_step']:,}"
        return shown | {name: str(value) for name, value in self.config.get("environment", {}).items()}

    def settings(self) -> dict[str, str]:
        """Return all settings by name, such as `model.d_ff`, readable."""
        sections = {name: section for name, section in self.config.items() if name not in ABOUT_RUN}
        origin = self.config.get("origin") or {}
        about = {"data": self.config["data"]["path"], "init_from": origin.get("path", "none")}
        return about | {name: readable(value) for name, value in flatten(sections, self.name).items()}

    def curves(self) -> dict[str, list[float | None]]:
        """Return columns by name: step, hours, tokens (of the target), and what was measured there."""
        every = -(-len(self.metrics) // POINTS)
        lines = [line for i, line in enumerate(self.metrics) if i % every == 0 or "validation_loss" in line]
        names = [name for name in CURVES if any(line.get(name) is not None for line in lines)]
        validated = {name for line in lines for name in line if name.startswith("validation_")}
        columns = {name: [rounded(line.get(name)) for line in lines] for name in [*names, *sorted(validated)]}
        return {
            "step": [line["step"] for line in lines],
            "hours": [rounded(line["training_seconds"] / 3600) for line in lines],
            "tokens": [line["target_tokens"] for line in lines],
            **columns,
        }

    def prepared(self) -> dict[str, dict[str, Any]]:
        """Return what `nmt prepare` read, dropped and kept, by data and split; nothing of data that are missing."""
        found: dict[str, dict[str, Any]] = {}
        for text in self.config["data"].get("paths", [self.config["data"]["path"]]):
            path, _ = weighted(text)
            with contextlib.suppress(DataError, AttributeError, LookupError, TypeError):  # missing, or damaged
                splits = read_manifest(Path(path))["splits"]
                found |= {f"{path}, {split}": counts(about) for split, about in splits.items()}
        return found


def counts(split: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "read": split["read"],
        "dropped": split.get("dropped", {}),
        "kept": split["sentences"],
        "source tokens": split["source"]["tokens"],
        "target tokens": split["target"]["tokens"],
        "unknown": split["source"].get("unknown", 0) + split["target"].get("unknown", 0),
    }


def read_run(path: Path) -> RunFiles:
    """Return what the directory of a run has.

    Raises:
        UsageError: it is not a run's, nothing has been logged yet, or a file is damaged.
    """
    config = read_config(path)
    metrics = metrics_of(path / METRICS)
    if not metrics:
        raise UsageError(f"{path}: nothing to report: the run has logged nothing yet")
    summary = read_object(path / SUMMARY, UsageError, RESUME) if (path / SUMMARY).exists() else {}
    goes_on = summary.get("steps") != metrics[-1]["step"]  # after its end it was resumed
    return RunFiles(path, config, metrics, {} if goes_on else summary)


def metrics_of(path: Path) -> list[dict[str, Any]]:
    """Return the complete lines; a run that goes on may be writing the last one."""
    try:
        lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
        metrics = [json.loads(line) for line in lines]
        if not all({"step", "training_seconds", "target_tokens"} <= line.keys() for line in metrics):
            raise ValueError("a line without step, training_seconds or target_tokens")
    except (AttributeError, ValueError) as error:
        raise UsageError(f"{path}: damaged: {error}. {RESUME}") from error
    return metrics


def rounded(value: Any) -> float | None:
    """Return a number with five digits. JSON has no other than finite ones."""
    return float(f"{value:.5g}") if isinstance(value, (int, float)) and math.isfinite(value) else None
