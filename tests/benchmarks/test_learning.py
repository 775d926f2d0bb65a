"""Learning curves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.samples import Spread

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install .[bench]")


def test_curves_over_seeds_are_means_and_ranges(tmp_path: Path) -> None:
    from benchmarks import learning

    seeds = [[(1.0, 10.0), (2.0, 20.0)], [(3.0, 14.0), (4.0, 26.0), (5.0, 30.0)]]
    assert learning.over_seeds(seeds) == [(2.0, Spread(10.0, 12.0, 14.0)), (3.0, Spread(20.0, 23.0, 26.0))]
    (tmp_path / "points.json").write_text(json.dumps({"ConvS2S": seeds, "MoE": seeds[:1]}), encoding="utf-8")
    learning.main(str(tmp_path / "points.json"), str(tmp_path / "curves.svg"))
    drawn = (tmp_path / "curves.svg").read_text(encoding="utf-8")
    assert all(f">{word}<" in drawn for word in ("ConvS2S", "MoE", "minutes of training"))
