"""Expected reward mixed with likelihood, to refine a trained model (Wu et al. 2016, section 5).

For each sentence X with the reference Y*, equations 7 to 9 maximise

    O_Mixed = alpha * log P(Y* | X) + E[r(Y, Y*)],    Y drawn from P(Y | X),    r = GLEU.

The gradient of the expectation is estimated from m samples Y_1 ... Y_m, and r_mean, the mean of
their rewards:

    sum over i of (r(Y_i, Y*) - r_mean) / (m - 1) * grad log P(Y_i | X).

The paper does not give the divisor. As r_mean has a share of each sample's own reward, m - 1 makes
the estimate unbiased. GLEU is computed on subwords. Padding and the begin of a sentence are never
drawn, as in decoding. There is no dropout, as in the paper, so the samples are drawn from the
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
        # One sample of each sentence at a time, computed again in the backward pass, needs no more
        # memory than the likelihood.
        for targets, advantage in zip(samples.unbind(1), advantages.unbind(1), strict=True):
            sampled = with_targets(batch, targets)
            log_p = checkpoint(
                self.log_probabilities,
                model,
                sampled,
                use_reentrant=False,
                preserve_rng_state=False,
            )
            estimate = estimate + (advantage * log_p).sum()
        expectation = rewards.mean(1).sum()
        gradient_only = estimate - estimate.detach()  # its value is 0
        log_likelihood = -likelihood.total
        objective = self.config.likelihood_weight * log_likelihood + expectation + gradient_only
        return Loss(-objective, likelihood.nll, batch.num_tokens)

    def draw(self, model: Any, batch: Batch) -> Tensor:
        """Return samples of each sentence, with EOS unless they are cut, and padded: [B, m, L]."""
        device = batch.source.device
        dtype = str(product_dtype(model.output_weight)).removeprefix("torch.")
        source_lengths = (batch.source != PAD).sum(1) - 1  # without EOS
        limits = (source_lengths + self.config.max_length_offset).clamp(min=1)
        with torch.no_grad(), autocast(device, "float32"):  # the decodable chooses its own types
            decodable = fast(device).decodable(model, dtype)
            return draw(decodable, batch.source, limits, self.config.samples)

    def log_probabilities(self, model: Any, batch: Batch) -> Tensor:
        """Return log P(Y | X) of each sentence: [B]."""
        with without_dropout(model):
            hidden, targets = self.outputs(model, batch)
        hidden = hidden[: len(targets)]
        parts = []
        for rows, ids in zip(torch.split(hidden, ROWS), torch.split(targets, ROWS), strict=True):
            logits = F.linear(rows, model.output_weight, model.output_bias).float()
            logits[:, NEVER] = -torch.inf
            parts.append(-F.cross_entropy(logits, ids, reduction="none"))
        log_p = torch.cat(parts)  # of each real token
        real = batch.target_out != PAD
        return log_p.new_zeros(real.shape).masked_scatter(real, log_p).sum(1)


def draw(model: Decodable, source: Tensor, limits: Tensor, m: int) -> Tensor:
    """Return m independent samples of each sentence: [B, m, L], padded.

    A sample ends in EOS unless it is cut.

    Args:
        source: [B, S], padded, each row ends in EOS.
        limits: the length at which the samples of a sentence are cut: [B].
    """
    device = source.device
    B = len(source)
    state = model.start(source)
    last_tokens = torch.full((B,), BOS, device=device)  # [N]
    live = torch.arange(B, device=device)  # the sentences with samples that have not ended: [A]
    rows = live[:, None].expand(B, m)  # the row of the state for each sample: [A, m]
    ended = torch.zeros(B, m, dtype=torch.bool, device=device)
    samples: list[Tensor] = []
    while len(live) > 0:
        scores, state = model.step(last_tokens, state)
        scores[:, NEVER] = -torch.inf
        random = torch.rand(rows.numel(), 2, dtype=torch.float64, device=device)
        tokens = drawn(scores.exp_(), rows.flatten(), random).view_as(rows)
        tokens = tokens.masked_fill(ended[live], PAD)
        samples.append(torch.full((B, m), PAD, device=device).index_copy(0, live, tokens))
        ended[live] |= tokens == EOS
        ended |= (limits <= len(samples))[:, None]
        goes_on = ~ended[live].all(1)
        live = live[goes_on]
        rows = rows[goes_on]
        last_tokens = tokens[goes_on].flatten()
        # The first step makes m rows of each sentence. Later, all rows continue themselves unless
        # a sentence has ended.
        if len(live) > 0 and (len(samples) == 1 or not goes_on.all()):
            state = state.select(rows)
        rows = torch.arange(rows.numel(), device=device).view_as(rows)
    return torch.stack(samples, 2)


def rewards_of(samples: Tensor, references: Tensor) -> Tensor:
    """Return the GLEU [B, m] of samples [B, m, L] against references [B, T]."""
    rewards = []
    for outputs, reference in zip(samples.tolist(), references.tolist(), strict=True):
        target = ngrams(reference)
        rewards.append([gleu(ngrams(output), target) for output in outputs])
    return torch.tensor(rewards, device=samples.device)


def ngrams(ids: Sequence[int]) -> Counter[tuple[int, ...]]:
    """Return how often each sequence of 1 to 4 tokens occurs, without EOS and padding."""
    ids = [token for token in ids if token not in (PAD, EOS)]
    counts: Counter[tuple[int, ...]] = Counter()
    for n in (1, 2, 3, 4):
        counts.update(tuple(ids[i : i + n]) for i in range(len(ids) - n + 1))
    return counts


def gleu(output: Counter[tuple[int, ...]], target: Counter[tuple[int, ...]]) -> float:
    """Return the smaller of precision and recall of n-grams, which is 0 without any n-gram."""
    matches = (output & target).total()
    return matches / max(output.total(), target.total(), 1)


def with_targets(batch: Batch, targets: Tensor) -> Batch:
    """Return the batch with other targets [B, L], padded."""
    target_out = targets[:, (targets != PAD).any(0)]  # without columns of padding
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
