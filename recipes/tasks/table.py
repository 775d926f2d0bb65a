"""The table of a small task: published scores, the mean of the seeds, their ensemble, in Markdown.

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

COLUMNS = [
    "measure",
    "published",
    "mean",
    "seeds",
    "ensemble",
    "mean - published",
    "minutes a seed",
]


def scores_in(path: Path) -> dict[str, float]:
    scores = {}
    for score in read_scores(path):
        metric = score["metric"]
        scores[metric] = score["score"]
        for label, value in score["groups"].items():
            scores[f"{metric}, {label}"] = value
    return scores


def main(models: list[Path], ensemble: str | None, published: dict[str, str]) -> None:
    scores_of_models = [scores_in(Path(f"{model}.json")) for model in models]
    scores_of_ensemble = {}
    if ensemble is not None:
        scores_of_ensemble = scores_in(Path(f"{ensemble}.json"))
    summaries = [read_json(model / "run" / "summary.json") for model in models]
    minutes = fmean(60 * summary["training_hours"] for summary in summaries)
    rows = []
    for measure in scores_of_models[0]:
        scores = [model_scores[measure] for model_scores in scores_of_models]
        mean = fmean(scores)
        row = dict.fromkeys(COLUMNS, "")
        row["measure"] = measure
        row["mean"] = f"{mean:.2f}"
        row["minutes a seed"] = f"{minutes:.1f}"
        if len(models) > 1:
            row["seeds"] = f"{min(scores):.2f} to {max(scores):.2f}"
        if ensemble is not None:
            row["ensemble"] = f"{scores_of_ensemble[measure]:.2f}"
        if measure in published:
            row["published"] = published[measure]
            row["mean - published"] = f"{mean - float(published[measure]):+.2f}"
        rows.append(list(row.values()))
    print_table(COLUMNS, rows)


if __name__ == "__main__":
    parser = ArgumentParser(usage=(__doc__ or "").partition("\n\n")[2])
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--ensemble")
    parser.add_argument("--published", nargs="*", default=[])
    arguments = parser.parse_args()
    published = {}
    for figure in arguments.published:
        measure, _, score = figure.partition("=")
        if score:
            published[measure] = score
    with user_errors():
        main(arguments.models, arguments.ensemble or None, published)
