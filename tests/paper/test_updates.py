"""Updates of `nmt train` beside plain PyTorch (sections 5.1, 5.3 and 5.4)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

from nmt_cli import checkpoint, registry
from nmt_cli.data.corpus import Corpus
from nmt_cli.interfaces import BOS, EOS, PAD
from nmt_cli.weights import assign_weights, build_model, load_weights

D_MODEL, WARMUP, SCALE, SMOOTHING = 16, 2, 0.1, 0.2
FLAGS = f"""
    --num-layers 1 --d-model {D_MODEL} --d-ff 24 --num-heads 2
    --dropout 0 --label-smoothing {SMOOTHING}
    --warmup-steps {WARMUP} --learning-rate-scale {SCALE} --batch-tokens 300 --micro-batches 2
    --device cpu --precision float32 --save-every 1 --log-every 1
""".split()
PAIRS = [
    "seven\tsieben",
    "eighty\tachtzig",
    "twenty one\teinundzwanzig",
    "two hundred and sixty six thousand\tlauter Zahlen",
]
"""Of different lengths, and so micro-batches of different sizes."""

OPTIMIZERS: dict[str, tuple[tuple[object, ...], Callable[..., torch.optim.Optimizer], float]] = {
    # A large epsilon, because without it Adam divides the scale of the gradient, and with it an
    # error, away.
    "adam": (
        ("--optimizer", "adam", "--epsilon", 0.001),
        lambda weights: torch.optim.Adam(weights, betas=(0.9, 0.98), eps=0.001),
        0.0,
    ),
    "sgd": (
        ("--optimizer", "sgd", "--momentum", 0.5, "--no-nesterov", "--clip-norm", 0.3),
        lambda weights: torch.optim.SGD(weights, lr=1.0, momentum=0.5),
        0.3,
    ),
}


@pytest.fixture
def data(nmt: Callable[..., tuple[int, str, str]], tmp_path: Path) -> Path:
    """A corpus of one update: each step is an epoch."""
    for side, language in enumerate(("en", "de")):
        (tmp_path / f"train.{language}").write_text(
            "".join(pair.split("\t")[side] + "\n" for pair in PAIRS)
        )
    prepared = (
        "--train",
        tmp_path / "train",
        *"--source-lang en --target-lang de --vocab-size".split(),
        40,
    )
    code, _, err = nmt("prepare", *prepared, "--out", tmp_path / "data")
    assert code == 0, err
    return tmp_path / "data"


def padded(rows: list[list[int]]) -> torch.Tensor:
    return pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_three_updates_are_those_of_plain_pytorch(
    optimizer: str, nmt: Callable[..., tuple[int, str, str]], data: Path, tmp_path: Path
) -> None:
    flags, make, clip_norm = OPTIMIZERS[optimizer]
    for run, more in (
        ("start", ("--max-steps", 1, "--learning-rate-scale", 0)),
        ("run", ("--max-steps", 3)),
    ):
        code, _, err = nmt("train", data, "--out", tmp_path / run, *FLAGS, *flags, *more)
        assert code == 0, err

    def trained(run: str, step: int) -> Any:
        folder = tmp_path / run / "checkpoints" / f"step-{step:08}"
        model = build_model(checkpoint.read_contents(folder), str(folder))
        assign_weights(model, load_weights(folder), str(folder))
        return model.train()

    registry.discover()
    corpus = Corpus.open(data, "train")
    sources, targets = (
        [corpus.ids(side, [line])[0].tolist() for line in range(len(PAIRS))]
        for side in ("source", "target")
    )
    source, target_out = (padded([[*ids, EOS] for ids in side]) for side in (sources, targets))
    target_in = padded([[BOS, *ids] for ids in targets])
    tokens = (target_out != PAD).sum()
    assert tokens != (source != PAD).sum()

    model = trained("start", 1)
    plain = make(model.parameters())
    for step in (1, 2, 3):
        for group in plain.param_groups:
            group["lr"] = SCALE * D_MODEL**-0.5 * min(step**-0.5, step * WARMUP**-1.5)
        logits = model(source, target_in).flatten(0, 1)
        loss = cross_entropy(
            logits,
            target_out.flatten(),
            ignore_index=PAD,
            label_smoothing=SMOOTHING,
            reduction="sum",
        )
        plain.zero_grad()
        (loss / tokens).backward()
        if clip_norm:
            assert torch.nn.utils.clip_grad_norm_(model.parameters(), clip_norm) > 2 * clip_norm
        plain.step()
        for name, weight in trained("run", step).named_parameters():
            torch.testing.assert_close(
                model.get_parameter(name), weight, rtol=0, atol=1e-6, msg=f"{name}, step {step}"
            )
