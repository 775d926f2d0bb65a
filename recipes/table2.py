"""Table 2: the paper's figures beside those of the runs here. Markdown on standard output.

table2.py table full|small TARGET "SYSTEM*SEEDS ..." [NOTE]   the table, in the recipe's directory
table2.py curves "SYSTEM*SEEDS ..."     learning curves for benchmarks/learning.py: dev BLEU against minutes of training
table2.py settings RUN AMOUNT [reward]  settings for nmt train --config: those of RUN, but AMOUNT long, with a rate that
                                        falls to zero; `reward`: to go on from RUN with the criterion expected_reward
table2.py items full|small "LIST" SEEDS  the systems of --systems as "SYSTEM*SEEDS ..."; without a list, all but MoE at
                                        full size, and all but the big model at small size

AMOUNT is a number of steps (400), minutes of training at RUN's speed (24m), or a share of RUN's steps (10%).
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from paper_tables import PAIRS, compared, mean, parameters_of, print_table, read_items, runs_of, shown, spread
from report import read_json, read_metrics, read_scores

from nmt_cli.errors import UsageError


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
    "gnmt_rl": System("GNMT + RL, ensemble", {"de": 26.30, "fr": 41.16}, {"de": 1.8e20, "fr": 1.1e21}),
    "convs2s": System("ConvS2S, ensemble", {"de": 26.36, "fr": 41.29}, {"de": 7.7e19, "fr": 1.2e21}),
}
WARM_UP = 1 / 8
"""Of the steps of a run with a budget."""
AVERAGED = 5
"""Checkpoints of a run with a budget that are averaged, so the least number of its steps."""
REWARD_RATE = 0.1
"""The learning rate of the second stage, GNMT's RL, as a share of the first one's."""


def items_of(names: str) -> list[str]:
    """Return the rows of single models: GNMT is followed by GNMT + RL."""
    items = []
    for item in names.split():
        items += [item, item.replace("gnmt", "gnmt_rl")] if name_of(item) == "gnmt" else [item]
    return items


def name_of(item: str) -> str:
    return runs_of(item)[0]


def stages_of(run: str) -> list[str]:
    """Return the trainings that made a model, in order."""
    return [run.replace("gnmt_rl", "gnmt"), run] if "gnmt_rl" in run else [run]


def total(run: str, figure: str) -> float | None:
    """Return a figure of the summary, such as the FLOPs, added up over the trainings that made a model."""
    values = [read_json(Path(stage) / "run" / "summary.json").get(figure) for stage in stages_of(run)]
    return None if None in values else sum(values)


def added(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def bleu_of(run: str, measure: str) -> float | None:
    scores = {score["metric"]: score["score"] for score in read_scores(Path(run) / "score.json")}
    return scores.get(measure)


def speed_of(run: str, target: str) -> float | None:
    """Return the sentences a second of nmt translate."""
    log = Path(run) / f"test.{target}.log"
    found = re.findall(r"([\d,.]+) sentences/s", log.read_text(encoding="utf-8")) if log.exists() else []
    return float(found[-1].replace(",", "")) if found else None


def cells(system: System, target: str, measure: str, runs: list[str], members: list[str]) -> list[str]:
    """Return a row of cells.

    Args:
        runs: where the outputs are: one for each seed, or the ensemble.
        members: the models that were trained for one output, if that is of an ensemble.
    """
    bleu = [bleu_of(run, measure) for run in runs]
    speeds = [speed_of(run, target) for run in runs]

    def cost(figure: str) -> float | None:
        return added([total(run, figure) for run in members]) if members else mean([total(run, figure) for run in runs])

    trained = members or runs
    parameters = mean([parameters_of(Path(run) / "run") for run in trained])
    hours = cost("training_hours")
    known, _, difference = compared(system.bleu.get(target), mean(bleu), ".2f")
    return [
        system.title,
        str(len(trained)),
        known,
        spread(bleu, ".2f"),
        difference,
        shown(parameters and parameters / 1e6, ",.2f"),
        shown(mean([total(run, "steps") for run in trained]), ",.0f"),
        shown(hours and hours * 60, ",.1f"),
        shown(system.flops.get(target), ".1e"),
        shown(cost("flops_as_table2"), ".1e"),
        shown(cost("flops"), ".1e"),
        shown(mean(speeds), ",.1f"),
    ]


HEADER = [
    *("system", "models", "BLEU, paper", "BLEU, here", "difference", "parameters (1e6)", "steps", "minutes"),
    *("FLOPs, paper", "FLOPs: time x devices x rate", "FLOPs, counted", "sentences/s"),
]


def rows(target: str, measure: str, names: str) -> Iterator[list[str]]:
    """Yield the rows: single models, then the ensembles that Table 2 has."""
    items = items_of(names)
    for item in items:
        yield cells(SYSTEMS[name_of(item)], target, measure, runs_of(item), [])
    for item in items:
        name, members = name_of(item), runs_of(item)
        if name in ENSEMBLES and len(members) > 1:
            yield cells(ENSEMBLES[name], target, measure, [f"{name}-ensemble"], members)


def print_table2(scale: str, target: str, names: str, note: str = "") -> None:
    pair = PAIRS["en", target]
    measure = "multi30k" if scale == "small" else pair.measure
    print(f"Table 2. BLEU as {measure}, beam 4, alpha 0.6. Several models: mean ± standard deviation over the seeds.")
    print(f"{note}\n" if note else "")
    body = list(rows(target, measure, names))
    if scale == "small":  # nothing is to be compared but the order
        drop = HEADER.index("difference")
        print_table([*HEADER[:drop], *HEADER[drop + 1 :]], [[*row[:drop], *row[drop + 1 :]] for row in body])
    else:
        print_table(HEADER, body)
    print("\nThe costs of GNMT + RL are those of both stages; its samples are not among the FLOPs counted. The costs")
    print("of an ensemble are those of all its members.")


def curve(run: str) -> list[list[float]]:
    """Return the minutes of training and the dev BLEU of a model's validations, over all trainings that made it."""
    points, before = [], 0.0
    for stage in stages_of(run):
        metrics = read_metrics(Path(stage) / "run")
        for record in metrics:
            if record.get("validation_bleu") is not None:
                points.append([(before + record["training_seconds"]) / 60, record["validation_bleu"]])
        before += metrics[-1]["training_seconds"]
    return points


def curves(names: str) -> dict[str, list[list[list[float]]]]:
    """Return the learning curves of each system, one for each seed."""
    items = [item for item in items_of(names) if name_of(item) != "gnmt"]
    return {SYSTEMS[name_of(item)].title: [curve(run) for run in runs_of(item)] for item in items}


def steps_of(run: Path, amount: str) -> int:
    """Return the steps of an AMOUNT; the speed is that of all updates after the run's first line of metrics."""
    metrics = read_metrics(run)
    last: dict[str, float] = metrics[-1]
    first: dict[str, float] = metrics[0]
    if amount.endswith("%"):
        return max(AVERAGED, round(last["step"] * float(amount[:-1]) / 100))
    if not amount.endswith("m"):
        return int(amount)
    if last["step"] == first["step"]:
        first = {"step": 0, "training_seconds": 0.0}
    seconds = (last["training_seconds"] - first["training_seconds"]) / (last["step"] - first["step"])
    return max(AVERAGED, round(60 * float(amount[:-1]) / seconds))


def settings(run: Path, amount: str, reward: bool = False) -> dict[str, Any]:
    """Return the settings of `run`, for AMOUNT, with its highest learning rate, from which a straight line falls to 0.

    Args:
        reward: with the criterion expected_reward, and a learning rate that suits a trained model.
    """
    config, summary, steps = read_json(run / "config.json"), read_json(run / "summary.json"), steps_of(run, amount)
    peak = summary.get("peak_learning_rate") or max(record["lr"] for record in read_metrics(run))
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


def items(scale: str, words: str, seeds: str) -> str:
    """Return the items of --systems. Without any, MoE needs --systems at full size, as it fits into few GPUs."""
    known = [name for name in SYSTEMS if name != "gnmt_rl" and (scale, name) != ("small", "big")]
    defaults = " ".join(name for name in known if (scale, name) != ("full", "moe"))
    return read_items("system", known, words or defaults, seeds)


def main() -> int:
    command, *arguments = sys.argv[1:]
    if command == "items":
        try:
            print(items(*arguments))
        except UsageError as error:
            print(f"error: {error}", file=sys.stderr)
            return error.exit_code
    elif command == "table":
        print_table2(*arguments)
    elif command == "curves":
        print(json.dumps(curves(*arguments)))
    else:
        run, amount, *reward = arguments
        print(json.dumps(settings(Path(run), amount, bool(reward)), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
