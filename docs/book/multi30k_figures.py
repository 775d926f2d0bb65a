"""Draw the figures of chapter 10 from a model that was trained on Multi30k to the end.

    paste train.en train.de | sed 's/$/\t2de/' > train.tsv    # and val.tsv; 2de is a tag: to German
    nmt prepare --train train.tsv --valid val.tsv --tags 3 --vocab-size 8000 --out OUT/data
    nmt train OUT/data --out OUT/run --preset multi30k --dropout 0.2 \\
        --schedule linear_decay --warmup-steps 600 --learning-rate-scale 0.8 --seed 1 \\
        --max-steps 3100 --decay-steps 3100 --save-every 103
    nmt average OUT/run --last 5 --out OUT/averaged
    python docs/book/multi30k_figures.py OUT

The figures are in the repository, because the training takes half an hour.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import book  # the look of the plots
import matplotlib.pyplot as plt
import torch

from nmt_cli.decoding.beam_search import beam_search
from nmt_cli.interfaces import BOS, EOS
from nmt_cli.weights import load_model

HERE = Path(__file__).resolve().parent
SENTENCE = "<2de> Two young girls in red dresses are feeding a big brown dog."  # not from the data


def main(out: Path) -> None:
    """Write two figures beside this file."""
    metrics = [
        json.loads(line) for line in (out / "run" / "metrics.jsonl").read_text().splitlines()
    ]
    save(learning_curve(metrics), "multi30k-curve")
    save(attention(out / "averaged"), "multi30k-attention")


def save(figure: Any, name: str) -> None:
    figure.savefig(HERE / f"{name}.svg", metadata={"Date": None}, bbox_inches="tight")
    print(f"{name}.svg")


def learning_curve(metrics: list[dict[str, Any]]) -> Any:
    """Perplexity on the training and the validation text, and the learning rate."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
    for key, label in {"perplexity": "training", "validation_perplexity": "validation"}.items():
        points = [(each["step"], each[key]) for each in metrics if key in each]
        left.plot(*zip(*points, strict=True), label=label)
    left.set(yscale="log", xlabel="step", ylabel="perplexity")
    left.legend()
    rates = [(each["step"], each["lr"]) for each in metrics if "lr" in each]
    right.plot(*zip(*rates, strict=True))
    right.set(xlabel="step", ylabel="learning rate")
    return figure


def attention(checkpoint: Path) -> Any:
    """Cross-attention of the layer before the last, the mean of its heads."""
    model, task = load_model(checkpoint)
    model.eval()
    source = torch.tensor([[*task.encode_source(SENTENCE), EOS]])
    (best,) = beam_search(model.decodable("float32"), source, [60])
    target = best[0].tokens
    weights = model.attention_weights(source, torch.tensor([[BOS, *target]]))
    columns = [*task.source_tokens(source[0, :-1].tolist()), "END"]
    figure, axes = plt.subplots(figsize=(6, 5), layout="constrained")
    book.heat_map(
        axes, weights["cross"][0, -2].mean(0), [*task.target_tokens(target), "END"], columns
    )
    print(task.decode_target(target, SENTENCE))
    return figure


if __name__ == "__main__":
    main(Path(sys.argv[1]))
