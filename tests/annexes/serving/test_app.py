"""The routes: answers, and an {"error": ...} for everything that is wrong."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from nmt_cli.annexes.serving.app import PAGE, application
from nmt_cli.annexes.serving.limits import Limits
from nmt_cli.annexes.serving.queue import TranslationQueue
from nmt_cli.decoding.around import Around, Chain
from nmt_cli.decoding.outputs import Output, Translation
from nmt_cli.errors import NmtError

LIMITS = Limits(max_body=200, max_texts=3, max_characters=20, max_queue=2)
Scenario = Callable[[Callable[[], Any]], Awaitable[None]]


@pytest.fixture
def served(backwards: Any, client: Any) -> Callable[..., None]:
    """Run a scenario, which gets a function that makes clients of one server."""

    def run(
        scenario: Scenario, limits: Limits = LIMITS, chain: Chain | None = None, **options: Any
    ) -> None:
        queue = TranslationQueue(backwards, parallel=1, largest=8, characters=1000)
        app = application(queue, limits, chain=chain or Chain(), **options)
        asyncio.run(scenario(lambda: client(app)))

    return run


async def until_waiting(new: Callable[[], Any], texts: int) -> None:
    """Return when so many texts wait."""
    while await metric(new(), "nmt_queue_texts") != texts:
        await asyncio.sleep(0)


async def metric(client: Any, name: str, **labels: str) -> float | None:
    """Return what GET /metrics says of a sample."""
    page = (await client.ask("GET", "/metrics")).body.decode()
    samples = [
        sample for family in text_string_to_metric_families(page) for sample in family.samples
    ]
    return next(
        (sample.value for sample in samples if sample.name == name and sample.labels == labels),
        None,
    )


ONE, SEVERAL = "/translate", "/translate/batch"


def test_answers_and_their_metrics(served: Callable[..., None]) -> None:
    async def scenario(new: Callable[[], Any]) -> None:
        answer = await new().post(ONE, {"text": " Größe\n"})
        assert (answer.code, answer.headers["content-type"]) == (200, "application/json")
        assert answer.json == {"translation": "\neßörG ", "score": -2.3333}
        for texts in ([], ["ab", "", "cd"]):
            answer = await new().post(SEVERAL, {"texts": texts})
            expected = [
                {"translation": text[::-1], "score": round(-len(text) / 3, 4)} for text in texts
            ]
            assert (answer.code, answer.json) == (200, {"translations": expected})
        assert await metric(new(), "nmt_requests_total", route=ONE, code="200") == 1
        assert await metric(new(), "nmt_request_seconds_count", route=SEVERAL) == 2
        assert await metric(new(), "nmt_batch_texts_count") == 2
        assert await metric(new(), "nmt_batch_texts_sum") == 4

    served(scenario)


def test_a_request_may_be_as_large_as_the_limits(served: Callable[..., None]) -> None:
    async def scenario(new: Callable[[], Any]) -> None:
        text = "a" * LIMITS.max_characters
        body = json.dumps({"texts": [text] * LIMITS.max_texts}).encode().ljust(LIMITS.max_body)
        answer = await new().ask("POST", SEVERAL, [body])
        assert [entry["translation"] for entry in answer.json["translations"]] == [
            text
        ] * LIMITS.max_texts

    served(scenario)


@pytest.mark.parametrize(
    ("path", "body", "code", "named"),
    [
        (ONE, b"", 400, "JSON"),
        (ONE, b'{"text": "\xff"}', 400, "UTF-8"),
        (ONE, b'"text"', 400, '"text"'),
        (ONE, b'{"texts": ["a"]}', 400, '"text"'),
        (ONE, b'{"text": "a", "text": "b"}', 400, "there twice"),
        (ONE, b'{"text": "a", "beam": 4}', 400, "'beam'"),
        (ONE, b'{"text": "a", "\\ud800": 4}', 400, "\\ud800"),
        (ONE, b'{"text": null}', 400, '"text"'),
        (ONE, b'{"text": "a\\nb"}', 400, "/translate/batch"),
        (ONE, b'{"text": "123456789012345678901"}', 413, "at most 20"),
        (ONE, b'{"text": "too long"}', 413, "--max-source-length"),
        (ONE, b'{"text": "' + b"a" * 200 + b'"}', 413, "200 bytes"),
        (SEVERAL, b'{"texts": "a"}', 400, "list"),
        (SEVERAL, b'{"texts": ["a", 1]}', 400, "texts[1]"),
        (SEVERAL, b'{"texts": ["a", "too long"]}', 413, "texts[1]"),
        (SEVERAL, b'{"texts": ["a", "b", "c", "d"]}', 413, "at most 3"),
    ],
)
def test_wrong_requests(
    served: Callable[..., None], path: str, body: bytes, code: int, named: str
) -> None:
    async def scenario(new: Callable[[], Any]) -> None:
        answer = await new().ask("POST", path, [body[:7], body[7:]])
        assert answer.code == code
        assert list(answer.json) == ["error"]
        assert named in answer.json["error"]
        assert await metric(new(), "nmt_requests_total", route=path, code=str(code)) == 1

    served(scenario)


class ByFullStops(Around):
    """Divides a text after each full stop."""

    def read(self, line: str) -> tuple[list[str], Any]:
        return re.findall(r"[^.]+\. *", line), None

    def write(self, line: str, translations: Sequence[Translation], note: Any) -> Translation:
        outputs = [translation.outputs[0] for translation in translations]
        whole = Output(
            "".join(output.text for output in outputs),
            sum(output.score for output in outputs),
            [],
            [],
        )
        return Translation(line, [whole], len(line), truncated=False)


def test_the_sentences_of_a_text_are_translated_one_by_one(
    served: Callable[..., None], backwards: Any
) -> None:
    async def scenario(new: Callable[[], Any]) -> None:
        answer = await new().post(SEVERAL, {"texts": ["ab. cd.", "ef."]})
        translations = [
            {"translation": " .ba.dc", "score": -2.3333},
            {"translation": ".fe", "score": -1.0},
        ]
        assert (answer.code, answer.json) == (200, {"translations": translations})
        assert await metric(new(), "nmt_batch_texts_sum") == 3

    served(scenario, chain=Chain([ByFullStops()]))
    assert backwards.batches == [["ab. ", "cd.", "ef."]]


def test_a_request_of_too_many_sentences_is_413_before_a_search(
    served: Callable[..., None], backwards: Any
) -> None:
    async def scenario(new: Callable[[], Any]) -> None:
        answer = await new().post(SEVERAL, {"texts": ["a. b. c.", "d. e."]})
        assert (answer.code, list(answer.json)) == (413, ["error"])
        assert "4 sentences" in answer.json["error"]
        assert (await new().post(SEVERAL, {"texts": ["a. b.", "c. d."]})).code == 200

    served(scenario, Limits(max_sentences=4), chain=Chain([ByFullStops()]))
    assert len(backwards.batches) == 1


def test_texts_that_are_not_split_are_as_many_as_max_texts(served: Callable[..., None]) -> None:
    async def scenario(new: Callable[[], Any]) -> None:
        assert (await new().post(SEVERAL, {"texts": ["a", "b", "c"]})).code == 200

    served(scenario, Limits(max_texts=3, max_sentences=1))


@pytest.mark.parametrize(
    ("content_type", "code"),
    [("text/plain", 415), ("", 415), ("application/json; charset=utf-8", 200)],
)
def test_a_web_page_must_say_that_it_sends_json(
    served: Callable[..., None], content_type: str, code: int
) -> None:
    """Browsers ask before another server's page may send this type. Others they just send."""

    async def scenario(new: Callable[[], Any]) -> None:
        client = new()
        client.headers = {"origin": "http://evil.example", "content-type": content_type}
        assert (await client.post(ONE, {"text": "ab"})).code == code
        client.headers = {"content-type": content_type}
        assert (await client.post(ONE, {"text": "ab"})).code == 200

    served(scenario)


def test_two_lengths_of_a_request_are_400_and_close_the_connection(
    served: Callable[..., None],
) -> None:
    async def scenario(new: Callable[[], Any]) -> None:
        client = new()
        client.headers = {"content-length": "0", "transfer-encoding": "chunked"}
        answer = await client.ask("GET", "/health")
        assert (answer.code, list(answer.json), answer.headers["connection"]) == (
            400,
            ["error"],
            "close",
        )

    served(scenario)


def test_the_log_has_the_texts_and_the_time_of_a_request(
    served: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(new: Callable[[], Any]) -> None:
        await new().post(SEVERAL, {"texts": ["ab", "cd"]})
        await new().ask("GET", "/health")
        await new().ask("GET", "/metrics")
        await new().ask("POST", "/health")
        await new().ask("GET", "/a\nb")

    with caplog.at_level("INFO", "nmt.access"):
        served(scenario)
    lines = [re.sub(r"\d+\.\d{3} s$", "T", record.getMessage()) for record in caplog.records]
    assert lines == [
        '127.0.0.1 - "POST /translate/batch" 200, 2 texts, T',
        '127.0.0.1 - "POST /health" 405, 0 texts, T',
        '127.0.0.1 - "GET /a%0Ab" 404, 0 texts, T',
    ]


def test_other_paths_and_methods(served: Callable[..., None]) -> None:
    async def scenario(new: Callable[[], Any]) -> None:
        answer = await new().ask("GET", "/translations")
        assert (answer.code, list(answer.json)) == (404, ["error"])
        assert await metric(new(), "nmt_requests_total", route="other", code="404") == 1
        answer = await new().post(f"{ONE}/", {"text": "ab"})
        assert (answer.code, list(answer.json)) == (404, ["error"])
        answer = await new().ask("GET", ONE)
        assert (answer.code, list(answer.json), answer.headers["allow"]) == (405, ["error"], "POST")
        assert (await new().ask("POST", "/info")).code == 405

    served(scenario)


def test_a_full_queue_is_429(served: Callable[..., None], backwards: Any) -> None:
    async def scenario(new: Callable[[], Any]) -> None:
        backwards.go.clear()
        first = asyncio.create_task(new().post(ONE, {"text": "ab"}))
        await until_batches(backwards, 1)
        waiting = asyncio.create_task(new().post(SEVERAL, {"texts": ["cd", "ef"]}))
        await until_waiting(new, 2)
        refused = await new().post(ONE, {"text": "gh"})
        assert (refused.code, list(refused.json), refused.headers["retry-after"]) == (
            429,
            ["error"],
            "1",
        )
        backwards.go.set()
        assert (await first).json["translation"] == "ba"
        assert (await waiting).code == 200

    served(scenario)
    assert backwards.batches == [["ab"], ["cd", "ef"]]


async def until_batches(backwards: Any, count: int) -> None:
    while len(backwards.batches) < count:
        await asyncio.sleep(0)


def test_a_request_that_takes_too_long_is_503_and_leaves_the_queue(
    served: Callable[..., None], backwards: Any
) -> None:
    async def scenario(new: Callable[[], Any]) -> None:
        backwards.go.clear()
        answers = await asyncio.gather(
            new().post(ONE, {"text": "ab"}), new().post(ONE, {"text": "cd"})
        )
        assert [(answer.code, list(answer.json)) for answer in answers] == [(503, ["error"])] * 2
        await until_batches(backwards, 1)
        await until_waiting(new, 0)
        backwards.go.set()

    served(scenario, Limits(timeout=0.3))
    assert backwards.batches == [["ab"]]


def test_a_client_that_leaves_frees_its_place(served: Callable[..., None], backwards: Any) -> None:
    async def scenario(new: Callable[[], Any]) -> None:
        backwards.go.clear()
        stays = asyncio.create_task(new().post(ONE, {"text": "ab"}))
        await until_batches(backwards, 1)
        leaving = new()
        gone = asyncio.create_task(leaving.post(SEVERAL, {"texts": ["cd", "ef"]}))
        await until_waiting(new, 2)
        leaving.leave.set()
        assert (await gone).code == 499
        await until_waiting(new, 0)
        assert await metric(new(), "nmt_requests_total", route=SEVERAL, code="499") == 1
        backwards.go.set()
        assert (await stays).json["translation"] == "ba"

    served(scenario)
    assert backwards.batches == [["ab"]]


def test_an_error_of_the_translator_is_500(served: Callable[..., None], backwards: Any) -> None:
    async def scenario(new: Callable[[], Any]) -> None:
        backwards.error = NmtError("out of memory on a line of 9 tokens")
        answer = await new().post(ONE, {"text": "ab"})
        assert (answer.code, answer.json) == (500, {"error": "out of memory on a line of 9 tokens"})
        backwards.error = RuntimeError("a bug")
        client = new()
        with pytest.raises(RuntimeError, match="a bug"):  # after the answer, for the server's log
            await client.post(ONE, {"text": "ab"})
        assert client.answer.code == 500
        assert "internal error" in client.answer.json["error"]
        assert await metric(new(), "nmt_requests_total", route=ONE, code="500") == 2

    served(scenario)


def test_a_body_that_does_not_arrive_is_408(served: Callable[..., None]) -> None:
    async def scenario(new: Callable[[], Any]) -> None:
        client = new()
        client.unfinished = True
        answer = await client.ask("POST", ONE, [b'{"text":'])
        assert (answer.code, list(answer.json), answer.headers["connection"]) == (
            408,
            ["error"],
            "close",
        )

    served(scenario, Limits(timeout=0.3))


def test_half_a_character_is_replaced(served: Callable[..., None], backwards: Any) -> None:
    async def scenario(new: Callable[[], Any]) -> None:
        for body in (b'{"text": "a\\ud800"}', b'{"text": "a\xed\xa0\x80"}'):
            assert (await new().ask("POST", ONE, [body])).code == 200

    served(scenario)
    assert backwards.batches == [["a?"], ["a?"]]


def test_json_that_python_refuses_is_400(served: Callable[..., None]) -> None:
    async def scenario(new: Callable[[], Any]) -> None:
        for body in (b"[" * 200_000, b'{"text": 1' + b"0" * 5000 + b"}"):
            assert (await new().ask("POST", ONE, [body])).code == 400

    served(scenario, Limits())


def test_routes_about_the_server(backwards: Any, client: Any) -> None:
    about = {"models": ["run/averaged"], "split_sentences": True}
    queue = TranslationQueue(backwards, parallel=1, largest=8, characters=1000)
    app = application(queue, LIMITS, chain=Chain(), about=about)
    assert asyncio.run(client(app).ask("GET", "/info")).json == about
    assert asyncio.run(client(app).ask("GET", "/health")).json == {"status": "ok"}
    page = asyncio.run(client(app).ask("GET", "/"))
    assert (page.headers["content-type"], page.body.decode()) == ("text/html; charset=utf-8", PAGE)


def test_the_page_needs_nothing_but_its_server() -> None:
    assert "default-src 'none'" in PAGE
    assert re.findall(r"https?:|//\w|<script src|@import|url\(", PAGE) == []
