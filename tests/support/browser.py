"""Chromium, driven over the DevTools protocol."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
NEEDS_A_BROWSER = "needs chromium (on Debian: apt install chromium)"
FLAGS = (
    *(
        *"--headless --no-sandbox --disable-gpu --no-first-run".split(),
        "--disable-background-networking",
    ),
    *("--remote-debugging-pipe", "--window-size=1400,1000", "--force-device-scale-factor=1"),
)


class Browser:
    """Chromium with the DevTools protocol over two pipes: JSON messages that end in a zero byte."""

    def __init__(self, profile: Path) -> None:
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        # The browser reads from descriptor 3 and writes to 4.
        wire = f'exec 3<&{to_browser} 4>&{from_browser}; exec "$@"'
        command = [
            "bash",
            "-c",
            wire,
            "bash",
            str(CHROMIUM),
            *FLAGS,
            f"--user-data-dir={profile}",
            "about:blank",
        ]
        fds = (to_browser, from_browser)
        self.process = subprocess.Popen(
            command, pass_fds=fds, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(to_browser)
        os.close(from_browser)
        self._buffer, self._number, self._session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol. Keep events in `events`."""
        self._number += 1
        session = {"sessionId": self._session} if self._session else {}
        message = {"id": self._number, "method": method, "params": parameters, **session}
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while (answer := self._message()).get("id") != self._number:
            self.events.append(answer)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait_for(self, expression: str) -> None:
        """Wait until an expression is true in the page."""
        deadline = time.monotonic() + 60
        while not self.evaluate(f"Boolean({expression})"):
            assert time.monotonic() < deadline, f"never true: {expression}"
            time.sleep(0.05)

    def open(self, page: Path, address: str = "") -> None:
        """Open a file, and wait until it shows attention."""
        self.call("Page.navigate", url="about:blank")
        self.events.clear()
        self.call("Page.navigate", url=f"{page.as_uri()}{address}")
        self.wait_for("location.protocol === 'file:' && document.documentElement?.dataset.shown")

    def press(self, key: str) -> None:
        """Press a key."""
        code = {"Tab": 9, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}[key]
        for kind in ("rawKeyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code
            )

    def point(self, selector: str, x: float = 0.5, y: float = 0.5, *, click: bool = False) -> None:
        """Move the mouse to a position within an element, and click there if `click`."""
        left, top = self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            f"e.scrollIntoView({{block: 'center'}});"
            f"const r = e.getBoundingClientRect(); return [r.left + {x} * r.width, r.top + {y} * "
            "r.height]; }})()"
        )
        at = {"x": left, "y": top}
        self.call("Input.dispatchMouseEvent", type="mouseMoved", **at)
        if click:
            for kind in ("mousePressed", "mouseReleased"):
                self.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **at)

    def close(self) -> None:
        self.call("Browser.close")
        self.process.wait(30)
        os.close(self._read)
        os.close(self._write)

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            block = os.read(self._read, 1 << 16)
            assert block, "the browser has gone"
            self._buffer += block
        message, _, self._buffer = self._buffer.partition(b"\0")
        decoded: dict[str, Any] = json.loads(message)
        return decoded
