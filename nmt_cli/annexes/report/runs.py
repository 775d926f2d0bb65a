"""The files of a run, as a report shows them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt_cli.config import ABOUT_RUN, flatten
from nmt_cli.data.corpus import read_manifest
from nmt_cli.errors import DataError, UsageError, shown
from nmt_cli.files.text import check_regular, read_object, weighted
from nmt_cli.training.reporter import duration, readable
from nmt_cli.training.run_directory import METRICS, SUMMARY, read_config
from nmt_cli.training.state import is_error

CURVES = ("loss", "nll", "perplexity", "lr", "target_tokens_per_second", "gradient_norm")
"""Figures of training whose curves are shown. All figures of validation are shown, too."""

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
"""Figures of a run, and what a report calls them. The best validation's figures are shown, too."""

RESUME = "Resume the run to have it mended."

POINTS = 2000
"""Lines of metrics, at most, in the curves of a run, beside the lines with a validation."""

MOST_MEASURES = 20
"""Figures of validation with a curve, at most. Each line of a stranger's file may have another."""

LARGEST_METRICS = 1 << 28  # bytes
REQUIRED = {"step", "training_seconds", "target_tokens"}  # in each line of metrics


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

    def for_page(self) -> dict[str, Any]:
        """Return what a page shows of the run. Errors are as of `as_object`."""
        with self._damage_explained():
            settings = {name: readable(value) for name, value in self.settings().items()}
            return _as_json(
                {
                    "name": self.name,
                    "figures": self.readable_figures(),
                    "settings": settings,
                    "curves": self.curves(),
                    "prepared": self.prepared(),
                }
            )

    def as_object(self) -> dict[str, Any]:
        """Return the figures and the settings for other programs.

        Raises:
            UsageError: a file of the run is damaged.
        """
        with self._damage_explained():
            content = {"name": self.name, "figures": self.figures(), "settings": self.settings()}
            return _as_json(content)

    @contextmanager
    def _damage_explained(self) -> Iterator[None]:
        try:
            yield
        except (
            AttributeError,
            LookupError,
            OverflowError,
            RecursionError,
            TypeError,
            ValueError,
        ) as error:
            raise UsageError(
                f"{self.path}: a file of the run is damaged: {shown(error)}. {RESUME}"
            ) from error

    def figures(self) -> dict[str, Any]:
        """Return the figures of the run by name, from its summary if it has ended."""
        last = self.metrics[-1]
        values = {
            **last,
            "steps": last["step"],
            "skipped_updates": last.get("skipped"),
            "parameters": self.config.get("environment", {}).get("parameters"),
            "peak_learning_rate": max(line.get("lr") or 0.0 for line in self.metrics),
            **self.best(),
            **self.summary,
        }
        of_best = [name for name in values if name.startswith("best_validation_")]
        figures: dict[str, Any] = {"ended": bool(self.summary)}
        for name in (*FIGURES, "best_step", *of_best):
            if values.get(name) not in (None, math.inf):
                figures[name] = values[name]
        return figures

    def best(self) -> dict[str, Any]:
        """Return the figures of the best validation in the metrics, as a summary names them."""
        name, *_ = self.config["training"]["best_by"].split(",")
        measure = f"validation_{name}"
        lines = [line for line in self.metrics if line.get(measure) is not None]
        if not lines:
            return {}
        choose = min if is_error(name) else max
        best = choose(lines, key=lambda line: line[measure])
        validation = [name for name in best if name.startswith("validation_")]
        return {**{f"best_{name}": best[name] for name in validation}, "best_step": best["step"]}

    def readable_figures(self) -> dict[str, str]:
        """Return the figures of the run, as a page names them."""
        figures = self.figures()
        texts = {FIGURES[name]: readable(figures[name]) for name in FIGURES if name in figures}
        texts["training time"] = duration(self.metrics[-1]["training_seconds"])
        if not self.summary:
            texts["training time"] += ", not ended"
        for name, value in figures.items():
            if name.startswith("best_validation_"):
                update = f"{figures['best_step']:,}"
                texts[name.replace("_", " ")] = f"{readable(value)} at update {update}"
        for name, value in self.config.get("environment", {}).items():
            texts[name] = readable(value)
        return texts

    def settings(self) -> dict[str, Any]:
        """Return all settings by name, such as `model.d_ff`."""
        sections = {name: section for name, section in self.config.items() if name not in ABOUT_RUN}
        origin = self.config.get("origin") or {}
        about = {"data": self.config["data"]["path"], "init_from": origin.get("path", "none")}
        return about | flatten(sections, self.name)

    def curves(self) -> dict[str, list[float | None]]:
        """Return columns by name: step, hours, target tokens, and figures of these steps."""
        interval = -(-len(self.metrics) // POINTS)
        lines = []
        for i, line in enumerate(self.metrics):
            # Validations are rare, and each of them is a point.
            if i % interval == 0 or "validation_loss" in line:
                lines.append(line)
        validated: set[str] = set()
        for line in lines:
            validated.update(name for name in line if name.startswith("validation_"))
        columns = {
            "step": [line["step"] for line in lines],
            "hours": [rounded(line["training_seconds"] / 3600) for line in lines],
            "tokens": [line["target_tokens"] for line in lines],
        }
        for name in (*CURVES, *sorted(validated)[:MOST_MEASURES]):
            if name in validated or any(line.get(name) is not None for line in lines):
                columns[name] = [rounded(line.get(name)) for line in lines]
        return columns

    def prepared(self) -> dict[str, dict[str, Any]]:
        """Return what `nmt prepare` read, dropped and kept, by data and split.

        Data that are missing or damaged are left out.
        """
        all_counts: dict[str, dict[str, Any]] = {}
        for text in self.config["data"].get("paths", [self.config["data"]["path"]]):
            path, _ = weighted(text)
            with suppress(DataError, AttributeError, LookupError, TypeError):
                splits = read_manifest(Path(path))["splits"]
                all_counts |= {f"{path}, {split}": counts(splits[split]) for split in splits}
        return all_counts


def counts(split: Mapping[str, Any]) -> dict[str, Any]:
    """Return the counts of a split's entry in the manifest, as a page names them."""
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
        DataError: its metrics are no regular file.
    """
    config = read_config(path)
    metrics = metrics_of(path / METRICS)
    if not metrics:
        raise UsageError(f"{path}: nothing to report: the run has logged nothing yet")
    summary: Mapping[str, Any] = {}
    if (path / SUMMARY).exists():
        summary = read_object(path / SUMMARY, UsageError, RESUME)
    if summary.get("steps") != metrics[-1]["step"]:
        summary = {}  # of an end before the run was resumed
    return RunFiles(path, config, metrics, summary)


def metrics_of(path: Path) -> list[dict[str, Any]]:
    """Return the complete lines. A run that goes on may be writing the last one."""
    if not path.exists():
        return []
    check_regular(path, LARGEST_METRICS)
    metrics = []
    try:
        for text in path.read_bytes().split(b"\n")[:-1]:
            # NaN and Infinity, which a page could not have, become None.
            line = json.loads(text, parse_constant=lambda name: None)
            if not line.keys() >= REQUIRED:
                raise ValueError("a line without step, training_seconds or target_tokens")
            metrics.append(line)
    except (AttributeError, RecursionError, ValueError) as error:
        raise UsageError(f"{path}: damaged: {error}. {RESUME}") from error
    return metrics


def rounded(value: Any) -> float | None:
    """Return a number with five digits, or None for anything else, and what JSON lacks."""
    if isinstance(value, (int, float)) and math.isfinite(value):
        return float(f"{value:.5g}")
    return None


def _as_json(content: dict[str, Any]) -> dict[str, Any]:
    """Return the content. Raise ValueError or TypeError if JSON lacks a value of it."""
    json.dumps(content, allow_nan=False)
    return content
