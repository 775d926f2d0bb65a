"""Batches made ahead of their use, by a thread."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


class Prefetcher(Generic[Item, Result], Iterator[Result]):
    """The results of `make(item)`, in order, of which a thread makes up to `ahead` before they are asked for.

    An error of `make` or of `items` is raised where its result is asked for. Leaving the context stops the thread.

    Args:
        device: where CUDA calls of `make`, such as `Tensor.pin_memory`, belong.
    """

    def __init__(self, make: Callable[[Item], Result], items: Iterable[Item], ahead: int, device: torch.device) -> None:
        self.waited = 0.0  # seconds that the consumer has waited
        self._make, self._items = make, iter(items)
        initialise = (torch.cuda.set_device, (device,)) if device.type == "cuda" else (None, ())
        self._thread = ThreadPoolExecutor(1, "prefetch", *initialise)
        self._results: deque[Future[Result]] = deque()
        for _ in range(ahead):
            self._submit()

    def __next__(self) -> Result:
        began = time.perf_counter()
        self._submit()
        try:
            return self._results.popleft().result()  # it raises StopIteration, too
        finally:
            self.waited += time.perf_counter() - began

    def __enter__(self) -> Prefetcher[Item, Result]:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown(cancel_futures=True)

    def _submit(self) -> None:
        self._results.append(self._thread.submit(lambda: self._make(next(self._items))))
