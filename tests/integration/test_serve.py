"""`nmt serve` as a process: answers to concurrent clients, and every way in which it ends."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

Nmt = Callable[..., subprocess.CompletedProcess[str]]


@dataclass
class Server:
    """A running `nmt serve`."""

    process: subprocess.Popen[str]
    port: int

    def post(self, path: str, content: Any) -> tuple[int, Any]:
        return self.ask("POST", path, json.dumps(content))

    def ask(self, method: str, path: str, body: str | None = None) -> tuple[int, Any]:
        """Return the code and the content of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())

    def begin(self, body: bytes) -> socket.socket:
        """Begin a request. Return when the server has accepted it and waits for its body."""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=120)
        head = (
            "POST /translate HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: "
            f"{len(body)}\r\n\r\n"
        )
        connection.sendall(head.encode())
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += connection.recv(1)
        assert answer.startswith(b"HTTP/1.1 100 ")
        return connection

    def stop(self, number: signal.Signals) -> None:
        """Send a signal. Return when connections are refused."""
        self.process.send_signal(number)
        try:
            while True:
                socket.create_connection(("127.0.0.1", self.port), timeout=120).close()
        except OSError:
            return

    def kill_workers(self) -> None:
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        assert children
        for child in children:
            os.kill(int(child), signal.SIGKILL)

    def end(self) -> tuple[int, str]:
        """Return the exit code and the rest of standard error."""
        _, err = self.process.communicate(timeout=120)
        return self.process.returncode, err


@contextmanager
def serving(checkpoint: Path, *flags: object) -> Iterator[Server]:
    """A server, from when it listens. It is killed at the end unless it has ended."""
    process = subprocess.Popen(
        [sys.executable, "-m", "nmt_cli", "serve", checkpoint, "--port", "0", *map(str, flags)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.stderr is not None
    try:
        match = re.fullmatch(
            r"listening on http://127\.0\.0\.1:(\d+);.*\n", process.stderr.readline()
        )
        assert match is not None
        yield Server(process, int(match[1]))
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def checkpoint(run: Path) -> Path:
    return run / "checkpoints" / "step-00000400"


@pytest.fixture(scope="module")
def server(checkpoint: Path) -> Iterator[Server]:
    """A server for several tests. The last one stops it."""
    with serving(checkpoint, "--workers", 2, "--beam", 2, "--quiet") as server:
        yield server


def test_concurrent_clients_get_what_nmt_translate_gives(
    nmt: Nmt, checkpoint: Path, corpus: Path, server: Server
) -> None:
    check_answers(nmt, server, corpus, checkpoint, "--beam", 2)


def test_another_engine(nmt: Nmt, checkpoint: Path, corpus: Path, tmp_path: Path) -> None:
    nmt("export", checkpoint, "--to", "ctranslate2", "--out", tmp_path / "export")
    flags = (tmp_path / "export", "--engine", "ctranslate2", "--beam", 1, "--workers", 2)
    with serving(*flags) as server:
        check_answers(nmt, server, corpus, *flags)


def check_answers(nmt: Nmt, server: Server, corpus: Path, *flags: object) -> None:
    """Fail unless concurrent clients get what `nmt translate` with these flags gives."""
    texts = (corpus / "test.en").read_text(encoding="utf-8").splitlines()[:40]
    source = "".join(f"{text}\n" for text in texts)
    rows = nmt("translate", *flags, "--format", "tsv", stdin=source).stdout.splitlines()
    expected = [(text, float(score)) for _, score, text in (row.split("\t") for row in rows)]
    assert len(set(expected)) > 30
    with ThreadPoolExecutor(8) as clients:
        batch = clients.submit(server.post, "/translate/batch", {"texts": texts})
        answers = list(clients.map(lambda text: server.post("/translate", {"text": text}), texts))
    assert {code for code, _ in [*answers, batch.result()]} == {200}
    for got in ([answer for _, answer in answers], batch.result()[1]["translations"]):
        assert [answer["translation"] for answer in got] == [text for text, _ in expected]
        assert [answer["score"] for answer in got] == pytest.approx(
            [score for _, score in expected], abs=2e-4
        )


def test_a_signal_lets_requests_end(server: Server) -> None:
    body = b'{"text": "forty-two"}'
    connection = server.begin(body)
    server.stop(signal.SIGTERM)
    connection.sendall(body)
    answer = b"".join(iter(lambda: connection.recv(1000), b""))
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert '"translation"' in answer.decode()
    assert server.end() == (0, "")


def test_a_second_signal_ends_at_once(checkpoint: Path) -> None:
    with serving(checkpoint) as server:
        with server.begin(b'{"text": "forty-two"}'):
            server.stop(signal.SIGINT)
            server.process.send_signal(signal.SIGINT)
            code, err = server.end()
        assert code == -signal.SIGINT
        assert "Traceback" not in err


def test_the_server_ends_with_its_workers(checkpoint: Path) -> None:
    """At the first request after the death was noticed, which happens in another thread."""
    with serving(checkpoint, "--workers", 2) as server:
        assert server.ask("GET", "/health") == (200, {"status": "ok"})
        server.kill_workers()
        deadline = time.monotonic() + 120
        while (answer := server.post("/translate", {"text": "x"}))[
            0
        ] == 200 and time.monotonic() < deadline:
            pass
        assert (answer[0], list(answer[1])) == (500, ["error"])
        code, err = server.end()
        assert code == 1
        assert "worker process died" in err
        assert '"POST /translate" 500, 1 text, ' in err
        assert "/health" not in err
        assert "Traceback" not in err
