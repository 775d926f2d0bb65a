"""The table of a small task: published scores, the mean of the seeds, their ensemble. Markdown on standard output.

table.py OUT SEEDS MEASURE=PUBLISHED...     in OUT: seed-N.json and ensemble-N.json of `nmt score`, and the runs

A measure is "exact", or "exact, LABEL" for a group of lines.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import fmean

sys.path.append(str(Path(__file__).resolve().parents[1]))
from report import print_table, read_json, read_scores, user_errors


def scores_in(path: Path) -> dict[str, float]:
    found = {}
    for score in read_scores(path):
        found[score["metric"]] = score["score"]
        found |= {f"{score['metric']}, {label}": value for label, value in score["groups"].items()}
    return found


def main(out: Path, seeds: int, published: dict[str, str]) -> None:
    names = [f"seed-{seed}" for seed in range(1, seeds + 1)]
    found = [scores_in(out / f"{name}.json") for name in names]
    ensemble = scores_in(out / f"ensemble-{seeds}.json") if seeds > 1 else {}
    minutes = [60 * read_json(out / name / "run" / "summary.json")["training_hours"] for name in names]
    rows = []
    for measure in found[0]:
        scores = [each[measure] for each in found]
        known = published.get(measure)
        rows.append(
            [
                measure,
                known or "",
                f"{fmean(scores):.2f}",
                f"{min(scores):.2f} to {max(scores):.2f}" if seeds > 1 else "",
                f"{ensemble[measure]:.2f}" if ensemble else "",
                f"{fmean(scores) - float(known):+.2f}" if known else "",
                f"{fmean(minutes):.0f}",
            ]
        )
    print_table(["measure", "published", "mean", "seeds", "ensemble", "difference", "minutes a seed"], rows)


if __name__ == "__main__":
    with user_errors():
        figures = dict(each.partition("=")[::2] for each in sys.argv[3:])
        main(Path(sys.argv[1]), int(sys.argv[2]), {name: value for name, value in figures.items() if value})
