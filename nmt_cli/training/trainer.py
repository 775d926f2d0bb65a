"""The training loop (section 5)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from nmt_cli.data.batching import Indices
from nmt_cli.device import is_out_of_memory
from nmt_cli.distributed import World
from nmt_cli.errors import TrainingError, counted
from nmt_cli.interfaces import Batch
from nmt_cli.training.freezing import trained
from nmt_cli.training.gradients import Gradients, Objective
from nmt_cli.training.parts import Parts
from nmt_cli.training.run import Run
from nmt_cli.training.settings import TrainingConfig
from nmt_cli.training.signals import StopRequest
from nmt_cli.training.updates import Piece, load, updates

TRIED_UPDATES = 1000  # updates among which the largest micro-batches are tried before the first step


class Trainer:
    """Updates the weights of a model.

    An update is cut into micro-batches, which the ranks share. Its gradient is that of the loss summed over all
    target tokens and divided once, by their number. So the result depends on the number of ranks only by rounding.
    """

    def __init__(self, parts: Parts, config: TrainingConfig, world: World) -> None:
        self.parts, self.config, self.world = parts, config, world
        self.model, self.optimizer, self.micro_batches = parts.model, parts.optimizer, parts.micro_batches
        self.parameters = trained(self.model)
        self.gradients = Gradients(Objective(self.model, parts.criterion, parts.precision), world, config.reduce_in)

    def fit(self, run: Run) -> None:
        """Train from the run's state to its end.

        Raises:
            Interrupted: a signal stopped the run; it is saved.
            TrainingError: too many updates were not finite, memory ran out, or a rank was lost.
        """
        self.model.train()
        if not run.finished:
            self.choose_micro_batches(run)
        place = run.state.epoch, run.state.position
        with (
            updates(self.parts.plan, self.parts.corpus, self.world, self.micro_batches, *place) as following,
            StopRequest() as request,
            run.reporter.display(run.state, self.parts.length.steps),
        ):
            run.do_pending()
            while not run.finished:
                update = run.next(following)  # section 5.1: about 25,000 source and 25,000 target tokens
                self.set_learning_rate(run.state.step)  # section 5.3: equation 3
                with explain_out_of_memory([piece.batch for piece in update.share], self.micro_batches):
                    sums = self.accumulate(update.share, run.state.step)  # section 5.4: dropout, label smoothing
                    read = self.world.start_sum(sums)
                    if self.config.clip_norm:  # by default not, as in the paper
                        torch.nn.utils.clip_grads_with_norm_(self.parameters, self.config.clip_norm, sums[2].float())
                    step_if(sums.isfinite().all(), self.optimizer)  # section 5.3: Adam
                run.add(update.sentences, read)
                run.end_step(request.signal_number)
            run.save(run.directory.place("step", run.state.step))

    def set_learning_rate(self, step: int) -> None:
        """Set the learning rate, which depends only on the step."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.parts.schedule(step)

    def accumulate(self, share: Sequence[Piece], step: int) -> Tensor:
        """Compute the gradient of an update, over all ranks, from this rank's share.

        Dropout's generator is seeded by (seed, step, piece), so that a resumed run draws the same masks.

        Returns:
            The sums of the losses over this rank's pieces, and, on rank 0, the norm of the gradient, as `Sums`: [3].
        """
        self.optimizer.zero_grad(set_to_none=True)
        losses = torch.zeros(2, dtype=torch.float64, device=self.world.device)
        for piece in share:
            key = np.random.SeedSequence((self.config.seed, step, piece.number)).generate_state(1, np.uint64)[0]
            torch.manual_seed(int(key) >> 1)
            loss = self.gradients.add(piece.batch.to(self.world.device), piece.weight, last=piece is share[-1])
            losses += loss * (piece.weight > 0)
        norm = torch.nn.utils.get_total_norm([p.grad for p in self.parameters if p.grad is not None])
        return torch.cat([losses, norm.double()[None] if self.world.is_main else losses.new_zeros(1)])

    def choose_micro_batches(self, run: Run) -> None:
        """Take the number of micro-batches with which the run began on as many ranks, or find one that fits."""
        state = run.state
        recorded = state.micro_batches if state.ranks == self.world.size else 0
        self.micro_batches = recorded or self.micro_batches
        if self.world.device.type == "cuda":
            self.try_state()
            self.try_largest()
        if self.micro_batches > (recorded or self.parts.micro_batches):
            run.reporter.note(f"the GPU's memory is too small for larger micro-batches: {self.micro_batches} an update")
        state.ranks, state.micro_batches = self.world.size, self.micro_batches

    def try_state(self) -> None:
        """Check that gradients and Adam's two moments fit into memory. If they do not, smaller batches do not help.

        Raises:
            TrainingError: they do not.
        """
        missing = self.parameters if self.optimizer.state else 3 * self.parameters
        try:
            stand_ins = [torch.empty_like(parameter) for parameter in missing]
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            raise TrainingError(
                "out of memory: the weights, their gradients and the optimizer's state do not fit into this GPU; "
                "choose a smaller model"
            ) from error
        del stand_ins

    def try_largest(self) -> None:
        """Double the number of micro-batches, if it was not given, until the largest fit into memory.

        They are the largest in the first updates, which are a random sample of the data. Layers are compiled here, in a
        resumed run as in a new one, so that both compute with the same code.

        Raises:
            TrainingError: there is not enough memory, and the message names the micro-batch; or a layer cannot be
                compiled.
        """
        largest = self.largest()
        full = not self.fits(largest)
        if full and (self.config.micro_batches or max(len(batch.source) for batch in largest) == 1):
            raise out_of_memory(largest, self.micro_batches)
        if self.world.start_any([full])()[0]:
            self.micro_batches *= 2
            self.try_largest()

    def largest(self) -> list[Batch]:
        """Return the micro-batches that need most memory."""
        plan = self.parts.plan
        sample = islice(plan.epoch(0), TRIED_UPDATES)
        pieces = [indices for update in sample for indices in plan.pieces(update, self.micro_batches)]
        # Hidden states grow with the length, attention weights with its square; packed, both grow with the rows, and
        # attention's gradient also with the sentences.
        sizes: list[Callable[[Indices], int]] = [
            lambda piece: len(piece) * int(plan.padded_lengths(piece).sum()),
            lambda piece: len(piece) * int((plan.padded_lengths(piece) ** 2).sum()),
        ]
        if plan.packed:
            sizes = [lambda piece: int(plan.source_lengths[piece].sum()) + plan.target_tokens(piece), len]
        largest = [max(pieces, key=size) for size in sizes]
        return [load(plan, self.parts.corpus, piece, self.world.device) for piece in largest]

    def fits(self, batches: Sequence[Batch]) -> bool:
        """Return whether there is enough memory to run `batches` forwards and backwards, without an update."""
        try:
            # Stand-ins for Adam's two moments, which are allocated at the first step.
            moments = [] if self.optimizer.state else [torch.ones_like(p) for p in 2 * self.parameters]
            for batch in batches:
                self.gradients.add(batch.to(self.world.device), 1.0)
            del moments
        except RuntimeError as error:
            if isinstance(error, torch._dynamo.exc.TorchDynamoException):
                reason = str(error).strip().splitlines()[0]
                raise TrainingError(f"a layer cannot be compiled: {reason}; --no-compile trains without") from error
            if not is_out_of_memory(error):
                raise
            return False
        finally:
            self.optimizer.zero_grad(set_to_none=True)
        return True


def step_if(finite: Tensor, optimizer: torch.optim.Optimizer) -> None:
    """Make a step of `optimizer` if `finite`, a boolean of its device, which decides if the optimizer can leave it to.

    torch's fused optimizers can; `GradScaler` asks them by the same attributes.
    """
    if getattr(optimizer, "_step_supports_amp_scaling", False):
        optimizer.found_inf = (~finite).float()  # type: ignore[attr-defined]
        optimizer.step()
    elif finite:
        optimizer.step()


@contextlib.contextmanager
def explain_out_of_memory(batches: Sequence[Batch], micro_batches: int) -> Iterator[None]:
    """Raise a TrainingError that names the largest of `batches` when memory runs out inside."""
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise out_of_memory(batches, micro_batches) from error


def out_of_memory(batches: Sequence[Batch], micro_batches: int) -> TrainingError:
    """Return the error that names the largest of `batches`."""
    largest = max(batches, key=lambda batch: batch.source.numel() + batch.target_in.numel())
    source, target = largest.source.shape[1], largest.target_in.shape[1]
    return TrainingError(
        f"out of memory on a micro-batch of {counted(len(largest.source), 'sentence')}, {source} source and {target} "
        f"target tokens each. An update has {micro_batches} micro-batches: try --micro-batches {2 * micro_batches} "
        "(the updates stay as large), with a new --out."
    )
