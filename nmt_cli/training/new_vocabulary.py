"""The weights of a checkpoint for data with another vocabulary (`nmt train --new-vocabulary`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from nmt_cli import checkpoint, registry
from nmt_cli.config import RunConfig
from nmt_cli.interfaces import SPECIAL_SYMBOLS
from nmt_cli.task import Task
from nmt_cli.training.origin import Origin

_SIZES = {"source": 1_000_003, "target": 1_000_033}
"""Sizes of vocabularies that no other dimension of a model has."""


def model_without_weights(config: RunConfig, vocabulary: Mapping[str, Any]) -> Any:
    """Return the model on the meta device: names and shapes of its parameters, and nothing in memory."""
    with checkpoint.WithoutInitialisation(), torch.device("meta"):
        return registry.build(config["model"], attention=config["attention"], **vocabulary)


def start_from(origin: Origin, model: Any, config: RunConfig, task: Task, note: Callable[[str], None]) -> None:
    """Give the weights of its origin to a model for `task`.

    If their vocabularies differ, the rows of a parameter with one for each entry of a vocabulary are matched by piece,
    and the other rows stay. A joint vocabulary gets them from the former source, and then from the former target.
    """
    assert origin.weights is not None
    weights = dict(origin.weights)
    if origin.task is not None:
        former, new = (vocabulary_rows(config, each) for each in (origin.task, task))
        initial = checkpoint.weights_of(model)
        weights |= {name: initial[name].cpu().clone() for name, _ in new.values()}
        joint = task.shared_vocabulary
        taken: dict[str, set[int]] = {"joint": set()} if joint else {"source": set(), "target": set()}
        for alias in sorted(former.keys() & new.keys()):
            (before, former_side), (name, side) = former[alias], new[alias]
            places = {piece: place for place, piece in enumerate(pieces_of(origin.task, former_side))}
            found = [(row, places[piece]) for row, piece in enumerate(pieces_of(task, side)) if piece in places]
            rows, chosen = torch.tensor(found).T
            weights[name][rows] = origin.weights[before][chosen]
            taken["joint" if joint else side].update(rows.tolist())
        for label, rows_taken in taken.items():
            count, size = len(rows_taken), len(pieces_of(task, "target" if joint else label))
            note(f"{count:,} of {size:,} {label} pieces taken over; {size - count:,} new")
            if 2 * count < size:
                note(f"warning: fewer than half of the {label} pieces are in the vocabulary of the checkpoint")
        weights = {name: weight for name, weight in weights.items() if name in initial}
    checkpoint.assign_weights(model, weights, origin.record["path"])


def vocabulary_rows(config: RunConfig, task: Task) -> dict[str, tuple[str, str]]:
    """Return the parameters with a row for each entry of a vocabulary: the name of each and the vocabulary's side.

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
