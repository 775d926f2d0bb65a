"""Observers of a run, such as a log for another program (`nmt train --tensorboard`).

An observer is registered with a frozen dataclass, whose fields are flags of `nmt train`. It is used
if one of them is not at its default. Its methods are called on all ranks but where they say so.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # help shows the flags of observers without torch
    from torch import Tensor


class Observer:
    """Does nothing: a subclass has the methods that it needs.

    A run saves weights for it, with `saved`, and nothing else. So all that it knows must follow
    from the step, the weights and metrics.jsonl, that a run may resume exactly.

    Args:
        config: an instance of the dataclass that it is registered with.
        run: the `Run`, to read. The model has its first weights. The run's directory may not exist
            yet.

    Raises:
        UsageError: it cannot be used in this run.
    """

    def __init__(self, config: Any, run: Any) -> None:
        self.config, self.run = config, run

    def resumed(self) -> None:
        """Take what a resumed run has saved. The model has the weights of the checkpoint, as
        `saved` returned them.
        """

    def started(self) -> None:
        """Begin, before the first update here. A resumed run has what it was saved with, and no
        later metrics.
        """

    def updated(self, step: int) -> None:
        """Act after an update, on the device: this must not wait for it."""

    def validating(self) -> contextlib.AbstractContextManager[None]:
        """Return a context for a validation, of all observers."""
        return contextlib.nullcontext()

    def validated(self) -> dict[str, Any]:
        """Return more values of a validation, for its line of metrics."""
        return {}

    def saved(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the weights of a checkpoint in place of the model's own, which resuming goes on
        from.
        """
        return weights

    def logged(self, record: Mapping[str, Any]) -> None:
        """Take a line of metrics.jsonl, on the main rank only."""
