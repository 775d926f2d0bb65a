"""Validation during training: greedy outputs, and their scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nmt_cli.data.corpus import Corpus
from nmt_cli.decoding.options import SearchOptions, TranslateOptions
from nmt_cli.decoding.own_engine import OwnEngine
from nmt_cli.decoding.translator import Translator
from nmt_cli.distributed import World
from nmt_cli.task import Task


def translation_scores(model: Any, task: Task, corpus: Corpus, world: World) -> dict[str, float]:
    """Return the task's scores of `corpus`, each as `validation_NAME`."""
    hypotheses = greedy_outputs(model, task, corpus.raw_lines("source"), world)
    return {
        f"validation_{name}": value for name, value in task.evaluate(hypotheses, corpus.raw_lines("target")).items()
    }


def greedy_outputs(model: Any, task: Task, lines: Sequence[str], world: World) -> list[str]:
    """Return the outputs of `nmt translate --beam 1`, with products in float32. The ranks share the work.

    Leaves the model in training mode.
    """
    model.eval()
    greedy = TranslateOptions(search=SearchOptions(beam=1))
    translator = Translator(OwnEngine(task, model.decodable("float32"), world.device), greedy)
    shares = world.gather(translator.translate(lines[world.rank :: world.size]))
    model.train()
    return [shares[number % world.size][number // world.size] for number in range(len(lines))]
