"""The figures: small files whose text stays text."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.samples import Spread

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install .[bench]")


def spreads(*medians: float) -> list[Spread]:
    return [Spread(0.9 * median, median, 1.1 * median) for median in medians]


def test_figures_are_small_and_name_what_they_show(tmp_path: Path) -> None:
    from benchmarks import figures

    names = [f"{peer} {dtype}" for peer in ("nmt", "other", "third") for dtype in ("float32", "int8")]
    panel = dict(zip(names, spreads(1.0, 2.0, 3.0, 4.0, 5.0, 6.0), strict=True))
    bars = figures.bars(
        {"1 sentence": panel, "32 sentences": dict(list(panel.items())[:3]), "64": panel}, "sentences/s"
    )
    curve = dict(zip((1, 2, 4, 8_000), spreads(10.0, 5.0, 20.0, 80.0), strict=True))
    curves = figures.curves({name: {"nmt float32": curve} for name in ("beam", "length", "batch", "size")}, "ms")
    rows = {"base": (0.0, [0.1, -0.1]), "A_h1": (-0.9, [-0.5])}
    differences = figures.differences({"perplexity": rows, "BLEU": rows})
    words_of = [
        (bars, [*names, "32 sentences", "sentences/s"]),
        (curves, ["beam", "size", "8k", "ms"]),
        (differences, ["A_h1", "BLEU, difference to base", "in the paper"]),
    ]
    for figure, words in words_of:
        figure.savefig(tmp_path / "figure.svg", transparent=True)
        text = (tmp_path / "figure.svg").read_text("utf-8")
        assert [word for word in words if f">{word}<" not in text] == []
        assert len(text) < 60_000


def test_growth_in_proportion_ends_at_the_last_point() -> None:
    from benchmarks import figures

    assert figures.proportional([1, 2, 4], [9.0, 9.0, 8.0]) == [2.0, 4.0, 8.0]
