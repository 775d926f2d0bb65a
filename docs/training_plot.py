"""Draw the learning curve of a run: docs/training_plot.py RUN TITLE OUT.svg (needs matplotlib)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt


def main(run: str, title: str, out: str) -> None:
    """Plot training and validation perplexity against minutes of training, from RUN/metrics.jsonl."""
    lines = Path(run, "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    minutes = [record["training_seconds"] / 60 for record in records]
    figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
    axes.plot(minutes, [record["perplexity"] for record in records], label="training", linewidth=1)
    valid = [(m, r["validation_perplexity"]) for m, r in zip(minutes, records, strict=True) if "validation_perplexity" in r]
    axes.plot(*zip(*valid, strict=True), label="validation", linewidth=2)
    axes.set(title=title, xlabel="minutes of training", ylabel="perplexity (per subword)", yscale="log")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(out)


if __name__ == "__main__":
    main(*sys.argv[1:])
