"""The seam for constraints on outputs, such as a grammar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nmt_cli import registry
from nmt_cli.decoding.engine import Request
from nmt_cli.decoding.options import SearchSettings, TranslateOptions
from nmt_cli.interfaces import Constraint
from nmt_cli.task import Task


class Rule:
    """What makes the constraint of a batch.

    It is registered as a component of the kind `constraint`, with a frozen dataclass of flags:
    `build(config, task=task, options=options)` returns it, or raises UsageError if it does not fit
    the task.
    """

    def prepared(self, request: Request) -> Request:
        """Return the request with the limit that its outputs need."""
        return request

    def constraint(
        self, requests: Sequence[Request], search: SearchSettings, device: torch.device
    ) -> Constraint:
        """Return the constraint of the outputs of these requests."""
        raise NotImplementedError


def rules_of(task: Task, options: TranslateOptions, prefixes: bool = False) -> list[Rule]:
    """Return the rules that the options ask for.

    Args:
        prefixes: there are requests with a prefix. The component `prefix` has the rule for them,
            and calls the others.
    """
    if prefixes:
        component = registry.find("constraint", "prefix")
        return [component.build(component.config(), task=task, options=options)]
    configs = options.used("constraint")
    return [registry.build(config, task=task, options=options) for config in configs]


@dataclass(frozen=True)
class AllOf:
    """Several constraints, all of which hold."""

    constraints: Sequence[Constraint]

    def restrict(self, scores: Tensor) -> None:
        """Set `scores` [N, V] to -inf where one of the constraints does not allow the token."""
        for constraint in self.constraints:
            constraint.restrict(scores)

    def advance(self, rows: Tensor, tokens: Tensor) -> AllOf:
        """See `Constraint`."""
        return AllOf([constraint.advance(rows, tokens) for constraint in self.constraints])
