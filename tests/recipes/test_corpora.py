"""The text of the recipes: tables, archives, line counts."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import corpora
import pytest
from downloads import Archive

from nmt_cli.errors import DataError


@pytest.fixture(params=["wmt14_en_de", "wmt14_en_fr"])
def table(recipes: Path, request: pytest.FixtureRequest) -> dict[str, Any]:
    return json.loads((recipes / f"{request.param}.json").read_text(encoding="utf-8"))


def texts(folder: Path) -> dict[str, str]:
    """The content of each file of text."""
    return {
        path.name: path.read_text("utf-8")
        for path in (folder / "text").iterdir()
        if path.suffix != ".json"
    }


def numbered(word: str, count: int) -> str:
    return "".join(f"{word} {i}\n" for i in range(count))


def test_tables_are_complete(table: dict[str, Any]) -> None:
    lines = {
        split: [c["lines"] for c in table["corpora"] if c["split"] == split]
        for split in corpora.NAMES
    }
    assert sum(lines["train"]) == {"de": 4_520_620, "fr": 40_842_333}[table["target"]]
    assert (lines["valid"], lines["test"]) == ([3000], [3003])
    archives = [Archive(**archive) for archive in table["archives"]]
    assert {corpus["archive"] for corpus in table["corpora"]} == {
        archive.name for archive in archives
    }
    assert [archive.name for archive in archives if archive.checksum == "recorded"] == ["dev.tgz"]
    assert all(archive.url.startswith("https://www.statmt.org/wmt1") for archive in archives)


def packed(path: Path, members: dict[str, str]) -> dict[str, str]:
    """Write a tar archive. Return its entry in a table."""
    with tarfile.open(path, "w:gz" if path.suffix == ".tgz" else "w") as tar:
        for name, text in members.items():
            if name.endswith(".sgm"):
                text = (
                    "<doc>\n"
                    + "".join(f'<seg id="1">{line}</seg>\n' for line in text.splitlines())
                    + "</doc>\n"
                )
            content = gzip.compress(text.encode()) if name.endswith(".gz") else text.encode()
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return {"url": path.as_uri(), "checksum": "recorded"}


def test_archives_are_fetched_and_extracted(
    table: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for index, entry in enumerate(table["archives"]):
        path = tmp_path / Archive(**entry).name
        corpora_of = [corpus for corpus in table["corpora"] if corpus["archive"] == path.name]
        members = {
            corpus[side]: f"{corpus['name']} {side}\n" * 2
            for corpus in corpora_of
            for side in corpora.SIDES
        }
        table["archives"][index] = packed(path, members)
    for corpus in table["corpora"]:
        corpus["lines"] = 2
    corpora.collect(table, tmp_path / "out", None)
    extracted = texts(tmp_path / "out")
    for corpus in table["corpora"]:
        for side in corpora.SIDES:
            assert extracted[f"{corpus['name']}.{table[side]}"] == f"{corpus['name']} {side}\n" * 2
    assert "NOT" not in capsys.readouterr().err
    counts = json.loads((tmp_path / "out" / "text" / "counts.json").read_text(encoding="utf-8"))
    assert counts["newstest2014"] == {"split": "test", "lines": 2, "expected": 2}


def test_small_text_for_every_corpus(table: dict[str, Any], tmp_path: Path) -> None:
    """The training corpora share the lines. The test set is plain, though the archive's is SGML."""
    for name, count in {"train.en": 30, f"train.{table['target']}": 30, "test.en": 4}.items():
        (tmp_path / name).write_text(numbered("a", count), encoding="utf-8")
    (tmp_path / f"test.{table['target']}").write_text(numbered("b", 4), encoding="utf-8")
    for language in ("en", table["target"]):
        (tmp_path / f"val.{language}.gz").write_bytes(gzip.compress(numbered("c", 5).encode()))
    corpora.write_small(table, tmp_path, tmp_path / "small")
    corpora.collect(table, tmp_path / "out", tmp_path / "small")
    extracted = texts(tmp_path / "out")
    training = "".join(
        extracted[f"{c['name']}.en"] for c in table["corpora"] if c["split"] == "train"
    )
    assert sorted(training.split("\n")) == sorted(numbered("a", 30).split("\n"))
    assert (extracted["newstest2013.en"], extracted["newstest2014.en"]) == (
        numbered("c", 5),
        numbered("a", 4),
    )
    with pytest.raises(DataError, match="train"):
        corpora.write_small(table, tmp_path / "small", tmp_path / "other")


def test_unpacked_text_is_used(
    recipes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files named as in the archives, with and without directory and .gz, and as in the table.

    Markup is removed.
    """
    table = json.loads((recipes / "wmt14_en_de.json").read_text(encoding="utf-8"))
    mine = tmp_path / "mine"
    (mine / "training").mkdir(parents=True)
    markup = (
        '<refset>\n<DOC>\n<seg id="1"> Fünf\u00a0% </seg>\n '
        '<SEG id="2">a\u0085b &amp; c</SEG>\n<hl>\n</refset>\n'
    )
    for language in ("en", "de"):
        (mine / f"training/europarl-v7.de-en.{language}").write_bytes(b"caf\xe9\nok\n")
        (mine / f"commoncrawl.de-en.{language}.gz").write_bytes(gzip.compress(b"c\n"))
        for name in ("news-commentary-v9", "newstest2013", "newstest2014"):
            (mine / f"{name}.{language}").write_bytes(b"a\n\nb")
    for side in corpora.SIDES:
        (mine / Path(table["corpora"][-1][side]).name).write_text(markup, encoding="utf-8")
    corpora.collect(table, tmp_path / "out", mine)
    assert {
        name: text for name, text in texts(tmp_path / "out").items() if name.endswith(".en")
    } == {
        "europarl-v7.en": "caf\ufffd\nok\n",
        "commoncrawl.en": "c\n",
        "news-commentary-v9.en": "a\n\nb\n",
        "newstest2013.en": "a\n\nb\n",
        "newstest2014.en": "Fünf\u00a0%\na\u0085b &amp; c\n",
    }
    said = capsys.readouterr().err
    assert "NOT as expected: 1,920,209" in said
    assert "europarl-v7.en: bytes that are not UTF-8" in said
    (mine / "news-commentary-v9.de").write_bytes(b"a\n")
    with pytest.raises(DataError, match=r"news-commentary-v9: 3 en .*1 de"):
        corpora.collect(table, tmp_path / "unequal", mine)
    (mine / "commoncrawl.de-en.de.gz").unlink()
    with pytest.raises(DataError, match=r"parallel-commoncrawl\.tgz.*\.de\.gz"):
        corpora.collect(table, tmp_path / "other", mine)
