"""Settings that do not suit a training, which lines before the first step and a dry run tell."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_run import SIZES, built, long_run, words

from nmt_cli import registry
from nmt_cli.annexes.doctor.advice import (
    advice,
    data_warnings,
    is_too_long_for,
    peak_warnings,
    schedule_warnings,
)
from nmt_cli.annexes.later.linear_decay import LinearDecay, LinearDecayConfig
from nmt_cli.commands.train import TrainOptions
from nmt_cli.presets import PRESETS
from nmt_cli.training.length import Length
from nmt_cli.training.start import configuration, open_data

Nmt = Callable[..., tuple[int, str, str]]
TINY = SIZES | {"batch_tokens": 500, "max_epochs": 3}
PEAK = {"warmup_steps": 50, "peak_learning_rate": 0.03}


def test_a_model_that_is_too_large(tiny_data: Path) -> None:
    """There is a warning, unless the run is short or starts from a trained model."""

    class Large(torch.nn.Module):
        def parameters(self, recurse: bool = True) -> Any:
            return iter([torch.empty(60_000_000, device="meta")])

    def lines(steps: int, adapts: bool) -> list[str]:
        run.length = Length(1, 40_000, steps)
        run.contents = {"origin": {} if adapts else None}
        return data_warnings(run, resumed=False)

    run = long_run(tiny_data)
    run.model = Large()

    assert "multi30k, quickstart" in lines(2000, adapts=False)[0]
    assert lines(2000, adapts=True) == lines(500, adapts=False) == []


def test_presets_by_size_exist() -> None:
    registry.discover()
    assert all(
        name in PRESETS for task in registry.components("task") for name in task.build.presets
    )


@pytest.mark.parametrize(
    ("flags", "rate", "warned"),
    [
        (PEAK, 0.03, []),
        ({"warmup_steps": 400}, 100 * 400**-1.5 / 4, ["--warmup-steps 400"]),
        ({"schedule": "linear_decay", **PEAK}, 0.03, ["give --decay-steps 100"]),
        ({"schedule": "linear_decay", **PEAK, "decay_steps": 100}, 0.03, []),
        ({"schedule": "constant", "warmup_steps": 400}, 0.001 / 4, ["--warmup-steps 400"]),
        ({"criterion": "expected_reward", **PEAK}, 0.03, ["--init-from"]),
    ],
)
def test_settings_that_do_not_suit_the_run(
    nmt: Nmt, tiny_data: Path, flags: dict[str, Any], rate: float, warned: list[str]
) -> None:
    """The warning comes before the first step and in a dry run, and names the rate reached."""
    settings = {**TINY, "max_epochs": 100, "max_steps": 100, **flags}
    given = words(settings)
    code, out, err = nmt("train", tiny_data, "--dry-run", "--json", "--device=cpu", *given)
    assert code == 0
    assert json.loads(out)["peak_learning_rate"] == pytest.approx(rate)
    assert err.count("warning") == len(warned)
    config = configuration(TrainOptions(), settings | {"device": "cpu"})
    run = built(config, tiny_data)
    lines = "\n".join(
        advice(config, None, run.trainer.schedule, run.length.steps, run, resumed=False)
    )
    assert all(word in err and word in lines for word in warned)


def lines_of(tiny_data: Path, resumed: bool = False, **settings: Any) -> str:
    """Return the warnings of a run with these settings."""
    config = configuration(TrainOptions(), TINY | {"device": "cpu"} | settings)
    run = built(config, tiny_data)
    schedule = schedule_warnings(run.trainer.schedule, run.length.steps, resumed)
    return "\n".join([*schedule, *data_warnings(run, resumed)])


def test_a_schedule_that_ends_before_the_run(tiny_data: Path) -> None:
    """The rate is the last one of the schedule. A resumed run cannot have another schedule."""
    settings = {
        "schedule": "linear_decay",
        "warmup_steps": 10,
        "decay_steps": 20,
        "max_epochs": None,
        "max_steps": 40,
    }
    rate = LinearDecay(LinearDecayConfig(warmup_steps=10, decay_steps=20), d_model=16)(40)
    first, resumed = (lines_of(tiny_data, resumed=resumed, **settings) for resumed in (False, True))
    for line in (first, resumed):
        assert f"falls until --decay-steps 20 and stays at {rate:.2g}; " in line
    assert "give --decay-steps 40" in first
    assert "--init-from" in resumed
    assert "stays" not in lines_of(tiny_data, **settings | {"max_steps": 15})
    assert lines_of(tiny_data, **settings | {"max_steps": 21}) == ""


def test_sentences_that_are_longer_than_the_learned_positions(tiny_data: Path) -> None:
    corpus = open_data([str(tiny_data)])[1]
    pairs = zip(corpus.source_lengths[:], corpus.target_lengths[:], strict=True)
    longest = sorted(int(max(lengths)) for lengths in pairs)
    settings = {"warmup_steps": 1, "max_steps": 9}
    line = lines_of(tiny_data, positions="learned", max_positions=longest[-1] - 1, **settings)
    assert f"warning: {longest.count(longest[-1])} of 900 " in line
    assert lines_of(tiny_data, positions="learned", max_positions=longest[-1], **settings) == ""
    assert lines_of(tiny_data, max_positions=1, **settings) == ""


@pytest.mark.parametrize(
    ("preset", "settings", "warned"),
    [
        (
            "multi30k",
            {"warmup_steps": 150},
            "2.6 times that of multi30k, .* --peak-learning-rate 0.0028 keeps it",
        ),
        ("multi30k", {"warmup_steps": 200}, ""),
        ("multi30k", {"warmup_steps": 150, "max_steps": 100}, ""),  # the peak is not reached
        ("multi30k", {"warmup_steps": 150, "learning_rate_scale": 0.387}, ""),
        ("multi30k", {"warmup_steps": 150, "peak_learning_rate": 0.01}, ""),
        ("multi30k", {"learning_rate_scale": 3.0}, ""),  # wanted
        ("multi30k", {"warmup_steps": 150, "schedule": "constant"}, ""),
        (
            None,
            {"warmup_steps": 100},
            "6.3 times that of the paper, .* --peak-learning-rate 0.0007 keeps it",
        ),
        (None, PRESETS["multi30k"].differs, ""),
    ],
)
def test_a_short_warmup_with_a_high_peak(
    preset: str | None, settings: dict[str, Any], warned: str
) -> None:
    registry.discover()
    config = configuration(TrainOptions(preset=preset), settings)
    line = "".join(peak_warnings(config, preset))
    assert re.search(warned, line) if warned else line == ""


def test_models_that_are_too_large() -> None:
    """A large model on 700,000 tokens.

    The models of the paper are none, with their corpora and batches.
    """
    small = Length(28, 25_000, 100_000)
    assert small.epochs == pytest.approx(3571, abs=1)
    assert is_too_long_for(small, 48e6)
    assert not is_too_long_for(small, 2.6e6)
    assert not is_too_long_for(Length(28, 25_000, 1400), 48e6)  # 50 epochs
    wmt14 = Length(5300, 25_000, 300_000)
    assert not is_too_long_for(wmt14, 213e6)
    wsj = Length(110, 25_000, 100_000)
    assert not is_too_long_for(wsj, 100e6)


def test_a_resumed_run_is_not_told_of_its_peak() -> None:
    registry.discover()
    config = configuration(TrainOptions(preset="multi30k"), {"warmup_steps": 150})
    schedule = registry.build(config["schedule"], d_model=config["model"].d_model)
    begun, resumed = (
        advice(config, "multi30k", schedule, config.training.max_steps, None, resumed)
        for resumed in (False, True)
    )
    assert "--peak-learning-rate" in "".join(begun)
    assert resumed == []
