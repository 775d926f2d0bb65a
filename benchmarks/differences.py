"""The differences of models to a base model, here and in a paper, drawn from a file; recipes/table3.sh makes both.

    python -m benchmarks.differences DIFFERENCES.json FIGURE.svg

DIFFERENCES.json has, by measure and by row, the paper's difference and a list of those of each seed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks import figures
from benchmarks.report import save_figure


def main(differences: str, figure: str) -> None:
    drawn = figures.differences(json.loads(Path(differences).read_text(encoding="utf-8")))
    save_figure(drawn, Path(figure))


if __name__ == "__main__":
    main(*sys.argv[1:])
