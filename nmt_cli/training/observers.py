"""Observers of a run, such as a log for another program (`nmt train --tensorboard`).

An observer is registered with a frozen dataclass, whose fields are flags of `nmt train`. It is used
if one of them is not at its default. Its methods are called on all ranks unless they say otherwise.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # help shows the flags of observers without torch
    from torch import Tensor


class Observer:
    """Does nothing: a subclass has the methods that it needs.

    A run saves weights for it, with `saved`, and nothing else. So that a run resumes exactly, all
    state of an observer must follow from the step, the weights and metrics.jsonl.

    Args:
        config: an instance of the dataclass that it is registered with.
        run: the `Run`, to be read only. The model has its first weights. The run's directory may
            not exist yet.

    Raises:
        UsageError: it cannot be used in this run.
    """

    def __init__(self, config: Any, run: Any) -> None:
        self.config, self.run = config, run

    def resumed(self) -> None:
        """Take the weights of a checkpoint, which the model has as `saved` returned them."""

    def started(self) -> None:
        """Begin, before the first update of this process.

        The state of a resumed run is restored, and its metrics end there.
        """

    def updated(self, step: int) -> None:
        """Act after an update. It may still be computed, and this must not wait for the device."""

    def validating(self) -> contextlib.AbstractContextManager[None]:
        """Return a context for the validation, `validated` of all observers included."""
        return contextlib.nullcontext()

    def validated(self) -> dict[str, Any]:
        """Return more values of a validation, for its line of metrics."""
        return {}

    def saved(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the weights for a checkpoint. A resumed run goes on from the model's own."""
        return weights

    def logged(self, record: Mapping[str, Any]) -> None:
        """Take a line of metrics.jsonl, on the main rank only."""
