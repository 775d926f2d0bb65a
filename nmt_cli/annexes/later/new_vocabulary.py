"""The weights of a checkpoint for data with another vocabulary (`nmt train --new-vocabulary`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from nmt_cli import checkpoint
from nmt_cli.annexes.later.settings import NewVocabularyConfig
from nmt_cli.config import RunConfig
from nmt_cli.errors import UsageError
from nmt_cli.interfaces import SPECIAL_SYMBOLS
from nmt_cli.task import Task
from nmt_cli.training.origin import Origin
from nmt_cli.training.start import model_without_weights

RECORD = "new_vocabulary"  # in the record of an origin with other vocabularies
_SIZES = {"source": 1_000_003, "target": 1_000_033}
"""Sizes of vocabularies that no other dimension of a model has."""


def adapt(
    config: NewVocabularyConfig,
    *,
    model: Any,
    origin: Origin | None,
    run: RunConfig,
    task: Task | None,
    note: Callable[[str], None],
) -> Origin | None:
    """Return the origin with weights for a model of another vocabulary, if the user has asked for
    it.
    """
    if config.new_vocabulary and origin is None:
        raise UsageError("--new-vocabulary is for --init-from; a resumed run needs neither")
    if origin is None or origin.task is None or task is None:
        return None
    if not (config.new_vocabulary or RECORD in origin.record):
        return None
    weights = weights_for(model, task, run, origin, note)
    return Origin({**origin.record, RECORD: True}, weights)


def weights_for(
    model: Any, task: Task, config: RunConfig, origin: Origin, note: Callable[[str], None]
) -> dict[str, Tensor]:
    """Return the weights of the origin, which has another vocabulary, for a model for `task`.

    The rows of a parameter with one for each entry of a vocabulary are matched by piece, and the
    other rows are the model's. A joint vocabulary gets them from the former source, and then from
    the former target.
    """
    assert origin.task is not None
    assert origin.weights is not None
    former, new = vocabulary_rows(config, origin.task), vocabulary_rows(config, task)
    initial = checkpoint.weights_of(model)
    weights = {**origin.weights, **{name: initial[name].cpu().clone() for name, _ in new.values()}}
    joint = task.shared_vocabulary
    taken: dict[str, set[int]] = {"joint": set()} if joint else {"source": set(), "target": set()}
    for alias in sorted(former.keys() & new.keys()):
        (before, former_side), (name, side) = former[alias], new[alias]
        places = {piece: place for place, piece in enumerate(pieces_of(origin.task, former_side))}
        shared = [
            (row, places[piece])
            for row, piece in enumerate(pieces_of(task, side))
            if piece in places
        ]
        rows, former_rows = torch.tensor(shared).T
        weights[name][rows] = origin.weights[before][former_rows]
        taken["joint" if joint else side].update(rows.tolist())
    for label, rows_taken in taken.items():
        count, size = len(rows_taken), len(pieces_of(task, "target" if joint else label))
        note(f"{count:,} of {size:,} {label} pieces taken over; {size - count:,} new")
        if 2 * count < size:
            note(
                f"warning: fewer than half of the {label} pieces are in the vocabulary of the "
                "checkpoint"
            )
    return {name: weight for name, weight in weights.items() if name in initial}


def vocabulary_rows(config: RunConfig, task: Task) -> dict[str, tuple[str, str]]:
    """Return the parameters with a row for each entry of a vocabulary: the name of each and the
    vocabulary's side.

    A parameter that is shared is there by each of its names.
    """
    sizes = {f"{side}_vocabulary_size": size for side, size in _SIZES.items()}
    model = model_without_weights(config, {**sizes, "shared_vocabulary": task.shared_vocabulary})
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return {
        alias: (names[id(parameter)], side)
        for alias, parameter in model.named_parameters(remove_duplicate=False)
        for side, size in _SIZES.items()
        if parameter.shape[:1] == (size,)
    }


def pieces_of(task: Task, side: str) -> list[str]:
    """Return the written form of each entry; the first four mean the same in every vocabulary."""
    size = getattr(task, f"{side}_vocabulary_size")
    return [*SPECIAL_SYMBOLS, *getattr(task, f"{side}_tokens")(range(len(SPECIAL_SYMBOLS), size))]
