"""Validation during training: scores of greedy outputs."""

from __future__ import annotations

from typing import Any

from nmt_cli.data.corpus import Corpus
from nmt_cli.decoding.options import SearchOptions, TranslateOptions
from nmt_cli.decoding.own_engine import OwnEngine
from nmt_cli.decoding.translator import Translator
from nmt_cli.distributed import World
from nmt_cli.task import Task


def translation_scores(model: Any, task: Task, corpus: Corpus, world: World) -> dict[str, float]:
    """Return the task's scores of `corpus`, each as `validation_NAME`. Leaves the model in training mode.

    The outputs are those of `nmt translate --beam 1`: of raw lines, with products in float32. The ranks share the work.
    """
    model.eval()
    greedy = TranslateOptions(search=SearchOptions(beam=1))
    translator = Translator(OwnEngine(task, model.decodable("float32"), world.device), greedy)
    lines, size = corpus.raw_lines("source"), world.size
    shares = world.gather(translator.translate(lines[world.rank :: size]))
    hypotheses = [shares[number % size][number // size] for number in range(len(lines))]
    model.train()
    return {
        f"validation_{name}": value for name, value in task.evaluate(hypotheses, corpus.raw_lines("target")).items()
    }
