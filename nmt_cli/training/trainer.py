"""The training loop (section 5)."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
import torch

from nmt_cli.data.batching import Indices, load_batch
from nmt_cli.device import World, autocast, is_out_of_memory
from nmt_cli.errors import TrainingError
from nmt_cli.interfaces import Loss
from nmt_cli.training.run import Parts, Run, Sums
from nmt_cli.training.settings import TrainingConfig
from nmt_cli.training.signals import StopRequest

TRIED_UPDATES = 1000
"""Updates among which the largest micro-batches are tried before the first step."""


class Trainer:
    """Updates the weights of a model.

    An update is cut into micro-batches, which the ranks share. Its gradient is that of the loss summed over all
    target tokens and divided once, by their number. So the result depends on the number of ranks only by rounding.
    """

    def __init__(self, parts: Parts, config: TrainingConfig, world: World) -> None:
        self.parts, self.config, self.world = parts, config, world
        self.model, self.optimizer = parts.model, parts.optimizer
        self.parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    def fit(self, run: Run) -> None:
        """Train from the run's state to its end.

        Raises:
            Interrupted: a signal stopped the run; it is saved.
            TrainingError: too many updates were not finite, memory ran out, or a rank was lost.
        """
        self.model.train()
        if self.world.device.type == "cuda" and not run.finished:
            self.try_largest(run.state.epoch)
        with StopRequest() as request, run.reporter.display(run.state):
            run.do_pending()
            for update in self.updates(run):  # section 5.1: about 25,000 source and 25,000 target tokens
                began = time.perf_counter()
                run.state.step += 1
                self.set_learning_rate(run.state.step)  # section 5.3: equation 3
                batches = self.parts.plan.pieces(update, self.parts.micro_batches)
                with explain_out_of_memory(self.parts, batches):
                    sums = self.accumulate(batches, run.state.step)  # section 5.4: dropout, label smoothing
                    if math.isfinite(sums.loss) and math.isfinite(sums.gradient_norm):
                        if self.config.clip_norm:  # by default not, as in the paper
                            norm = torch.tensor(sums.gradient_norm)
                            torch.nn.utils.clip_grads_with_norm_(self.parameters, self.config.clip_norm, norm)
                        self.optimizer.step()  # section 5.3: Adam
                        run.count(update, sums, time.perf_counter() - began)
                    else:
                        run.skip(update, sums)
                run.end_step(request.signal_number)
            run.save(run.directory.place("step", run.state.step))

    def updates(self, run: Run) -> Iterator[Indices]:
        """Yield the sentences of each update from the run's position on, until the run is finished."""
        updates = self.parts.plan.updates(run.state.epoch, run.state.position)
        while not run.finished:
            run.state.epoch, position, update = next(updates)
            run.state.position = position + 1
            yield update

    def set_learning_rate(self, step: int) -> None:
        """Set the learning rate, which depends only on the step."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.parts.schedule(step)

    def accumulate(self, batches: Sequence[Indices], step: int) -> Sums:
        """Compute the gradient of an update, and its losses, over all micro-batches and ranks.

        Dropout's generator is seeded by (seed, step, micro-batch), so that a resumed run draws the same masks.
        """
        self.optimizer.zero_grad(set_to_none=True)
        tokens = sum(map(self.parts.plan.target_tokens, batches))
        losses = torch.zeros(2, dtype=torch.float64, device=self.world.device)
        for number in range(self.world.rank, len(batches), self.world.size):
            if not len(batches[number]):
                continue  # there are fewer sentences than micro-batches
            key = np.random.SeedSequence((self.config.seed, step, number)).generate_state(1, np.uint64)[0]
            torch.manual_seed(int(key) >> 1)
            loss = self.backward(batches[number], tokens)
            losses += torch.stack([loss.total.detach().double(), loss.nll.detach().double()])
        if self.world.size > 1:
            self.sum_gradients()
        norm = torch.nn.utils.get_total_norm([p.grad for p in self.parameters if p.grad is not None])
        return Sums(*torch.cat([self.world.sum(losses), norm.double()[None]]).tolist())

    def backward(self, indices: Indices, tokens: int) -> Loss:
        """Add the gradient of a micro-batch's loss, divided by `tokens`."""
        batch = load_batch(self.parts.corpus, indices).to(self.world.device)
        with autocast(self.world.device, self.config.precision):
            loss = self.parts.criterion(self.model, batch)
        (loss.total / tokens).backward()  # type: ignore[no-untyped-call]
        return loss

    def sum_gradients(self) -> None:
        """Sum the gradients over all ranks, in one flat buffer; a rank without micro-batches adds zeros."""
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters]
        flat = self.world.sum(torch.cat([gradient.flatten() for gradient in gradients]))
        for parameter, summed in zip(
            self.parameters, torch.split(flat, [p.numel() for p in self.parameters]), strict=True
        ):
            parameter.grad = summed.view_as(parameter)

    def try_largest(self, epoch: int) -> None:
        """Run the micro-batches that need most memory forwards and backwards, without an update.

        They are the largest in the first updates of `epoch`, which are a random sample of the data.

        Raises:
            TrainingError: there is not enough memory; the message names the micro-batch.
        """
        plan = self.parts.plan
        updates = islice(plan.epoch(epoch), TRIED_UPDATES)
        batches = [indices for update in updates for indices in plan.pieces(update, self.parts.micro_batches)]
        # Hidden states grow with the length, attention weights with its square.
        by_power = [max(batches, key=lambda b: len(b) * int((plan.padded_lengths(b) ** n).sum())) for n in (1, 2)]
        for indices in by_power:
            with explain_out_of_memory(self.parts, [indices]):
                # Stand-ins for Adam's two moments, which are allocated at the first step.
                moments = [] if self.optimizer.state else [torch.ones_like(p) for p in 2 * self.parameters]
                self.backward(indices, tokens=1)
                del moments
        self.optimizer.zero_grad(set_to_none=True)


@contextlib.contextmanager
def explain_out_of_memory(parts: Parts, batches: Sequence[Indices]) -> Iterator[None]:
    """Raise a TrainingError that names the largest of `batches` when memory runs out inside."""
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        plan, count = parts.plan, parts.micro_batches
        largest = max(batches, key=lambda indices: len(indices) * int(plan.padded_lengths(indices).sum()))
        source, target = plan.padded_lengths(largest)
        raise TrainingError(
            f"out of memory on a micro-batch of {len(largest)} sentences, {source} source and {target} target tokens "
            f"each. An update of {plan.batch_tokens} tokens has {count} micro-batches: try "
            f"--micro-batches {2 * count} (the updates stay as large), with a new --out."
        ) from error
