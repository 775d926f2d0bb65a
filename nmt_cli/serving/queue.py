"""Texts that wait for translation. Those that arrive while others are being translated become one batch."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from nmt_cli.decoding.outputs import Translation


class TranslationQueue:
    """Texts in order of arrival, translated in batches by threads, beside the event loop that the queue belongs to.

    A batch starts as soon as one of the `parallel` places is free: nothing waits for others to come. Places that are
    free at the same time share what waits. A request that is cancelled takes its texts out of the queue.

    Args:
        translate: returns an answer for each text, in order. It is called in a thread.
        parallel: the number of batches at a time.
        largest: the number of texts in a batch, at most.
        started: called with the number of texts of each batch.
    """

    def __init__(
        self,
        translate: Callable[[list[str]], Sequence[Translation]],
        *,
        parallel: int,
        largest: int,
        started: Callable[[int], object] = lambda texts: None,
    ) -> None:
        self._translate, self._largest, self._started = translate, largest, started
        self._free = parallel
        self._threads = ThreadPoolExecutor(parallel)
        self._waiting: dict[asyncio.Future[Translation], str] = {}  # in order of arrival

    def __len__(self) -> int:
        """Return the number of texts that wait; those being translated do not."""
        return len(self._waiting)

    async def translate(self, texts: Sequence[str]) -> list[Translation]:
        """Return the answer to each text, in order; raise the error of `translate`, for all texts of its batch."""
        answers: list[asyncio.Future[Translation]] = [asyncio.get_running_loop().create_future() for _ in texts]
        self._waiting.update(zip(answers, texts, strict=True))
        self._start()
        try:
            return await asyncio.gather(*answers)
        finally:
            for answer in answers:
                self._waiting.pop(answer, None)
                answer.cancel()

    def _start(self) -> None:
        while self._free and self._waiting:
            count = min(self._largest, -(-len(self) // self._free))
            batch = {answer: self._waiting.pop(answer) for answer in [*itertools.islice(self._waiting, count)]}
            self._free -= 1
            self._started(count)
            work = asyncio.get_running_loop().run_in_executor(self._threads, self._translate, [*batch.values()])
            work.add_done_callback(partial(self._finish, [*batch]))

    def _finish(self, answers: list[asyncio.Future[Translation]], work: asyncio.Future[Sequence[Translation]]) -> None:
        self._free += 1
        self._start()
        error = work.exception()
        for number, answer in enumerate(answers):
            if not answer.done():  # its request may have been cancelled
                if error:
                    answer.set_exception(error)
                else:
                    answer.set_result(work.result()[number])
