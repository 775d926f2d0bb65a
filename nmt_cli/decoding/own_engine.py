"""nmt's own engine: beam search, or a search in its place, with a model in this process."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import torch

from nmt_cli.checkpoint import load_model, locate
from nmt_cli.data.batching import pad
from nmt_cli.decoding.beam_search import beam_search
from nmt_cli.decoding.constraints import AllOf, rules_of
from nmt_cli.decoding.engine import Loading, Request
from nmt_cli.decoding.ensemble import Ensemble
from nmt_cli.decoding.options import SearchSettings, TranslateOptions
from nmt_cli.device import fast, in_halves, is_out_of_memory
from nmt_cli.errors import CheckpointError, NmtError
from nmt_cli.interfaces import EOS, Decodable, Hypothesis
from nmt_cli.model import Model
from nmt_cli.task import Task


@dataclass(frozen=True)
class OwnEngine:
    """An `Engine`."""

    task: Task
    model: Decodable = field(repr=False)  # pages long
    device: torch.device
    models: Sequence[Model] = field(default=(), repr=False)
    folders: Sequence[Path] = ()
    parallel: None = None

    @classmethod
    def of(
        cls,
        task: Task,
        models: Sequence[Model],
        device: torch.device,
        dtype: str,
        folders: Sequence[Path] = (),
    ) -> OwnEngine:
        """Return the engine of a model in evaluation mode, or of several as an ensemble.

        For `dtype`, see `Plain.decodable`.
        """
        decodables = [fast(device).decodable(model, dtype) for model in models]
        decodable: Decodable = Ensemble(decodables)
        if len(decodables) == 1:
            decodable = decodables[0]
        return cls(task, decodable, device, models, folders)

    @cached_property
    def beam_search(self) -> Callable[..., list[list[Hypothesis]]]:
        """`beam_search` with the model of this engine, as the device does it best."""
        return fast(self.device).search(self.model, beam_search)

    def check(self, options: TranslateOptions) -> None:
        """See `Engine`."""
        rules_of(self.task, options)

    def search(
        self,
        batches: Sequence[Sequence[Request]],
        search: SearchSettings,
        options: TranslateOptions,
    ) -> Iterator[list[list[Hypothesis]]]:
        """See `Engine`. A batch that does not fit in memory is searched in halves."""

        def too_large(request: Request) -> str:
            return (
                f"out of memory on a line of {len(request.ids)} tokens, with a beam of "
                f"{search.beam} and up to {request.limit} tokens of output: use a smaller beam, "
                "nbest, max_length_offset or max_source_length"
            )

        for batch in batches:
            yield in_halves(lambda part: self._search(part, search, options), batch, too_large)

    def _search(
        self, batch: Sequence[Request], search: SearchSettings, options: TranslateOptions
    ) -> list[list[Hypothesis]]:
        prefixes = any(request.prefix for request in batch)
        rules = rules_of(self.task, options, prefixes)
        for rule in rules:
            batch = [rule.prepared(request) for request in batch]
        constraint = None
        if rules:
            constraint = AllOf([rule.constraint(batch, search, self.device) for rule in rules])
        if prefixes:
            search = dataclasses.replace(search, unknown=True)  # the constraint decides about it
        source = pad([[*request.ids, EOS] for request in batch]).to(self.device)
        if search.run is not None:
            outputs: list[list[Hypothesis]] = search.run(
                self.model, source, batch, search, constraint
            )
            return outputs
        limits = [request.limit for request in batch]
        return self.beam_search(source, limits, search, constraint)


def load(loading: Loading) -> OwnEngine:
    """See `Load` in `engine.py`."""
    device = loading.device
    fast(device).prepare_decoding()
    folders = [locate(path) for path in loading.checkpoints]
    dtype = fast(device).decoding_dtype() if loading.dtype == "auto" else loading.dtype
    try:
        models = list[Model]()
        tasks = list[Task]()
        for folder in folders:
            model, task = load_model(folder, device)
            models.append(model)
            tasks.append(task)
        engine = OwnEngine.of(tasks[0], models, device, dtype, folders)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        paths = ", ".join(map(str, folders))
        raise NmtError(f"{paths}: out of memory on {device}; use another device") from error
    for folder, task in zip(folders[1:], tasks[1:], strict=True):
        _check_same_vocabularies(folders[0], tasks[0], folder, task)
    for path, folder in zip(loading.checkpoints, folders, strict=True):
        if folder != path:
            loading.say(f"{path}: using {folder}")
    return engine


def _check_same_vocabularies(first: Path, first_task: Task, other: Path, other_task: Task) -> None:
    """Raise CheckpointError unless a text has the same ids in both tasks."""
    difference = first_task.difference(other_task)
    if difference is not None:
        raise CheckpointError(
            f"{other} and {first} cannot be an ensemble: they differ in the {difference}. "
            "Train the models on the same prepared data, or on data prepared with the same "
            "subwords."
        )
