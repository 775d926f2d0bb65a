"""Outputs of the same sentences at each validation (`nmt train --show`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nmt_cli.errors import UsageError
from nmt_cli.registry import option, register
from nmt_cli.training.observers import Observer

if TYPE_CHECKING:
    from nmt_cli.training.run import Run


@dataclass(frozen=True)
class ExamplesConfig:
    show: int = option(
        0,
        "Show the greedy outputs of N validation sentences at each validation.",
        minimum=0,
        metavar="N",
        may_change=True,
    )


@register("observer", "examples", ExamplesConfig)
class Examples(Observer):
    """Sentences at equal distances in the validation set."""

    def __init__(self, config: ExamplesConfig, run: Run) -> None:
        super().__init__(config, run)
        if run.valid is None:
            raise UsageError(
                "--show: the data have no validation set; run nmt prepare with --valid PREFIX"
            )
        if run.config.model_parallel:
            raise UsageError("--show cannot be used with --model-parallel: there can be no search")

    def validated(self) -> dict[str, Any]:
        """Return source, reference and output of each sentence."""
        # Not at the top: it imports torch, which help must not.
        from nmt_cli.training.validation import greedy_outputs

        run = self.run
        sources, references = run.valid.raw_lines("source"), run.valid.raw_lines("target")
        count = min(self.config.show, len(sources))
        chosen = [len(sources) * i // count for i in range(count)]
        outputs = greedy_outputs(run.model, run.task, [sources[i] for i in chosen], run.world)
        examples = [
            {"source": sources[i], "reference": references[i], "output": output}
            for i, output in zip(chosen, outputs, strict=True)
        ]
        return {"examples": examples}

    def logged(self, record: Mapping[str, Any]) -> None:
        for example in record.get("examples", ()):
            lines = [f"  {name + ':':<11}{line}" for name, line in example.items()]
            self.run.reporter.note("\n".join(lines))
