"""Worker processes for translation on a CPU.

Several processes of one thread each are faster than one process of several threads.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from nmt_cli.cores import available_cores
from nmt_cli.data.parallel import Workers
from nmt_cli.decoding.translator import Translator
from nmt_cli.errors import UsageError


def default_workers(device: torch.device) -> int:
    """Return the number of batches to translate at a time.

    On a CPU, it is one for each thread that PyTorch would use.
    """
    if device.type != "cpu":
        return 1
    return min(available_cores(), torch.get_num_threads())


@contextmanager
def translation_workers(translator: Translator, count: int | None) -> Iterator[Workers | None]:
    """Yield processes for `Translator.translate_window`, which share the weights, or None for one.

    An engine with threads of its own needs none. With several, this process computes with one
    thread, too: it translates a batch that comes alone.

    Args:
        count: the number of processes; None is one for each thread that PyTorch would use, which is
            one for each core or OMP_NUM_THREADS, and one elsewhere than on Linux.

    Raises:
        UsageError: the device is not a CPU.
    """
    device = translator.engine.device
    if translator.engine.parallel is not None:
        yield None
        return
    processes = count or 1
    if processes > 1 and device.type != "cpu":
        raise UsageError(f"--workers {count}: several processes translate only on a CPU")
    if count is None and sys.platform == "linux":
        processes = default_workers(device)
    if processes == 1:
        yield None
        return
    threads = torch.get_num_threads()
    # Threads that wait for one another are slow on a machine that is not idle.
    torch.set_num_threads(1)
    try:
        with Workers(translator, processes) as workers:
            yield workers
    finally:
        torch.set_num_threads(threads)
