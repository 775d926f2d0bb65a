"""Texts that wait for translation. What arrives during a translation becomes one batch."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from nmt_cli.decoding.outputs import Translation

WAIT = 0.1  # of the time of a batch, for the next texts of its clients
LONGEST_WAIT = 0.05  # seconds


class Waiting(NamedTuple):
    """A text that waits."""

    text: str
    answer: asyncio.Future[Translation]


@dataclass(eq=False)
class Place:
    """A free place for a batch.

    Attributes:
        awaited: the number of waiting texts with which a batch starts here.
    """

    awaited: int = 1


class TranslationQueue:
    """Texts that are translated in batches by threads, beside the event loop of the queue.

    A batch starts as soon as one of the `parallel` places is free, with its share of all texts.
    Clients that get their answers send their next texts one after the other, so a place waits for
    as many texts as it has translated, at most for the share `WAIT` of the time that they took and
    `LONGEST_WAIT`. After a single text it does not wait. Requests take turns, so a long one does
    not keep a short one waiting. A request that is cancelled takes its texts out of the queue. A
    batch cannot be stopped, so its size is bounded.

    Args:
        translate: returns an answer for each text, in order. It is called in a thread.
        parallel: the number of batches at a time.
        largest: the number of texts in a batch, at most.
        characters: the number of characters with which a batch is full.

    Attributes:
        started: called with the number of texts of each batch.
    """

    def __init__(
        self,
        translate: Callable[[list[str]], Sequence[Translation]],
        *,
        parallel: int,
        largest: int,
        characters: int,
    ) -> None:
        self._translate, self._largest, self._characters = translate, largest, characters
        self.started: Callable[[int], object] = lambda texts: None
        self._parallel, self._running = parallel, 0
        self._free = [Place() for _ in range(parallel)]
        self._threads = ThreadPoolExecutor(parallel)
        self._requests: deque[deque[Waiting]] = deque()  # the next one whose turn it is comes first

    def __len__(self) -> int:
        """Return the number of texts that wait. Texts that are being translated do not."""
        return sum(map(len, self._requests))

    async def translate(self, texts: Sequence[str]) -> list[Translation]:
        """Return the answer to each text, in order.

        An error of the function `translate` is raised for all texts of its batch.
        """
        loop = asyncio.get_running_loop()
        answers: list[asyncio.Future[Translation]] = [loop.create_future() for _ in texts]
        waiting = deque(map(Waiting, texts, answers))
        self._requests.append(waiting)
        self._start()
        try:
            return await asyncio.gather(*answers)
        finally:
            # After an error or a cancellation, nobody needs the other answers.
            waiting.clear()
            for answer in answers:
                answer.cancel()

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        for place in [*self._free]:
            if place.awaited > len(self):
                continue
            self._free.remove(place)
            share = -(-(len(self) + self._running) // self._parallel)  # rounded up
            batch = self._next_batch(min(self._largest, share))
            self._running += len(batch)
            self.started(len(batch))
            texts = [waiting.text for waiting in batch]
            work = loop.run_in_executor(self._threads, self._translate, texts)
            work.add_done_callback(partial(self._finish, batch, loop.time()))

    def _next_batch(self, largest: int) -> list[Waiting]:
        batch: list[Waiting] = []
        characters = 0
        while self._requests and len(batch) < largest and characters < self._characters:
            request = self._requests.popleft()
            if request:
                waiting = request.popleft()
                batch.append(waiting)
                characters += len(waiting.text)
                self._requests.append(request)
        return batch

    def _finish(
        self,
        batch: list[Waiting],
        began: float,
        work: asyncio.Future[Sequence[Translation]],
    ) -> None:
        loop = asyncio.get_running_loop()
        self._running -= len(batch)
        place = Place(awaited=len(batch))
        self._free.append(place)
        seconds = min(WAIT * (loop.time() - began), LONGEST_WAIT)
        loop.call_later(seconds, self._wait_no_more, place)
        self._start()
        error = work.exception()
        for number, (_, answer) in enumerate(batch):
            if answer.done():  # its request was cancelled
                continue
            if error:
                answer.set_exception(error)
            else:
                answer.set_result(work.result()[number])

    def _wait_no_more(self, place: Place) -> None:
        place.awaited = 1
        self._start()
