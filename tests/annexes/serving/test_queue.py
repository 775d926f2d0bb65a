"""Texts that wait: which become one batch, and whose answer is whose."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Any

import pytest

from nmt_cli.annexes.serving import queue
from nmt_cli.annexes.serving.queue import TranslationQueue
from nmt_cli.decoding.outputs import Translation
from nmt_cli.errors import NmtError


def queue_of(
    backwards: Any, parallel: int = 1, largest: int = 8, characters: int = 1000
) -> TranslationQueue:
    return TranslationQueue(backwards, parallel=parallel, largest=largest, characters=characters)


def asked(queue: TranslationQueue, *texts: str) -> asyncio.Task[list[Translation]]:
    return asyncio.create_task(queue.translate(texts))


async def until_idle() -> None:
    """Let every task run until it waits for something else than the loop."""
    for _ in range(10):
        await asyncio.sleep(0)


def test_texts_that_arrive_during_a_batch_become_the_next_one(backwards: Any) -> None:
    async def run() -> None:
        queue = queue_of(backwards)
        backwards.go.clear()
        requests = [asked(queue, "a"), asked(queue, "b", "c"), asked(queue, "d")]
        await until_idle()
        assert len(queue) == 3
        backwards.go.set()
        answers = await asyncio.gather(*requests)
        assert [[answer.source for answer in batch] for batch in answers] == [
            ["a"],
            ["b", "c"],
            ["d"],
        ]

    asyncio.run(run())
    assert backwards.batches == [["a"], ["b", "d", "c"]]


def test_a_short_request_does_not_wait_for_the_end_of_a_long_one(backwards: Any) -> None:
    async def run() -> None:
        queue = queue_of(backwards, largest=2)
        backwards.go.clear()
        long = asked(queue, *"abcdefgh")
        await until_idle()
        short = asked(queue, "x")
        await until_idle()
        backwards.go.set()
        assert [answer.text for answer in await short] == ["x"]
        assert [answer.text for answer in await long] == [*"abcdefgh"]

    asyncio.run(run())
    assert backwards.batches == [["a", "b"], ["c", "x"], ["d", "e"], ["f", "g"], ["h"]]


def test_a_batch_is_full_with_so_many_characters(backwards: Any) -> None:
    asyncio.run(queue_of(backwards, characters=4).translate(["abcdef", "ab", "cd", "e"]))
    assert backwards.batches == [["abcdef"], ["ab", "cd"], ["e"]]


def test_what_is_cancelled_and_has_not_started_is_not_translated(backwards: Any) -> None:
    async def run() -> None:
        queue = queue_of(backwards, largest=2)
        backwards.go.clear()
        long = asked(queue, *"abcdefgh")
        await until_idle()
        long.cancel()
        await until_idle()
        assert len(queue) == 0
        backwards.go.set()
        assert [answer.text for answer in await queue.translate(["x"])] == ["x"]

    asyncio.run(run())
    assert backwards.batches == [["a", "b"], ["x"]]


def test_free_places_share_what_waits(backwards: Any) -> None:
    async def run() -> None:
        await queue_of(backwards, parallel=2).translate("abcde")

    asyncio.run(run())
    assert sorted(backwards.batches) == [["a", "b", "c"], ["d", "e"]]


def test_a_place_leaves_the_others_their_share(backwards: Any) -> None:
    async def run() -> None:
        queue = queue_of(backwards, parallel=2)
        backwards.go.clear()
        requests = [asked(queue, "a"), asked(queue, *"bcdefg")]
        await until_idle()
        assert len(queue) == 2
        backwards.go.set()
        await asyncio.gather(*requests)

    asyncio.run(run())
    assert sorted(backwards.batches)[:2] == [["a"], ["b", "c", "d", "e"]]


@pytest.mark.parametrize(
    ("wait", "batches"), [(1e6, [["c", "d"], ["e", "f"]]), (0.0, [["c"], ["d"], ["e"], ["f"]])]
)
def test_a_place_waits_for_the_next_texts_of_its_clients(
    backwards: Any, monkeypatch: pytest.MonkeyPatch, wait: float, batches: list[list[str]]
) -> None:
    monkeypatch.setattr(queue, "WAIT", wait)

    async def run() -> None:
        queue = queue_of(backwards)
        await queue.translate("x")
        await queue.translate("ab")  # a text alone is not waited for, nor waits
        for pair in ("cd", "ef"):
            first, second = pair
            request = asked(queue, first)
            await asyncio.sleep(0.02)
            await asyncio.gather(request, asked(queue, second))

    asyncio.run(run())
    assert backwards.batches == [["x"], ["a", "b"], *batches]


def test_a_batch_has_at_most_the_largest_number_of_texts(backwards: Any) -> None:
    asyncio.run(queue_of(backwards, largest=2).translate("abcde"))
    assert backwards.batches == [["a", "b"], ["c", "d"], ["e"]]


def test_an_error_is_that_of_its_batch_alone(backwards: Any) -> None:
    async def run() -> None:
        queue = queue_of(backwards)
        backwards.error = NmtError("no memory")
        for outcome in await asyncio.gather(
            queue.translate("ab"), queue.translate("c"), return_exceptions=True
        ):
            assert outcome is backwards.error
        backwards.error = None
        assert [answer.text for answer in await queue.translate(["xy"])] == ["yx"]

    asyncio.run(run())


def test_every_text_gets_its_own_answer(backwards: Any) -> None:
    """Requests of all sizes, some of which leave. Three batches at a time."""
    draw = random.Random(3)
    requests = [[f"{request}-{n}" for n in range(draw.randrange(6))] for request in range(300)]

    async def run() -> None:
        queue = queue_of(backwards, parallel=3)
        tasks = [asked(queue, *texts) for texts in requests]
        for task in draw.sample(tasks, 40):
            await asyncio.sleep(0)
            task.cancel()
        for texts, task in zip(requests, tasks, strict=True):
            with contextlib.suppress(asyncio.CancelledError):
                assert [answer.text for answer in await task] == [text[::-1] for text in texts]
        assert sum(task.cancelled() for task in tasks) > 10
        assert len(queue) == 0

    asyncio.run(run())
    texts = [text for batch in backwards.batches for text in batch]
    assert len(texts) == len(set(texts))
