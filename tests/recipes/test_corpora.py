"""The text of the recipes: tables, archives, line counts."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path

import corpora
import pytest
from downloads import RecipeError


def write_pair(prefix: Path, source: str, target: str, packed: bool = False) -> None:
    prefix.parent.mkdir(parents=True, exist_ok=True)
    for language, text in (("en", source), ("de", target)):
        content = text.encode("utf-8")
        if packed:
            Path(f"{prefix}.{language}.gz").write_bytes(gzip.compress(content))
        else:
            Path(f"{prefix}.{language}").write_bytes(content)


def numbered(word: str, count: int) -> str:
    return "".join(f"{word} {i}\n" for i in range(count))


@pytest.mark.parametrize(
    ("name", "total", "unpublished"),
    [("wmt14_en_de", 4_520_620, ["dev.tgz"]), ("wmt14_en_fr", 40_842_333, ["dev.tgz"])],
)
def test_tables_are_complete(name: str, total: int, unpublished: list[str]) -> None:
    table = corpora.read_table(Path(f"{name}.json"))
    lines = {split: [c["lines"] for c in table["corpora"] if c["split"] == split] for split in corpora.SPLIT_NAMES}
    assert sum(lines["train"]) == total
    assert lines["valid"] == [3000]
    assert lines["test"] == [3003]
    names = {corpora.archive_name(archive) for archive in table["archives"]}
    assert {corpus["archive"] for corpus in table["corpora"]} == names
    assert [corpora.archive_name(a) for a in table["archives"] if a["checksum"] == "recorded"] == unpublished
    assert all(a["url"].startswith("https://www.statmt.org/wmt1") for a in table["archives"])
    test = next(archive for archive in table["archives"] if archive["url"].endswith("test-full.tgz"))
    assert test["checksum"] == "md5:a8cd784e006feb32ac6f3d9ec7eb389a"


def archive(path: Path, members: dict[str, str]) -> dict[str, object]:
    """Write a tar archive; return its entry in a table."""
    with tarfile.open(path, "w:gz" if path.suffix == ".tgz" else "w") as tar:
        for name, text in members.items():
            if name.endswith(".sgm"):
                text = "<doc>\n" + "".join(f'<seg id="1">{line}</seg>\n' for line in text.splitlines()) + "</doc>\n"
            content = text.encode("utf-8")
            content = gzip.compress(content) if name.endswith(".gz") else content
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return {"url": path.as_uri(), "checksum": "recorded", "bytes": path.stat().st_size}


@pytest.mark.parametrize("name", ["wmt14_en_de", "wmt14_en_fr"])
def test_archives_are_fetched_and_extracted(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    table = corpora.read_table(Path(f"{name}.json"))
    for index, entry in enumerate(table["archives"]):
        path = tmp_path / corpora.archive_name(entry)
        texts = {
            corpus[side]: f"{corpus['name']} {side}\n" * 2
            for corpus in table["corpora"]
            if corpus["archive"] == path.name
            for side in corpora.SIDES
        }
        table["archives"][index] = archive(path, texts)
    for corpus in table["corpora"]:
        corpus["lines"] = 2
    corpora.fetch_all(table, tmp_path / "out", None)
    corpora.extract_all(table, tmp_path / "out")
    for corpus in table["corpora"]:
        for side in corpora.SIDES:
            text = (tmp_path / "out" / "text" / f"{corpus['name']}.{table[side]}").read_text(encoding="utf-8")
            assert text == f"{corpus['name']} {side}\n" * 2
    assert "NOT" not in capsys.readouterr().err
    counts = json.loads((tmp_path / "out" / "text" / "counts.json").read_text(encoding="utf-8"))
    assert counts["newstest2014"] == {"split": "test", "lines": 2, "expected": 2}


def test_a_full_disk_is_an_error(tmp_path: Path) -> None:
    table = {"archives": [{"url": "https://nowhere.invalid/a.tgz", "checksum": "recorded", "bytes": 10**18}]}
    with pytest.raises(RecipeError, match="GB"):
        corpora.fetch_all(table, tmp_path, None)


def test_small_text_for_every_corpus(tmp_path: Path) -> None:
    """The parallel text is two directories deep."""
    deep = tmp_path / "text" / "deep"
    write_pair(deep / "train", numbered("house", 30), numbered("Haus", 30))
    write_pair(deep / "val", numbered("tree", 5), numbered("Baum", 5), packed=True)
    write_pair(deep / "test_2016", numbered("dog", 4), numbered("Hund", 4))
    table = corpora.read_table(Path("wmt14_en_de.json"))
    corpora.write_small(table, tmp_path / "text", tmp_path / "small")
    corpora.fetch_all(table, tmp_path / "out", tmp_path / "small")
    corpora.extract_all(table, tmp_path / "out")
    text = tmp_path / "out" / "text"
    train = [line for c in table["corpora"] if c["split"] == "train" for line in (text / f"{c['name']}.en").open()]
    assert sorted(train) == sorted(numbered("house", 30).splitlines(keepends=True))
    assert (text / "newstest2013.de").read_text(encoding="utf-8") == numbered("Baum", 5)
    assert (text / "newstest2014.en").read_text(encoding="utf-8") == numbered(
        "dog", 4
    )  # plain, though the archive's is SGML
    with pytest.raises(RecipeError, match="train, valid"):
        corpora.write_small(table, tmp_path / "small", tmp_path / "other")


def test_unpacked_text_is_used(recipes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = corpora.read_table(recipes / "wmt14_en_de.json")
    mine = tmp_path / "mine"
    write_pair(mine / "training" / "europarl-v7.de-en", "a\n", "b\n")
    write_pair(mine / "commoncrawl.de-en", "c\n", "d\n", packed=True)
    write_pair(mine / "news-commentary-v9", "e\n", "f\n")
    write_pair(mine / "newstest2013", "g\n", "h\n")
    write_pair(mine / "newstest2014", "i\n", "j\n")
    for side in corpora.SIDES:
        name = Path(table["corpora"][-1][side]).name
        (mine / name).write_text('<doc>\n<seg id="1"> k </seg>\n</doc>\n', encoding="utf-8")
    corpora.fetch_all(table, tmp_path / "out", mine)
    corpora.extract_all(table, tmp_path / "out")
    text = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "out" / "text").glob("*.en")}
    assert text == {
        "europarl-v7.en": "a\n",
        "commoncrawl.en": "c\n",
        "news-commentary-v9.en": "e\n",
        "newstest2013.en": "g\n",
        "newstest2014.en": "k\n",
    }
    assert "NOT as expected: 1,920,209" in capsys.readouterr().err
    (mine / "commoncrawl.de-en.de.gz").unlink()
    with pytest.raises(RecipeError, match=r"training-parallel-commoncrawl\.tgz.*commoncrawl\.de\.gz"):
        corpora.fetch_all(table, tmp_path / "other", mine)


def test_sentences_of_a_test_set_keep_every_character() -> None:
    markup = '<refset>\n<DOC>\n<seg id="1"> Fünf\u00a0% </seg>\n <SEG id="2">a\u0085b &amp; c</SEG>\n<hl>\n</refset>\n'
    found = b"".join(corpora.segments(io.BytesIO(markup.encode("utf-8"))))
    assert found.decode("utf-8") == "Fünf\u00a0%\na\u0085b &amp; c\n"


@pytest.mark.parametrize("text", [b"", b"a", b"a\nb", b"a\n\nb\n", b"\n" * 7, b"ab\ncd\n"])
def test_blocks_are_whole_lines(text: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpora, "CHUNK", 3)
    found = list(corpora.blocks(io.BytesIO(text)))
    assert b"".join(found) == text + (b"" if not text or text.endswith(b"\n") else b"\n")
    assert all(block.endswith(b"\n") for block in found)


def test_bytes_that_are_not_utf8_are_replaced_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counts: dict[tuple[str, str], int] = {}
    corpora.write_text(tmp_path / "a.en", counts, ("a", "source"), "a.en", io.BytesIO(b"caf\xe9\nok\n"))
    assert (tmp_path / "a.en").read_text(encoding="utf-8") == "caf\ufffd\nok\n"
    assert counts == {("a", "source"): 2}
    assert "a.en" in capsys.readouterr().err


def test_sides_of_unequal_length_are_an_error(recipes: Path, tmp_path: Path) -> None:
    table = corpora.read_table(recipes / "wmt14_en_de.json")
    counts = {(corpus["name"], side): 10 for corpus in table["corpora"] for side in corpora.SIDES}
    counts["commoncrawl", "target"] += 1
    with pytest.raises(RecipeError, match="commoncrawl: 10 en lines, 11 de lines"):
        corpora.report_counts(table, counts, tmp_path / "counts.json")
