"""Section 6.1: beam search's constants, length penalty, output limit, and averaged checkpoints."""

from __future__ import annotations

import pytest
import torch

from nmt_cli.annexes.parsing.task import ParsingConfig, ParsingTask
from nmt_cli.decoding.length_penalty import length_penalty
from nmt_cli.decoding.options import SearchSettings
from nmt_cli.tasks.translation import TranslationConfig, TranslationTask


def test_beam_of_4_and_alpha_of_0_6() -> None:
    options = SearchSettings()
    assert (options.beam, options.alpha) == (4, 0.6)


@pytest.mark.parametrize(
    ("length", "alpha"), [(1, 0.6), (7, 0.6), (55, 0.6), (13, 1.0), (13, 0.0), (7, 0.3)]
)
def test_length_penalty(length: int, alpha: float) -> None:
    """((5 + |Y|) / 6)^alpha, of Wu et al. 2016, equation 14."""
    expected = (5 + length) ** alpha / 6**alpha
    assert length_penalty(torch.tensor(float(length)), alpha).item() == pytest.approx(
        expected, rel=1e-6
    )


def test_output_limit_is_input_plus_50() -> None:
    task = TranslationTask(TranslationConfig())
    assert [task.max_length(n) for n in (1, 10, 200)] == [51, 60, 250]


def test_parsing_s_beam_alpha_and_limit() -> None:
    """Section 6.3: beam 21, alpha 0.3, and input length + 300."""
    assert (ParsingTask.default_beam, ParsingTask.default_alpha) == (21, 0.3)
    assert ParsingTask.default_exact_stopping
    assert ParsingTask(ParsingConfig()).max_length(40) == 340
