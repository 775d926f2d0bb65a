"""The table of a small task: published scores, the mean of the seeds, their ensemble. Markdown on
standard output.

table.py MODEL... [--ensemble NAME] [--published MEASURE=SCORE...]

MODEL is a folder with the run, and beside it is MODEL.json of `nmt score`. NAME.json is of their
ensemble. A measure is "exact", or "exact, LABEL" for a group of lines.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
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


def main(models: list[Path], ensemble: str | None, published: dict[str, str]) -> None:
    *found, together = [
        scores_in(Path(f"{name}.json")) for name in (*models, ensemble or models[0])
    ]
    minutes = [60 * read_json(model / "run" / "summary.json")["training_hours"] for model in models]
    rows = []
    for measure in found[0]:
        scores = [each[measure] for each in found]
        known = published.get(measure)
        rows.append(
            [
                measure,
                known or "",
                f"{fmean(scores):.2f}",
                f"{min(scores):.2f} to {max(scores):.2f}" if len(models) > 1 else "",
                f"{together[measure]:.2f}" if ensemble else "",
                f"{fmean(scores) - float(known):+.2f}" if known else "",
                f"{fmean(minutes):.1f}",
            ]
        )
    print_table(
        ["measure", "published", "mean", "seeds", "ensemble", "mean - published", "minutes a seed"],
        rows,
    )


if __name__ == "__main__":
    parser = ArgumentParser(usage=(__doc__ or "").partition("\n\n")[2])
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--ensemble")
    parser.add_argument("--published", nargs="*", default=[])
    given = parser.parse_args()
    with user_errors():
        figures = dict(each.partition("=")[::2] for each in given.published)
        main(
            given.models, given.ensemble, {name: value for name, value in figures.items() if value}
        )
