"""Table 2: the paper's figures beside the figures of the runs here. Markdown on standard output.

table2.py table full|small TARGET "SYSTEM*SEEDS ..." [NOTE]
    the table, in the recipe's directory
table2.py settings RUN AMOUNT [reward]
    settings for nmt train --config: RUN's settings, but AMOUNT long, with a rate that falls to
    zero. `reward`: to go on from RUN with the criterion expected_reward
table2.py items full|small "LIST"
    the systems of --systems as "SYSTEM*SEEDS ...". Without a list, all but MoE at full size, and
    all but the big model at small size

AMOUNT is a number of steps (400), minutes of training at RUN's speed (24m), or a share of RUN's
steps (10%).
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from paper_tables import (
    PAIRS,
    compared,
    known,
    parameters_of,
    read_items,
    runs_of,
    scores_of,
    shown,
    spread,
)
from report import print_table, read_json, read_metrics, user_errors


class System(NamedTuple):
    """A row of Table 2: BLEU and training FLOPs by target language, as printed."""

    title: str
    bleu: dict[str, float]
    flops: dict[str, float]


SYSTEMS = {
    "bytenet": System("ByteNet", {"de": 23.75}, {}),
    "deep_att": System("Deep-Att + PosUnk", {"fr": 39.2}, {"fr": 1.0e20}),
    "gnmt": System("GNMT, before RL", {}, {}),
    "gnmt_rl": System("GNMT + RL", {"de": 24.6, "fr": 39.92}, {"de": 2.3e19, "fr": 1.4e20}),
    "convs2s": System("ConvS2S", {"de": 25.16, "fr": 40.46}, {"de": 9.6e18, "fr": 1.5e20}),
    "moe": System("MoE", {"de": 26.03, "fr": 40.56}, {"de": 2.0e19, "fr": 1.2e20}),
    "base": System("Transformer (base)", {"de": 27.3, "fr": 38.1}, {"de": 3.3e18, "fr": 3.3e18}),
    "big": System("Transformer (big)", {"de": 28.4, "fr": 41.8}, {"de": 2.3e19, "fr": 2.3e19}),
}
ENSEMBLES = {
    "deep_att": System("Deep-Att + PosUnk, ensemble", {"fr": 40.4}, {"fr": 8.0e20}),
    "gnmt_rl": System(
        "GNMT + RL, ensemble", {"de": 26.30, "fr": 41.16}, {"de": 1.8e20, "fr": 1.1e21}
    ),
    "convs2s": System(
        "ConvS2S, ensemble", {"de": 26.36, "fr": 41.29}, {"de": 7.7e19, "fr": 1.2e21}
    ),
}
WARM_UP = 1 / 8  # of the steps of a run with a budget
# Checkpoints of a run with a budget that are averaged, so the least number of its steps.
AVERAGED = 5
# The learning rate of the second stage, GNMT's RL, as a share of the first stage's.
REWARD_RATE = 0.1


def items_of(names: str) -> list[str]:
    """Return the rows of single models: GNMT is followed by GNMT + RL."""
    items = []
    for item in names.split():
        items.append(item)
        if name_of(item) == "gnmt":
            items.append(item.replace("gnmt", "gnmt_rl"))
    return items


def name_of(item: str) -> str:
    return runs_of(item)[0]


def stages_of(run: str) -> list[str]:
    """Return the trainings that made a model, in order."""
    if "gnmt_rl" in run:
        return [run.replace("gnmt_rl", "gnmt"), run]
    return [run]


def total(run: str, figure: str) -> float:
    """Return the sum of a figure, such as the FLOPs, over the trainings that made a model."""
    summaries = [read_json(Path(stage) / "run" / "summary.json") for stage in stages_of(run)]
    return sum(known(summary, figure) for summary in summaries)


def speed_of(run: str, target: str) -> float:
    """Return the sentences a second of nmt translate."""
    log = Path(run) / f"test.{target}.log"
    if not log.exists():
        return math.nan
    speeds = re.findall(r"([\d,.]+) sentences/s", log.read_text(encoding="utf-8"))
    if not speeds:
        return math.nan
    return float(speeds[-1].replace(",", ""))


def cells(
    system: System, target: str, measure: str, runs: list[str], members: list[str]
) -> list[str]:
    """Return a row of cells.

    Args:
        runs: where the outputs are: one for each seed, or the ensemble.
        members: the models of an ensemble, whose output is in `runs`.
    """
    bleu = [known(scores_of(Path(run) / "score.json"), measure) for run in runs]
    paper_bleu, _, difference = compared(known(system.bleu, target), fmean(bleu), ".2f")
    trained = runs
    combined: Callable[[list[float]], float] = fmean
    if members:  # an ensemble costs as much as all its members
        trained = members
        combined = sum
    parameters = fmean(parameters_of(Path(run) / "run") for run in trained)
    steps = fmean(total(run, "steps") for run in trained)
    hours = combined([total(run, "training_hours") for run in trained])
    flops_as_table2 = combined([total(run, "flops_as_table2") for run in trained])
    flops = combined([total(run, "flops") for run in trained])
    speed = fmean(speed_of(run, target) for run in runs)
    return [
        system.title,
        str(len(trained)),
        paper_bleu,
        spread(bleu, ".2f"),
        difference,
        shown(parameters / 1e6, ",.2f"),
        shown(steps, ",.0f"),
        shown(60 * hours, ",.1f"),
        shown(known(system.flops, target), ".1e"),
        shown(flops_as_table2, ".1e"),
        shown(flops, ".1e"),
        shown(speed, ",.1f"),
    ]


HEADER = [
    "system",
    "models",
    "BLEU, paper",
    "BLEU, here",
    "difference",
    "parameters (1e6)",
    "steps",
    "minutes",
    "FLOPs, paper",
    "FLOPs: time x devices x rate",
    "FLOPs, counted",
    "sentences/s",
]


def rows(target: str, measure: str, names: str) -> Iterator[list[str]]:
    """Yield the rows: single models, then the ensembles that Table 2 has."""
    items = items_of(names)
    for item in items:
        yield cells(SYSTEMS[name_of(item)], target, measure, runs_of(item), [])
    for item in items:
        name = name_of(item)
        members = runs_of(item)
        if name in ENSEMBLES and len(members) > 1:
            yield cells(ENSEMBLES[name], target, measure, [f"{name}-ensemble"], members)


def print_table2(scale: str, target: str, names: str, note: str = "") -> None:
    measure = "multi30k" if scale == "small" else PAIRS[target].measure
    print(
        f"Table 2. BLEU as {measure}, beam 4, alpha 0.6. Several models: mean ± standard deviation "
        "over the seeds."
    )
    print(f"{note}\n")
    header = list(HEADER)
    body = list(rows(target, measure, names))
    if scale == "small":  # the order alone can be compared
        for line in (header, *body):
            del line[HEADER.index("difference")]
    print_table(header, body)
    print(
        "\nThe costs of GNMT + RL are of both stages; its samples are not among the FLOPs counted. "
        "The costs of an"
    )
    print("ensemble are of all its members.")


def steps_of(run: Path, amount: str) -> int:
    """Return the steps of an AMOUNT."""
    metrics: list[dict[str, float]] = read_metrics(run)
    first, last = metrics[0], metrics[-1]  # the updates before the first line are slower
    if amount.endswith("%"):
        percent = float(amount.removesuffix("%"))
        return max(AVERAGED, round(last["step"] * percent / 100))
    if amount.endswith("m"):
        minutes = float(amount.removesuffix("m"))
        seconds = last["training_seconds"] - first["training_seconds"]
        seconds_a_step = seconds / (last["step"] - first["step"])
        return max(AVERAGED, round(60 * minutes / seconds_a_step))
    return int(amount)


def peak_of(config: dict[str, Any]) -> float:
    """Return the highest rate of the schedule, which a trial is too short to reach."""
    schedule = config["schedule"]
    if "learning_rate" in schedule:
        return float(schedule["learning_rate"])
    d_model = config["model"]["d_model"]
    return float(schedule["learning_rate_scale"] * (d_model * schedule["warmup_steps"]) ** -0.5)


def settings(run: Path, amount: str, reward: bool = False) -> dict[str, Any]:
    """Return the settings of `run` for AMOUNT, with a line from its highest rate to 0.

    Args:
        reward: with the criterion expected_reward, and a learning rate that suits a trained model.
    """
    config = read_json(run / "config.json")
    steps = steps_of(run, amount)
    peak = peak_of(config)
    warmup = max(1, int(steps * WARM_UP))
    if reward:
        config["criterion"] = {"name": "expected_reward"}
        peak *= REWARD_RATE
    config["schedule"] = {
        "name": "linear_decay",
        "warmup_steps": warmup,
        "learning_rate_scale": peak * (config["model"]["d_model"] * warmup) ** 0.5,
        "decay_steps": steps,
    }
    config["training"] |= {
        "max_steps": steps,
        "save_every": str(max(1, steps // 32)),
        "keep_last": AVERAGED,
        "validate_every": str(max(1, steps // 16)),
        "validation_bleu": True,
        "log_every": max(1, steps // 32),
    }
    return {name: section for name, section in config.items() if name not in ("data", "imports")}


def items(scale: str, words: str) -> str:
    """Return the items of --systems."""
    names = list(SYSTEMS)
    names.remove("gnmt_rl")  # follows gnmt
    if scale == "small":
        names.remove("big")
    defaults = list(names)
    if scale == "full":
        defaults.remove("moe")  # fits into few GPUs
    return read_items("system", names, words or " ".join(defaults))


def main(command: str, *arguments: str) -> None:
    if command == "items":
        print(items(*arguments))
    elif command == "table":
        print_table2(*arguments)
    else:
        run, amount, *reward = arguments
        print(json.dumps(settings(Path(run), amount, bool(reward)), indent=2))


if __name__ == "__main__":
    with user_errors():
        main(*sys.argv[1:])
