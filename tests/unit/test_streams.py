"""Messages on standard error."""

from __future__ import annotations

import pytest

from nmt_cli.streams import say


def test_control_characters_of_a_message_are_escaped(capfd: pytest.CaptureFixture[str]) -> None:
    say("dict.\x1b]0;x\x07\x00\r\x9b\u202e\u2066.txt: missing\n\tnext: größer 猫 \u200d")
    assert capfd.readouterr().err == (
        r"dict.\x1b]0;x\x07\x00\r\x9b\u202e\u2066.txt: missing" + "\n\tnext: größer 猫 \u200d\n"
    )
