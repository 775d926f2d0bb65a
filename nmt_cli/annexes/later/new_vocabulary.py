"""The weights of a checkpoint for data with another vocabulary (`nmt train --new-vocabulary`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor

from nmt_cli.annexes.later.settings import NewVocabularyConfig
from nmt_cli.config import RunConfig
from nmt_cli.errors import UsageError
from nmt_cli.interfaces import SPECIAL_SYMBOLS
from nmt_cli.task import Task
from nmt_cli.training.origin import Origin
from nmt_cli.training.start import model_without_weights
from nmt_cli.weights import weights_of

RECORD = "new_vocabulary"  # in the record of an origin with other vocabularies
_SIZES = {"source": 1_000_003, "target": 1_000_033}  # that no other dimension of a model has


def adapt(
    config: NewVocabularyConfig,
    *,
    model: Any,
    origin: Origin | None,
    run: RunConfig,
    task: Task | None,
    note: Callable[[str], None],
) -> Origin | None:
    """Return the origin with weights for another vocabulary, if the user has asked for it."""
    if config.new_vocabulary and origin is None:
        raise UsageError("--new-vocabulary is for --init-from; a resumed run needs neither")
    if origin is None or origin.task is None or task is None:
        return None
    if not (config.new_vocabulary or RECORD in origin.record):
        return None
    weights = weights_for(model, task, run, origin, note)
    return Origin({**origin.record, RECORD: True}, weights)


class Rows(NamedTuple):
    """A parameter with a row for each entry of a vocabulary."""

    name: str
    side: str  # of the vocabulary: source or target


def weights_for(
    model: Any, task: Task, config: RunConfig, origin: Origin, note: Callable[[str], None]
) -> dict[str, Tensor]:
    """Return the weights of the origin, which has another vocabulary, for a model for `task`.

    In a parameter with a row for each entry of a vocabulary, the rows of pieces that both
    vocabularies have are the origin's, and the other rows are the model's. A joint vocabulary gets
    them from the former source, and then from the former target.
    """
    assert origin.task is not None
    assert origin.weights is not None
    former_parameters = vocabulary_rows(config, origin.task)
    parameters = vocabulary_rows(config, task)
    initial = weights_of(model)
    weights = dict(origin.weights)
    for parameter in parameters.values():
        weights[parameter.name] = initial[parameter.name].cpu().clone()
    rows_taken: dict[str, set[int]] = {"source": set(), "target": set()}
    for alias in sorted(former_parameters.keys() & parameters.keys()):
        former = former_parameters[alias]
        parameter = parameters[alias]
        former_rows = {}
        for row, piece in enumerate(pieces_of(origin.task, former.side)):
            former_rows[piece] = row
        rows = []
        taken_from = []
        for row, piece in enumerate(pieces_of(task, parameter.side)):
            if piece in former_rows:
                rows.append(row)
                taken_from.append(former_rows[piece])
        weights[parameter.name][rows] = origin.weights[former.name][taken_from]
        rows_taken[parameter.side].update(rows)
    if task.shared_vocabulary:
        both = rows_taken["source"] | rows_taken["target"]
        report(note, "joint", len(both), task.target_vocabulary_size)
    else:
        report(note, "source", len(rows_taken["source"]), task.source_vocabulary_size)
        report(note, "target", len(rows_taken["target"]), task.target_vocabulary_size)
    return {name: weight for name, weight in weights.items() if name in initial}


def report(note: Callable[[str], None], label: str, count: int, size: int) -> None:
    """Say how many of so many pieces of a vocabulary were taken over."""
    note(f"{count:,} of {size:,} {label} pieces taken over; {size - count:,} new")
    if 2 * count < size:
        note(
            f"warning: fewer than half of the {label} pieces are in the vocabulary of the "
            "checkpoint"
        )


def vocabulary_rows(config: RunConfig, task: Task) -> dict[str, Rows]:
    """Return the parameters with a row for each entry of a vocabulary, by all of their names."""
    vocabulary: dict[str, Any] = {"shared_vocabulary": task.shared_vocabulary}
    for side, size in _SIZES.items():
        vocabulary[f"{side}_vocabulary_size"] = size
    model = model_without_weights(config, vocabulary)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    parameters = {}
    for alias, parameter in model.named_parameters(remove_duplicate=False):
        for side, size in _SIZES.items():
            if parameter.shape[:1] == (size,):
                parameters[alias] = Rows(names[id(parameter)], side)
    return parameters


def pieces_of(task: Task, side: str) -> list[str]:
    """Return the written form of each entry. The first four mean the same in every vocabulary."""
    size = getattr(task, f"{side}_vocabulary_size")
    tokens = getattr(task, f"{side}_tokens")
    return [*SPECIAL_SYMBOLS, *tokens(range(len(SPECIAL_SYMBOLS), size))]
