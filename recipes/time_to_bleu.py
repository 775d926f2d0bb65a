"""When a training has a BLEU, for recipes/time_to_bleu.sh.

time_to_bleu.py reached RUN BLEU           the exit code is 0 if a validation of the run had so much
time_to_bleu.py table RUN BLEU SECONDS     the figures of MLPerf beside this run's, in Markdown
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from report import print_table, read_metrics

DEVICES = 8
"""MLPerf v0.7, eight A100: minutes, and target tokens a second of one of them."""
MINUTES = 7.84
TOKENS_PER_SECOND = 101_000


def first_with(run: Path, bleu: float) -> dict[str, Any] | None:
    """Return the metrics of the first validation with so much BLEU."""
    if not (run / "metrics.jsonl").exists():
        return None
    for line in read_metrics(run):
        if line.get("validation_bleu-lc", 0.0) >= bleu:
            return line
    return None


def main(command: str, folder: str, bleu: str, seconds: str = "") -> None:
    line = first_with(Path(folder), float(bleu))
    if command == "reached":
        sys.exit(line is None)
    assert line is not None
    devices = round(3600 * line["device_hours"] / line["training_seconds"])
    minutes = int(seconds) / 60
    rate = line["target_tokens"] / line["training_seconds"] / devices
    print_table(
        ["", "MLPerf v0.7, A100", "this run"],
        [
            ["devices", str(DEVICES), str(devices)],
            ["BLEU", "25.0", f"{line['validation_bleu-lc']:.2f}"],
            ["minutes, validation included", f"{MINUTES}", f"{minutes:.2f}"],
            ["device hours", f"{DEVICES * MINUTES / 60:.2f}", f"{devices * minutes / 60:.2f}"],
            ["updates", "", f"{line['step']:,}"],
            ["target tokens", "", f"{line['target_tokens']:,}"],
            ["target tokens/s, a device", f"{TOKENS_PER_SECOND:,}", f"{rate:,.0f}"],
        ],
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
