"""Gradients and changes of weights as CUDA graphs."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from nmt_cli.fast.cuda.replay import Replay
from nmt_cli.interfaces import Batch
from nmt_cli.training.gradients import Gradients


class ReplayedGradients(Gradients):
    """`Gradients` whose `add` is a CUDA graph for each shape of a batch.

    On several ranks there are two: the backward pass stops at the output of the encoder, and goes
    on when the sum of the decoder's gradients over the ranks has started.
    """

    replayed = True

    def __init__(self, plain: Gradients) -> None:
        super().__init__(plain.objective, plain.optimizer, plain.scaler, plain.world, flat=True)
        self.memories: list[Tensor] = []  # outputs of the encoder
        self.copies: list[Tensor] = []  # of them, which the decoder reads
        self.of_copies: Sequence[Tensor] = ()  # gradients
        functions: list[Callable[..., Any]] = [self.compute]
        # A loss that a layer adds reaches the encoder on other ways.
        if self.world.size > 1 and not self.objective.auxiliary:
            functions = [self.compute_decoder, self.differentiate_encoder]
        self.replay = Replay(functions, torch.zeros(()), self.world.device)

    def add(self, batch: Batch, weight: float, is_last: bool = False) -> Tensor:
        """See `Gradients`."""
        # A graph would repeat a number of the host.
        factor = torch.full((), weight, device=self.world.device)
        tokens = torch.full((), batch.num_tokens, device=self.world.device)
        counted = replace(batch, num_tokens=tokens)  # type: ignore[arg-type]
        result: Tensor = self.replay(counted, factor)
        if is_last:
            self.start_sums(1)  # the decoder's
        self.replay.go_on()
        return result

    def compute_decoder(self, batch: Batch, factor: Tensor) -> Tensor:
        """Do `compute`, but stop the backward pass at the output of the encoder."""
        self.memories, self.copies = [], []  # an attempt may have failed for memory
        encoder: Any = self.objective.model.encoder_norm
        with encoder.register_forward_hook(self.cut):
            return self.compute(batch, factor)

    def cut(self, encoder: Any, inputs: Any, memory: Tensor) -> Tensor:
        """Return the output of the encoder without its history."""
        if not memory.requires_grad:
            return memory
        self.memories.append(memory)
        self.copies.append(memory.detach().requires_grad_())
        return self.copies[-1]

    def differentiate(self, loss: Tensor) -> None:
        """See `Gradients`."""
        self.of_copies = self.add_gradients([loss], None, self.copies)

    def differentiate_encoder(self) -> None:
        """Let the backward pass go on from the output of the encoder."""
        if self.memories:
            self.add_gradients(self.memories, self.of_copies)
        # The graphs of other shapes need the memory.
        self.memories, self.copies, self.of_copies = [], [], ()

    def add_gradients(
        self, outputs: Sequence[Tensor], weights: Any, others: Sequence[Tensor] = ()
    ) -> Sequence[Tensor]:
        """Add the gradients of the parameters to their sums. Return those of `others`."""
        inputs = [*self.parameters, *others]
        gradients = torch.autograd.grad(outputs, inputs, weights, allow_unused=True)
        sums: list[Any] = []
        terms: list[Any] = []
        for parameter, gradient in zip(self.parameters, gradients, strict=False):
            if gradient is not None:
                sums.append(parameter.grad)
                terms.append(gradient)
        if terms:
            torch._foreach_add_(sums, terms)  # a few launches
        return gradients[len(self.parameters) :]

    def finish(self) -> list[Tensor]:
        """See `Gradients`. One tensor needs fewer launches."""
        gradients = super().finish()
        if gradients and self.flat is not None and self.flat.is_cuda:
            return [self.flat]
        return gradients

    def forget(self) -> None:
        """See `Gradients`."""
        self.replay.captured.clear()
        # They hold memory of the graphs.
        self.replay.following = ()
        self.memories, self.copies, self.of_copies = [], [], ()


def replayed_change(
    change: Callable[[Tensor], None], optimizer: torch.optim.Optimizer, device: torch.device
) -> Callable[[Tensor], None]:
    """Return `Trainer.change` as a CUDA graph."""
    warnings.filterwarnings("ignore", message="This instance was constructed with capturable=True")
    for group in optimizer.param_groups:  # a graph would repeat a rate of the host
        group.update(capturable=True, lr=torch.zeros((), device=device))
    # Not finite, so that a capture makes no step, and with a norm that is not clipped.
    return Replay([change], torch.tensor([math.nan, math.nan, 0.0]), device)
