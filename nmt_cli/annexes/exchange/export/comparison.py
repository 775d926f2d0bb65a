"""Whether another program computes what this one does, on sample sentences."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import nn

from nmt_cli.data.batching import collate, pad
from nmt_cli.decoding.beam_search import beam_search
from nmt_cli.decoding.options import SearchSettings
from nmt_cli.errors import CheckpointError, UsageError
from nmt_cli.interfaces import EOS
from nmt_cli.models.settings import TransformerConfig
from nmt_cli.models.transformer import Transformer
from nmt_cli.registry import component_of
from nmt_cli.task import Task

# Between log-probabilities (natural) of a token: float32 products in different orders.
TOLERANCE = 1e-3

Ids = Sequence[int]


def expressible(model: nn.Module, program: str) -> Transformer:
    """Return the model; raise UsageError unless it is a Transformer with the paper's attention, and
    no squared ReLU.
    """
    if not isinstance(model, Transformer) or type(model.config) is not TransformerConfig:
        raise UsageError(
            f"{program} has no model like this one, a {type(model).__name__}: --model transformer "
            "only"
        )
    config, attention = model.config, component_of(model.attention).name
    width = config.d_model / config.num_heads
    refuse(
        program,
        {
            f"--attention {attention}": attention != "full",
            "--query-key-norm": config.query_key_norm,
            "--activation squared_relu": config.activation == "squared_relu",
            "--d-k or --d-v other than d_model / h": config.head_widths() != (width, width),
        },
    )
    return model


def refuse(program: str, needed: Mapping[str, Any]) -> None:
    """Raise UsageError if the model needs one of these flags, of which `program` has no
    counterpart.
    """
    for name, there in needed.items():
        if there:
            raise UsageError(f"{program} has no {name}: this model cannot be exported to it")


class Comparison:
    """What the model computes for sample sentences, and the comparison of another program with it.

    All ids are without BOS and EOS.

    Args:
        model: a `Model` in evaluation mode, on the CPU.
        program: the other program's name, for messages.
    """

    def __init__(self, model: Any, task: Task, samples: Sequence[str], program: str) -> None:
        self.model, self.program = model, program
        self.sources: list[list[int]] = [task.encode_source(line) for line in samples]
        # The maximum length of each output.
        self.limits = [task.max_length(len(ids)) for ids in self.sources]
        rows = pad([[*ids, EOS] for ids in self.sources])
        found = beam_search(model.decodable("float32"), rows, self.limits, SearchSettings(beam=1))
        # greedy, without the unknown word.
        self.outputs: list[list[int]] = [best[0].tokens for best in found]

    def report(
        self, log_probabilities: Sequence[Sequence[float]], outputs: Sequence[Ids]
    ) -> list[str]:
        """Compare what the other program computed; return lines that say how far it agrees.

        Args:
            log_probabilities: of the tokens of each of `self.outputs` and of EOS after them.
            outputs: its greedy outputs.

        Raises:
            CheckpointError: a log-probability differs by more than is allowed, or an output does
                where its tokens are not equally probable.
        """
        ours, theirs = self.log_probabilities(self.outputs), self.log_probabilities(outputs)
        worst = _largest_difference(ours, log_probabilities)
        if not self._allows(worst):
            raise CheckpointError(
                f"{self.program} computes other log-probabilities than nmt: they differ by up to "
                f"{worst:.2g}, at most "
                f"{max(TOLERANCE, self._rounding):.2g} is expected. Nothing was exported."
            )
        different = [
            i for i, (a, b) in enumerate(zip(self.outputs, outputs, strict=True)) if [*a] != [*b]
        ]
        for i in different:
            pairs = zip([*self.outputs[i], EOS], [*outputs[i], EOS], strict=False)
            at = next(place for place, (a, b) in enumerate(pairs) if a != b)
            if not self._allows(abs(ours[i][at] - theirs[i][at])):
                raise CheckpointError(
                    f"{self.program} translates a sentence differently. Nothing was exported."
                )
        ties = (
            f"; {len(different)} chose another of two tokens of equal probability"
            if different
            else ""
        )
        return [
            f"log-probabilities: {worst:.1g} is the largest difference in {sum(map(len, ours)):,} "
            "tokens; at most "
            f"{TOLERANCE if worst <= TOLERANCE else self._rounding:.2g} is allowed",
            f"greedy outputs: {len(outputs) - len(different)} of {len(outputs)} equal{ties}",
        ]

    def log_probabilities(self, targets: Sequence[Ids], model: Any = None) -> list[list[float]]:
        """Return the log-probabilities of the tokens of each target, and of EOS after them.

        Args:
            model: a function that returns logits [1, T, V] of source [1, S] and target_in [1, T].
                [default: the model]
        """
        results = []
        for source, target in zip(self.sources, targets, strict=True):
            batch = collate([source], [target])
            with torch.inference_mode():
                logits = (model or self.model)(batch.source, batch.target_in)  # [1, T, V]
            scores = logits.log_softmax(dim=2).gather(2, batch.target_out[:, :, None])
            results.append(scores.flatten().tolist())
        return results

    def _allows(self, difference: float) -> bool:
        """Whether two log-probabilities may differ by so much; NaN is never allowed."""
        return difference <= TOLERANCE or difference <= self._rounding

    @cached_property
    def _rounding(self) -> float:
        """Ten times what rounding alone changes, which is more than the tolerance where weights are
        very large.
        """
        exact = self.log_probabilities(self.outputs, copy.deepcopy(self.model).double())
        return 10 * _largest_difference(self.log_probabilities(self.outputs), exact)


def _largest_difference(
    some: Sequence[Sequence[float]], others: Sequence[Sequence[float]]
) -> float:
    first, second = (
        torch.tensor([value for row in rows for value in row], dtype=torch.float64)
        for rows in (some, others)
    )
    return (first - second).abs().max().item()
