"""Whether another program computes what this one does, on sample sentences."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from nmt_cli.data.batching import pad
from nmt_cli.decoding.beam_search import beam_search
from nmt_cli.decoding.options import SearchSettings
from nmt_cli.decoding.scoring import token_log_probabilities
from nmt_cli.errors import CheckpointError, UsageError
from nmt_cli.interfaces import EOS
from nmt_cli.models.transformer import Transformer
from nmt_cli.registry import component_of
from nmt_cli.task import Task

TOLERANCE = 1e-3  # the one for float32 products in different orders

_BATCH_TOKENS = 4096
_ROUNDING = 10

Ids = Sequence[int]


def expressible(model: nn.Module, program: str) -> Transformer:
    """Return the model; raise UsageError unless it is a Transformer with the paper's attention."""
    if type(model) is not Transformer:
        raise UsageError(f"{program} has no model like this one, a {type(model).__name__}: --model transformer only")
    config, attention = model.config, component_of(model.attention).name
    width = config.d_model / config.num_heads
    refuse(
        program,
        {
            f"--attention {attention}": attention != "full",
            "--d-k or --d-v other than d_model / h": config.head_widths() != (width, width),
        },
    )
    return model


def refuse(program: str, needed: Mapping[str, Any]) -> None:
    """Raise UsageError if the model needs one of these flags, of which `program` has no counterpart."""
    for name, there in needed.items():
        if there:
            raise UsageError(f"{program} has no {name}: this model cannot be exported to it")


class Comparison:
    """What the model computes for sample sentences, and the comparison of another program with it.

    All ids are without BOS and EOS.

    Args:
        model: a `Model` in evaluation mode, on the CPU.
        program: the other program's name, for messages.
        tolerance: largest difference of two log-probabilities (natural) of a token. If rounding alone changes them by
            more, as with very large weights, up to ten times as much is allowed.
    """

    def __init__(
        self, model: Any, task: Task, samples: Sequence[str], program: str, tolerance: float = TOLERANCE
    ) -> None:
        self.model, self.program, self.tolerance = model, program, tolerance
        self.sources: list[list[int]] = [task.encode_source(line) for line in samples]
        self.limits = [task.max_length(len(ids)) for ids in self.sources]  # the maximum length of each output
        rows = pad([[*ids, EOS] for ids in self.sources])
        found = beam_search(model.decodable("float32"), rows, self.limits, SearchSettings(beam=1))
        self.outputs: list[list[int]] = [best[0].tokens for best in found]  # greedy, without the unknown word

    def report(self, log_probabilities: Sequence[Sequence[float]], outputs: Sequence[Ids]) -> list[str]:
        """Compare what the other program computed; return lines that say how far it agrees.

        Args:
            log_probabilities: of the tokens of each of `self.outputs` and of EOS after them.
            outputs: its greedy outputs.

        Raises:
            CheckpointError: a log-probability differs by more than is allowed, or an output does where its tokens are
                not equally probable.
        """
        ours = self._log_probabilities(self.outputs)
        mine, other = _joined(ours), _joined(log_probabilities)
        worst = (mine - other).abs().max().item()
        if not self._allows(worst):
            raise CheckpointError(
                f"{self.program} computes other log-probabilities than nmt: they differ by up to {worst:.2g}, at most "
                f"{max(self.tolerance, self._rounding):.2g} is expected. Nothing was exported."
            )
        theirs = self._log_probabilities(outputs)
        different = [i for i, (a, b) in enumerate(zip(self.outputs, outputs, strict=True)) if [*a] != [*b]]
        for i in different:
            pairs = zip([*self.outputs[i], EOS], [*outputs[i], EOS], strict=False)
            at = next(place for place, (a, b) in enumerate(pairs) if a != b)
            if not self._allows(abs(ours[i][at] - theirs[i][at])):
                raise CheckpointError(f"{self.program} translates a sentence differently. Nothing was exported.")
        equal = len(outputs) - len(different)
        ties = f"; {len(different)} chose another of two tokens of equal probability" if different else ""
        return [
            f"log-probabilities: {worst:.1g} is the largest difference in {len(mine):,} tokens; at most "
            f"{self.tolerance if worst <= self.tolerance else self._rounding:.2g} is allowed",
            f"greedy outputs: {equal} of {len(outputs)} equal{ties}",
        ]

    def _allows(self, difference: float) -> bool:
        """Whether two log-probabilities may differ by so much; NaN is never allowed."""
        return difference <= self.tolerance or difference <= self._rounding

    @cached_property
    def _rounding(self) -> float:
        """The bound for a model that rounding changes a lot: ten times its own difference from float64.

        Neither the size of the log-probabilities nor that of the logits tells how far attention amplifies rounding.
        """
        mine = _joined(self._log_probabilities(self.outputs))
        exact = _joined(self._log_probabilities(self.outputs, copy.deepcopy(self.model).double()))
        return _ROUNDING * (mine - exact).abs().max().item()

    def _log_probabilities(self, targets: Sequence[Ids], model: Any = None) -> list[list[float]]:
        """The log-probabilities of the tokens of each target, and of EOS after them."""
        device = torch.device("cpu")
        return token_log_probabilities([model or self.model], self.sources, targets, device, _BATCH_TOKENS)


def _joined(rows: Sequence[Sequence[float]]) -> Tensor:
    return torch.tensor([value for row in rows for value in row], dtype=torch.float64)
