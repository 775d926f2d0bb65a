"""A comparison of another program with this one, on sample sentences."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from nmt_cli.data.batching import collate, pad
from nmt_cli.decoding.beam_search import beam_search
from nmt_cli.decoding.options import SearchSettings
from nmt_cli.errors import CheckpointError, UsageError
from nmt_cli.interfaces import EOS
from nmt_cli.models.settings import TransformerConfig
from nmt_cli.models.transformer import Transformer
from nmt_cli.registry import component_of
from nmt_cli.task import Task

# Between natural log-probabilities of a token, for float32 products in different orders.
TOLERANCE = 1e-3

Ids = Sequence[int]


def expressible(model: nn.Module, program: str) -> Transformer:
    """Return the model if it is a Transformer that other programs have.

    Raises:
        UsageError: it is not, and the message names the first setting that `program` lacks.
    """
    if not isinstance(model, Transformer) or type(model.config) is not TransformerConfig:
        raise UsageError(
            f"{program} has no model like this one, a {type(model).__name__}: --model transformer "
            "only"
        )
    config = model.config
    attention = component_of(model.attention).name
    width = config.d_model / config.num_heads
    needed = {
        f"--attention {attention}": attention != "full",
        "--query-key-norm": config.query_key_norm,
        "--activation squared_relu": config.activation == "squared_relu",
        "--d-k or --d-v other than d_model / h": config.head_widths() != (width, width),
    }
    refuse(program, needed)
    return model


def refuse(program: str, needed: Mapping[str, Any]) -> None:
    """Raise UsageError if the model needs one of these flags, which `program` does not have."""
    for name, is_needed in needed.items():
        if is_needed:
            raise UsageError(f"{program} has no {name}: this model cannot be exported to it")


class Comparison:
    """The model's outputs for sample sentences, with which another program's are compared.

    All ids are without BOS and EOS.

    Args:
        model: a `Model` in evaluation mode, on the CPU.
        program: the other program's name, for messages.
    """

    def __init__(self, model: Any, task: Task, samples: Sequence[str], program: str) -> None:
        self.model = model
        self.program = program
        self.sources: list[list[int]] = [task.encode_source(line) for line in samples]
        self.limits = [task.max_length(len(ids)) for ids in self.sources]  # of outputs
        rows = pad([[*ids, EOS] for ids in self.sources])
        greedy = SearchSettings(beam=1)
        hypotheses = beam_search(model.decodable("float32"), rows, self.limits, greedy)
        self.outputs: list[list[int]] = [best.tokens for (best,) in hypotheses]

    def report(
        self, log_probabilities: Sequence[Sequence[float]], outputs: Sequence[Ids]
    ) -> list[str]:
        """Compare the other program's numbers and outputs, and return lines that report on them.

        Args:
            log_probabilities: of the tokens of each of `self.outputs` and of EOS after them.
            outputs: its greedy outputs.

        Raises:
            CheckpointError: a log-probability differs by more than is allowed, or an output does
                where its tokens are not equally probable.
        """
        our_log_probabilities = self.log_probabilities(self.outputs)
        worst = _largest_difference(our_log_probabilities, log_probabilities)
        if not self._allows(worst):
            raise CheckpointError(
                f"{self.program} computes other log-probabilities than nmt: they differ by up to "
                f"{worst:.2g}, at most {max(TOLERANCE, self._rounding):.2g} is expected. Nothing "
                "was exported."
            )
        ties = self._ties(our_log_probabilities, outputs)
        tokens = sum(len(row) for row in our_log_probabilities)
        allowed = TOLERANCE if worst <= TOLERANCE else self._rounding
        greedy = f"greedy outputs: {len(outputs) - ties} of {len(outputs)} equal"
        if ties > 0:
            greedy += f"; {ties} chose another of two tokens of equal probability"
        return [
            f"log-probabilities: {worst:.1g} is the largest difference in {tokens:,} tokens; at "
            f"most {allowed:.2g} is allowed",
            greedy,
        ]

    def _ties(self, our_log_probabilities: list[list[float]], outputs: Sequence[Ids]) -> int:
        """Return how many outputs differ where two tokens have the same probability.

        Raises:
            CheckpointError: the first tokens that differ have other probabilities.
        """
        ties = 0
        their_log_probabilities = self.log_probabilities(outputs)
        for i, (our_output, output) in enumerate(zip(self.outputs, outputs, strict=True)):
            pairs = zip([*our_output, EOS], [*output, EOS], strict=False)
            places = [place for place, (token, other) in enumerate(pairs) if token != other]
            if not places:
                continue
            first = places[0]
            difference = our_log_probabilities[i][first] - their_log_probabilities[i][first]
            if not self._allows(abs(difference)):
                raise CheckpointError(
                    f"{self.program} translates a sentence differently. Nothing was exported."
                )
            ties += 1
        return ties

    def log_probabilities(self, targets: Sequence[Ids], model: Any = None) -> list[list[float]]:
        """Return the log-probabilities of the tokens of each target, and of EOS after them.

        Args:
            model: a function that returns logits [1, T, V] of source [1, S] and target_in [1, T].
                [default: the model]
        """
        if model is None:
            model = self.model
        results = []
        for source, target in zip(self.sources, targets, strict=True):
            batch = collate([source], [target])
            with torch.inference_mode():
                logits = model(batch.source, batch.target_in)  # [1, T, V]
            scores = logits.log_softmax(dim=2).gather(2, batch.target_out[:, :, None])
            results.append(scores.flatten().tolist())
        return results

    def _allows(self, difference: float) -> bool:
        """Whether two log-probabilities may differ by so much. NaN is never allowed."""
        return difference <= TOLERANCE or difference <= self._rounding

    @cached_property
    def _rounding(self) -> float:
        """Ten times what rounding changes, which exceeds `TOLERANCE` if weights are very large."""
        exact = self.log_probabilities(self.outputs, copy.deepcopy(self.model).double())
        return 10 * _largest_difference(self.log_probabilities(self.outputs), exact)


def _largest_difference(
    some: Sequence[Sequence[float]], others: Sequence[Sequence[float]]
) -> float:
    difference = _flat(some) - _flat(others)
    return difference.abs().max().item()


def _flat(rows: Sequence[Sequence[float]]) -> Tensor:
    return torch.tensor([value for row in rows for value in row], dtype=torch.float64)
