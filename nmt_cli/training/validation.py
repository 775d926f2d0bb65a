"""Validation: loss and perplexity, and scores of greedy outputs."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from nmt_cli.data.batching import length_buckets
from nmt_cli.data.corpus import Corpus
from nmt_cli.decoding.options import SearchOptions, TranslateOptions
from nmt_cli.decoding.own_engine import OwnEngine
from nmt_cli.decoding.translator import Translator
from nmt_cli.device import Load, autocast
from nmt_cli.distributed import World, explain_lost_ranks
from nmt_cli.metrics.bleu import score
from nmt_cli.task import Task
from nmt_cli.training.gradients import Objective
from nmt_cli.training.observers import Observer
from nmt_cli.training.state import LOSS, perplexity
from nmt_cli.training.trainer import Trainer


def validation(
    trainer: Trainer, task: Task, valid: Corpus, observers: Sequence[Observer]
) -> tuple[dict[str, float], dict[str, Any]]:
    """Return the figures by name, such as `loss` and `bleu`, and the values of observers."""
    settings = trainer.config
    with contextlib.ExitStack() as contexts:
        for observer in observers:
            contexts.enter_context(observer.validating())
        tokens = trainer.fast.sizes.batch_tokens
        figures = validation_loss(
            trainer.objective, valid, trainer.world, trainer.updates.load, tokens
        )
        if settings.validation_bleu or settings.best_by != LOSS:
            names = settings.measures
            figures |= translation_scores(trainer.model, task, valid, trainer.world, names)
        values: dict[str, Any] = {}
        for observer in observers:
            values |= observer.validated()
    return figures, values


def validation_loss(
    objective: Objective, corpus: Corpus, world: World, load: Load, tokens: int
) -> dict[str, float]:
    """Return the mean loss and nll per target token, in nats, and the perplexity.

    The ranks share the sentences. A batch has up to `tokens` on each side.
    """
    groups = length_buckets(corpus.source_lengths[:], corpus.target_lengths[:], tokens)
    passes = -(-len(groups) // world.size)  # of each rank: all make as many
    sums = torch.zeros(3, dtype=torch.float64, device=world.device)  # loss, nll, tokens
    model = objective.model
    model.eval()
    with (
        torch.no_grad(),
        autocast(world.device, objective.precision),
        explain_lost_ranks(computing=True),
    ):
        for number in range(world.rank, passes * world.size, world.size):
            repeated = number >= len(groups)
            indices = groups[0] if repeated else groups[number]
            loss = objective.criterion(model, load(corpus, indices).to(world.device))
            if not repeated:
                num_tokens = sums.new_tensor(loss.num_tokens)
                sums += torch.stack([loss.total.double(), loss.nll.double(), num_tokens])
    model.train()
    total, nll, count = world.start_sum(sums)()
    mean_nll = nll / count
    return {"loss": total / count, "nll": mean_nll, "perplexity": perplexity(mean_nll)}


def translation_scores(
    model: Any, task: Task, corpus: Corpus, world: World, names: Sequence[str] = ()
) -> Mapping[str, float]:
    """Return the task's scores of `corpus`, and those of the metrics called `names`."""
    sources, references = corpus.raw_lines("source"), corpus.raw_lines("target")
    hypotheses = greedy_outputs(model, task, sources, world)
    figures = dict(task.evaluate(hypotheses, references))
    if others := [name for name in names if name not in (LOSS, *figures)]:
        lines = hypotheses, list(references), others, task.target_language, list(sources)
        figures |= {result.metric: result.score for result in score(*lines)}
    return figures


def greedy_outputs(model: Any, task: Task, lines: Sequence[str], world: World) -> list[str]:
    """Return the outputs of `nmt translate --beam 1`, with products in float32.

    The ranks share the lines. The model is left in training mode.
    """
    model.eval()
    greedy = TranslateOptions(search=SearchOptions(beam=1))
    translator = Translator(OwnEngine.of(task, [model], world.device, "float32"), greedy)
    shares = world.gather(translator.translate(lines[world.rank :: world.size]))
    model.train()
    # Line n was line n // size of rank n % size.
    return [shares[number % world.size][number // world.size] for number in range(len(lines))]
