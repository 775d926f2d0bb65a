"""The text of IWSLT14: which lines of its files are talks, and how they are divided."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Bash = Callable[..., CompletedProcess[str]]
PARTS = "TED.dev2010 TEDX.dev2012 TED.tst2010 TED.tst2011 TED.tst2012".split()


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    for side in ("de", "en"):
        lines = ["<url>http://a</url>", "<keywords>talks</keywords>", "<title>A title</title>"]
        lines += [f"{side} {number}" for number in range(1, 46)]
        lines += ["<reviewer>B</reviewer>", "<description>TED : C</description>"]
        (folder / f"train.tags.de-en.{side}").write_text("\n".join(lines) + "\n", "utf-8")
        for part in PARTS:
            segments = (
                f'<doc>\n<seg id="1"> {side} of {part} </seg>\n<seg id="2">it’s</seg>\n</doc>\n'
            )
            (folder / f"IWSLT14.{part}.de-en.{side}.xml").write_text(segments, "utf-8")
    return folder


def test_talks_are_divided(
    dry: Bash, calls: Callable[[], list[str]], archive: Path, tmp_path: Path
) -> None:
    flags = (archive, "--out", "out", "--", "--seed", "3")
    dry("iwslt14.sh", *flags, SENTENCES="10", STOP="train", code=9)
    prepare, train = calls()
    assert "--train out/text/train --valid out/text/dev --test out/text/test" in prepare
    assert "--preset iwslt14" in train
    assert train.endswith("--seed 3")
    lines = {
        name: (tmp_path / f"out/text/{name}").read_text("utf-8").split("\n")[:-1]
        for name in ("train.de", "train.en", "dev.de", "dev.en", "test.en")
    }
    # Of 47 lines, the 23rd and the 46th.
    assert (lines["dev.de"], lines["dev.en"]) == (["de 22", "de 45"], ["en 22", "en 45"])
    assert lines["train.de"][:2] == ["A title", "de 1"]
    assert lines["train.en"][-2:] == ["en 44", "TED : C"]
    assert lines["test.en"] == [text for part in PARTS for text in (f"en of {part}", "it's")]


def test_another_test_set_is_refused(dry: Bash, archive: Path, tmp_path: Path) -> None:
    assert "10 sentences, not 6750" in dry("iwslt14.sh", archive, "--out", "out", code=1).stderr
    assert not (tmp_path / "out/text").exists()
