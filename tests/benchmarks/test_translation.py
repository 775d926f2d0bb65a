"""The report of a model and a beam."""

from __future__ import annotations

import sys

import pytest

from benchmarks.samples import Sample

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install .[bench]")

from benchmarks import translation


def measured(beam: int) -> translation.Measured:
    case = {"model": "small", "beam": beam, "batch": 1}
    speeds = {"nmt int8": [6.0, 3.0, 9.0], "peer int8": [3.0, 1.0, 3.0]}
    samples = [Sample(case, system, r, rate, 1.0) for system, rates in speeds.items() for r, rate in enumerate(rates)]
    return translation.Measured(samples, {}, {"gone": "gone: not installed"}, {"nmt int8": 16, "peer int8": 15})


def test_a_section_has_speeds_ratios_and_what_is_missing() -> None:
    text = "\n".join(translation.section(measured(beam=4), "small", 4, [1]))
    assert "### small, beam 4" in text
    assert "| nmt int8 | 6 (4.5-7.5) |" in text
    assert "| nmt int8 / peer int8 | 3 (2.5-3) |" in text
    assert "Not measured: gone: not installed." in text
    assert "Outputs equal" not in text


def test_outputs_of_greedy_search_are_compared() -> None:
    text = "\n".join(translation.section(measured(beam=1), "small", 1, [1]))
    assert "of 16: nmt int8 16, peer int8 15." in text


def test_interpreters_are_those_of_the_command_line() -> None:
    options = translation.arguments(["--python", "fairseq=/a/python"])
    assert (options.pythons["fairseq"], options.pythons["nmt"]) == ("/a/python", sys.executable)
    for wrong in (["--python", "fairseq"], ["--python", "other=/a"], ["--systems", "other:int8"], ["--rounds", "0"]):
        with pytest.raises(SystemExit):
            translation.arguments(wrong)
