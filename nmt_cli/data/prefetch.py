"""Batches made ahead of their use, by a thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


def prefetched(
    make: Callable[[Item], Result], items: Iterable[Item], ahead: int, device: torch.device
) -> Generator[Result]:
    """Yield `make(item)` in order. A thread makes up to `ahead` of them before they are needed.

    An error of `make` or of `items` is raised where its result is asked for. Closing the generator
    stops the thread.

    Args:
        device: where CUDA calls of `make`, such as `Tensor.pin_memory`, belong.
    """
    remaining = iter(items)
    if device.type == "cuda":
        thread = ThreadPoolExecutor(1, "prefetch", torch.cuda.set_device, (device,))
    else:
        thread = ThreadPoolExecutor(1, "prefetch")
    results: deque[Future[Result]] = deque()
    try:
        while True:
            while len(results) <= ahead:
                results.append(thread.submit(lambda: make(next(remaining))))
            try:
                result = results.popleft().result()
            except StopIteration:
                return
            yield result
    finally:
        thread.shutdown()  # what is begun ends on all ranks, which may exchange text
