"""The weights of the parts by epoch: temperature and stages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.annexes.later.mixing import Mixing, labels, names
from nmt_cli.annexes.later.settings import MixingConfig
from nmt_cli.data.batching import BatchPlan
from nmt_cli.data.corpus import Part
from nmt_cli.errors import UsageError


def corpus(*parts: tuple[str, int, float], data: str = "/home/data") -> Any:
    """A corpus with parts of these prefixes, sizes and weights."""
    ends = np.cumsum([size for _, size, _ in parts]).tolist()
    text_parts = [
        Part(end - size, end, weight, Path(data), prefix)
        for end, (prefix, size, weight) in zip(ends, parts, strict=True)
    ]
    return SimpleNamespace(parts=text_parts)


def mixture(
    corpus: Any, temperature: float, stages: Sequence[str]
) -> list[tuple[int, list[float]]]:
    """The first epoch of each stage, and the weights of the parts in it."""
    mixing = Mixing(MixingConfig(temperature, tuple(stages)), corpus=corpus)
    part_weights = [part.weight for part in corpus.parts]
    return [
        (first_epoch, mixing.weights(first_epoch, part_weights)) for first_epoch in mixing.begins
    ]


NOISY = corpus(("corpus/bt", 4000, 1), ("corpus/clean", 1000, 2))


def test_stages() -> None:
    stages = mixture(NOISY, 1.0, ["bt clean until 2", "bt*0.5 clean*3 until 5", "clean"])
    assert stages == [(0, [1, 2]), (2, [0.5, 6]), (5, [0, 2])]
    mixing = Mixing(
        MixingConfig(1.0, ("bt clean until 2", "bt*0.5 clean*3 until 5", "clean")), corpus=NOISY
    )
    assert [mixing.weights(epoch, [1, 2]) for epoch in (1, 2, 4, 5, 99)] == [
        stages[stage][1] for stage in (0, 1, 1, 2, 2)
    ]
    assert mixing.lines(9) == [
        "epochs 1 to 2: bt x 1 (4,000 pairs), clean x 2 (2,000 pairs)",
        "epochs 3 to 5: bt x 0.5 (2,000 pairs), clean x 6 (6,000 pairs)",
        "epoch 6 on: clean x 2 (2,000 pairs)",
    ]


@given(
    parts=st.lists(st.tuples(st.integers(1, 10_000), st.integers(1, 5)), min_size=1, max_size=5),
    temperature=st.floats(1.01, 100),
)
def test_shares_by_temperature(parts: list[tuple[int, int]], temperature: float) -> None:
    """p_i is proportional to q_i^(1/T), q_i the share by size and weight, and the size stays."""
    text = corpus(*((f"part-{i}", size, weight) for i, (size, weight) in enumerate(parts)))
    ((first_epoch, weights),) = mixture(text, temperature, ())
    amounts = np.array([size for size, _ in parts]) * weights
    plain_shares = np.array([size * weight for size, weight in parts])
    expected = (plain_shares / plain_shares.sum()) ** (1 / temperature)
    assert first_epoch == 0
    assert amounts / plain_shares.sum() == pytest.approx(expected / expected.sum())
    lengths = np.full(sum(size for size, _ in parts), 9)
    mixing = Mixing(MixingConfig(temperature), corpus=text)
    assert (
        BatchPlan(lengths, lengths, 100, 1, text.parts, changes=[mixing]).size()
        == plain_shares.sum()
    )


def test_a_temperature_in_each_stage() -> None:
    """Of the parts that the stage uses. An infinite one would make them equal."""
    stages = mixture(NOISY, 1e9, ["clean until 1", "bt clean"])
    assert [first_epoch for first_epoch, _ in stages] == [0, 1]
    assert stages[0][1] == pytest.approx([0, 2])
    assert stages[1][1] == pytest.approx([3000 / 4000, 3])


def test_names() -> None:
    """A part is named by the end of a path: of its directory, or of the prefix of its text."""
    one = corpus(("x/train", 5, 1), ("y/train", 5, 1), data="/data/one")
    assert labels(one.parts) == ["one/train", "one/train"]
    for name, weights in (
        ("train", [1, 1]),
        ("one", [1, 1]),
        ("/data/one", [1, 1]),
        ("x/train", [1, 0]),
    ):
        assert mixture(one, 1.0, [name])[0][1] == weights
    two = [Part(0, 5, 1, Path("/d/one"), "train"), Part(5, 9, 1, Path("/d/two"), "train")]
    assert labels(two) == ["one", "two"]
    tagged = [
        Part(0, 1, 1, Path("/d"), "text/a@<bt>"),
        Part(1, 3, 1, Path("/d"), "b.en\tb.de@<2de> <bt>"),
    ]
    assert [names(part)[1:] for part in tagged] == [[Path("text/a")], [Path("b.en"), Path("b.de")]]
    assert names(Part(0, 5, 1, Path("/d/one"))) == [Path("/d/one")]


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        (
            ["bt until 2", "celan"],
            "--stage 'celan': no part of the training text is called celan. Did you mean clean?",
        ),
        (
            ["bt", "clean"],
            "--stage 'bt': it is not the last stage, so it needs a last epoch: until 1, or later",
        ),
        (
            ["bt until 2", "clean until 2", "bt"],
            "--stage 'clean until 2': it is not the last stage, so .* until 3",
        ),
        (["bt until 0", "clean"], "so it needs a last epoch: until 1"),
        (
            ["bt until 3"],
            "--stage 'bt until 3': the last stage has no last epoch: leave out `until 3`",
        ),
        (["bt until soon"], "no part of the training text is called until"),
        (["bt*0"], "the weight must be above 0 and at most 1000, not 0"),
        (["bt*-1"], "the weight must be above 0 and at most 1000, not -1"),
        (["bt corpus/bt*2"], "corpus/bt is there twice"),
        ([""], "--stage '': with these weights, an epoch has no sentences"),
        (["bt*0.0001"], "with these weights, an epoch has no sentences"),
    ],
)
def test_stages_that_do_not_fit(stages: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        mixture(NOISY, 1.0, stages)
