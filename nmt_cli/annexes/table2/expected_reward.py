"""Expected reward mixed with likelihood, to refine a trained model (Wu et al. 2016, section 5,
equations 7 to 9).

For each sentence X with the reference Y*, what is maximised is

    O_Mixed = alpha * log P(Y* | X) + E[r(Y, Y*)],    Y drawn from the model's P(Y | X),    r = GLEU.

The gradient of the expectation is estimated from m samples Y_1 ... Y_m, and r_mean, the mean of
their rewards:

    sum over i of (r(Y_i, Y*) - r_mean) / (m - 1) * grad log P(Y_i | X).

The paper does not give the divisor; as r_mean has a share of each sample's own reward, m - 1 makes
the estimate unbiased. GLEU is computed on subwords. Padding and the begin of a sentence are never
drawn, as in decoding. Without dropout, as in the paper: so the samples are drawn from the
distribution whose gradient is taken.

Letters: B sentences, m samples of each, A sentences with samples that have not ended, N rows of the
decoder's state, L length of the longest sample, T target length, V vocabulary.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from nmt_cli.annexes.table2.settings import ExpectedRewardConfig
from nmt_cli.criteria.label_smoothed_cross_entropy import LabelSmoothedCrossEntropy
from nmt_cli.criteria.settings import LabelSmoothingConfig
from nmt_cli.decoding.choice import drawn
from nmt_cli.device import autocast, fast, product_dtype
from nmt_cli.interfaces import BOS, EOS, PAD, Batch, Decodable, Loss

NEVER = [PAD, BOS]  # ids that are not part of an output
ROWS = 512  # rows of the logits [ROWS, V] that exist at a time


class ExpectedReward(LabelSmoothedCrossEntropy):
    """The negative of O_Mixed, with the mean reward of the samples as the expectation.

    In evaluation mode it is the negative log-likelihood, and nothing is drawn.
    """

    refines = True  # samples of an untrained model have no reward
    takes_bins = False

    def __init__(self, config: ExpectedRewardConfig) -> None:
        super().__init__(LabelSmoothingConfig(label_smoothing=0.0))
        self.config = config

    def __call__(self, model: Any, batch: Batch) -> Loss:
        """See `Criterion`."""
        if not model.training:
            return super().__call__(model, batch)
        with without_dropout(model):
            likelihood = super().__call__(model, batch)
            samples = self.draw(model, batch)
        rewards = rewards_of(samples, batch.target_out)
        advantages = (rewards - rewards.mean(1, keepdim=True)) / (self.config.samples - 1)
        estimate = likelihood.total.new_zeros(())
        # One sample of each sentence at a time, computed again in the backward pass: in the memory
        # of the likelihood.
        for targets, advantage in zip(samples.unbind(1), advantages.unbind(1), strict=True):
            piece = with_targets(batch, targets)
            log_p = checkpoint(
                self.log_probabilities, model, piece, use_reentrant=False, preserve_rng_state=False
            )
            estimate = estimate + (advantage * log_p).sum()
        reward = rewards.mean(1).sum()
        objective = (
            self.config.likelihood_weight * -likelihood.total
            + reward
            + (estimate - estimate.detach())
        )
        return Loss(-objective, likelihood.nll, batch.num_tokens)

    def draw(self, model: Any, batch: Batch) -> Tensor:
        """Return samples of each sentence, with EOS unless they are cut, and padded: [B, m, L]."""
        dtype = str(product_dtype(model.output_weight)).removeprefix("torch.")
        limits = (batch.source != PAD).sum(1) - 1 + self.config.max_length_offset
        with (
            torch.no_grad(),
            autocast(batch.source.device, "float32"),
        ):  # the decodable chooses its own types
            return draw(
                fast(batch.source.device).decodable(model, dtype),
                batch.source,
                limits.clamp(min=1),
                self.config.samples,
            )

    def log_probabilities(self, model: Any, batch: Batch) -> Tensor:
        """Return log P(Y | X) of each sentence: [B]."""
        with without_dropout(model):
            hidden, targets = self.outputs(model, batch)
        parts = []
        for rows, ids in zip(
            torch.split(hidden[: len(targets)], ROWS), torch.split(targets, ROWS), strict=True
        ):
            logits = F.linear(rows, model.output_weight, model.output_bias).float()
            logits[:, NEVER] = -torch.inf
            parts.append(-F.cross_entropy(logits, ids, reduction="none"))
        log_p = torch.cat(parts)
        real = batch.target_out != PAD
        return log_p.new_zeros(real.shape).masked_scatter(real, log_p).sum(1)


def draw(model: Decodable, source: Tensor, limits: Tensor, m: int) -> Tensor:
    """Return m independent samples of each sentence: [B, m, L], with EOS unless they are cut, and
    padded.

    Args:
        source: [B, S], padded, each row ends in EOS.
        limits: [B], the length at which a sentence's samples are cut.
    """
    B, device = len(source), source.device
    state, last = model.start(source), torch.full((B,), BOS, device=device)  # [N]
    # [A, m] of N: the rows of the state.
    rows = torch.arange(B, device=device)[:, None].expand(B, m)
    live, ended = torch.arange(B, device=device), torch.zeros(B, m, dtype=torch.bool, device=device)
    samples: list[Tensor] = []
    while len(live):
        scores, state = model.step(last, state)
        scores[:, NEVER] = -torch.inf
        random = torch.rand(rows.numel(), 2, dtype=torch.float64, device=device)
        tokens = (
            drawn(scores.exp_(), rows.flatten(), random).view_as(rows).masked_fill(ended[live], PAD)
        )
        samples.append(torch.full((B, m), PAD, device=device).index_copy(0, live, tokens))
        ended[live] |= tokens == EOS
        ended |= (limits <= len(samples))[:, None]
        lives = ~ended[live].all(1)
        rows, live, last = rows[lives], live[lives], tokens[lives].flatten()
        if len(live) and (
            len(samples) == 1 or not lives.all()
        ):  # otherwise each row continues itself
            state = state.select(rows)
        rows = torch.arange(rows.numel(), device=device).view_as(rows)
    return torch.stack(samples, 2)


def rewards_of(samples: Tensor, references: Tensor) -> Tensor:
    """Return the GLEU of samples [B, m, L] against references [B, T]: [B, m]."""
    rewards = []
    for outputs, reference in zip(samples.tolist(), references.tolist(), strict=True):
        target = ngrams(reference)
        rewards.append([gleu(ngrams(output), target) for output in outputs])
    return torch.tensor(rewards, device=samples.device)


def ngrams(ids: Sequence[int]) -> Counter[tuple[int, ...]]:
    """Return how often each sequence of 1 to 4 tokens occurs, without EOS and padding."""
    ids = [token for token in ids if token not in (PAD, EOS)]
    return Counter(tuple(ids[i : i + n]) for n in (1, 2, 3, 4) for i in range(len(ids) - n + 1))


def gleu(output: Counter[tuple[int, ...]], target: Counter[tuple[int, ...]]) -> float:
    """Return the smaller of the precision and the recall of n-grams, from 0 to 1; 0 without any
    n-gram.
    """
    return (output & target).total() / max(output.total(), target.total(), 1)


def with_targets(batch: Batch, targets: Tensor) -> Batch:
    """Return the batch with other targets [B, L], padded."""
    target_out = targets[:, (targets != PAD).any(0)]
    target_in = F.pad(target_out, (1, -1), value=BOS)
    target_in = target_in.masked_fill(target_in == EOS, PAD)
    return Batch(batch.source, target_in, target_out, int((target_out != PAD).sum()))


@contextlib.contextmanager
def without_dropout(model: nn.Module) -> Iterator[None]:
    """Put the model into evaluation mode, and back."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        for module, training in modes:
            # In evaluation mode, cuDNN's recurrent layers have no gradient. Here they have no
            # dropout of their own.
            module.training = training and isinstance(module, nn.RNNBase)
        yield
    finally:
        for module, training in modes:
            module.training = training
