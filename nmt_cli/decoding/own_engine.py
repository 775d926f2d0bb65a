"""nmt's own engine: beam search, or a search in its place, with a model in this process."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt_cli.checkpoint import locate
from nmt_cli.cores import Sizes, available_cores
from nmt_cli.data.batching import pad
from nmt_cli.data.parallel import Workers
from nmt_cli.decoding.beam_search import beam_search
from nmt_cli.decoding.constraints import AllOf, rules_of
from nmt_cli.decoding.engine import Loading, Request
from nmt_cli.decoding.ensemble import Ensemble
from nmt_cli.decoding.options import SearchSettings, TranslateOptions
from nmt_cli.device import choose_device, fast, in_halves, is_out_of_memory
from nmt_cli.errors import CheckpointError, NmtError, UsageError
from nmt_cli.interfaces import EOS, Constraint, Decodable, Hypothesis
from nmt_cli.layers.embedding import learned_positions
from nmt_cli.model import Model
from nmt_cli.task import Task
from nmt_cli.weights import load_model


@dataclass(frozen=True)
class OwnEngine:
    """An `Engine`."""

    task: Task
    model: Decodable = field(repr=False)  # pages long
    device: torch.device
    models: Sequence[Model] = field(default=(), repr=False)
    folders: Sequence[Path] = ()
    parallel: int = 1

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
    def searched(self) -> Callable[..., Iterator[list[list[Hypothesis]]]]:
        """`outputs_of` with the model of this engine, as the device does it best."""
        return fast(self.device).search(self.model, outputs_of)

    @property
    def sizes(self) -> Sizes:
        """See `Engine`."""
        return fast(self.device).sizes

    @cached_property
    def positions(self) -> int | None:
        """See `Engine`."""
        return learned_positions(*self.models)

    @contextmanager
    def workers(self, translator: Any, count: int | None) -> Iterator[Workers | None]:
        """See `Engine`. On a CPU, several processes are faster than one with several threads.

        Each computes with one thread, and so does this process then: it translates a batch that
        comes alone. The processes share the weights. By default, there is one for each thread that
        PyTorch would use, which is one for each core or OMP_NUM_THREADS, and one elsewhere than on
        Linux.
        """
        on_cpu = self.device.type == "cpu"
        processes = count or 1
        if processes > 1 and not on_cpu:
            raise UsageError(f"--workers {count}: several processes translate only on a CPU")
        threads = torch.get_num_threads()
        if count is None and on_cpu and sys.platform == "linux":
            processes = min(available_cores(), threads)
        if processes == 1:
            yield None
            return
        # Threads that wait for one another are slow on a machine that is not idle. The processes
        # inherit the number.
        torch.set_num_threads(1)
        try:
            with Workers(translator, processes) as workers:
                yield workers
        finally:
            torch.set_num_threads(threads)

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

        def alone(batch: Sequence[Request]) -> list[list[Hypothesis]]:
            (outputs,) = self._search([batch], search, options)
            return outputs

        done = 0
        while done < len(batches):
            try:
                for outputs in self._search(batches[done:], search, options):
                    done += 1
                    yield outputs
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
            # Not in the except clause, which holds the tensors of the attempt that failed.
            if done < len(batches):
                outputs = in_halves(alone, batches[done], too_large)
                done += 1
                yield outputs

    def _search(
        self,
        batches: Sequence[Sequence[Request]],
        search: SearchSettings,
        options: TranslateOptions,
    ) -> Iterator[list[list[Hypothesis]]]:
        return self.searched(self._arguments(batch, search, options) for batch in batches)

    def _arguments(
        self, batch: Sequence[Request], search: SearchSettings, options: TranslateOptions
    ) -> tuple[Any, ...]:
        """Return what `outputs_of` takes after the model."""
        prefixes = any(request.prefix for request in batch)
        rules = rules_of(self.task, options, prefixes)
        for rule in rules:
            batch = [rule.prepared(request) for request in batch]
        constraint = None
        if rules:
            constraint = AllOf([rule.constraint(batch, search, self.device) for rule in rules])
        if prefixes:
            search = dataclasses.replace(search, unknown=True)  # the constraint decides about it
        source = pad([[*request.ids, EOS] for request in batch])
        return source, batch, search, constraint


def outputs_of(
    model: Decodable,
    source: Tensor,
    requests: Sequence[Request],
    search: SearchSettings,
    constraint: Constraint | None = None,
) -> list[list[Hypothesis]]:
    """Return what `beam_search` finds for these requests, or the search in its place."""
    if search.run is not None:
        outputs: list[list[Hypothesis]] = search.run(model, source, requests, search, constraint)
        return outputs
    limits = [request.limit for request in requests]
    return beam_search(model, source, limits, search, constraint)


def load(loading: Loading) -> OwnEngine:
    """See `Load` in `engine.py`."""
    device = choose_device(loading.device)
    fast(device).prepare_decoding()
    folders = [locate(path, loading.say) for path in loading.checkpoints]
    dtype = fast(device).decoding_dtype() if loading.dtype == "auto" else loading.dtype
    if dtype == "float16" and device.type == "cpu":
        raise UsageError("--dtype float16 needs a GPU: use float32 or bfloat16")
    try:
        loaded = [load_model(folder, device) for folder in folders]
        models = [model for model, _ in loaded]
        tasks = [task for _, task in loaded]
        engine = OwnEngine.of(tasks[0], models, device, dtype, folders)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        paths = ", ".join(map(str, folders))
        raise NmtError(f"{paths}: out of memory on {device}; use another device") from error
    for folder, task in zip(folders[1:], tasks[1:], strict=True):
        difference = tasks[0].difference(task)
        if difference is not None:
            raise CheckpointError(
                f"{folder} and {folders[0]} cannot be an ensemble: they differ in the "
                f"{difference}. Train the models on the same prepared data, or on data prepared "
                "with the same subwords."
            )
    return engine
