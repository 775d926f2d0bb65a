"""The text of the recipes: tables, archives, line counts."""

from __future__ import annotations

import gzip
import io
import json
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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Parallel text, two directories deep."""
    deep = tmp_path / "text" / "deep"
    write_pair(deep / "train", numbered("house", 30), numbered("Haus", 30))
    write_pair(deep / "val", numbered("tree", 5), numbered("Baum", 5), packed=True)
    write_pair(deep / "test_2016", numbered("dog", 4), numbered("Hund", 4))
    return tmp_path / "text"


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


@pytest.mark.parametrize("name", ["wmt14_en_de", "wmt14_en_fr", "multi30k_en_de"])
def test_small_archives_are_fetched_and_extracted(recipes: Path, tmp_path: Path, folder: Path, name: str) -> None:
    table = corpora.read_table(recipes / f"{name}.json")
    if table["target"] == "fr":
        for path in folder.rglob("*.de*"):
            path.rename(path.with_name(path.name.replace(".de", ".fr")))
    small = corpora.make_small(table, folder, tmp_path)
    corpora.fetch_all(small, tmp_path / "out", None)
    corpora.extract_all(small, tmp_path / "out")
    text = tmp_path / "out" / "text"
    train = [line for c in table["corpora"] if c["split"] == "train" for line in (text / f"{c['name']}.en").open()]
    assert sorted(train) == sorted(numbered("house", 30).splitlines(keepends=True))
    valid = next(c["name"] for c in table["corpora"] if c["split"] == "valid")
    assert (text / f"{valid}.{table['target']}").read_text(encoding="utf-8") == numbered("Baum", 5)
    counts = json.loads((text / "counts.json").read_text(encoding="utf-8"))
    assert sum(count["lines"] for count in counts.values()) == 39
    assert all(count["lines"] == count["expected"] for count in counts.values())
    known = {archive["checksum"].split(":")[0] for archive in small["archives"]}
    assert known == ({"recorded"} if name == "multi30k_en_de" else {"recorded", "sha256"})


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


def test_sides_of_unequal_length_are_an_error(recipes: Path, tmp_path: Path, folder: Path) -> None:
    table = corpora.make_small(corpora.read_table(recipes / "wmt14_en_de.json"), folder, tmp_path)
    counts = {(corpus["name"], side): corpus["lines"] for corpus in table["corpora"] for side in corpora.SIDES}
    counts["commoncrawl", "target"] += 1
    with pytest.raises(RecipeError, match="commoncrawl: 10 en lines, 11 de lines"):
        corpora.report_counts(table, counts, tmp_path / "counts.json")


def test_a_directory_without_parallel_text_is_an_error(recipes: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="train, valid"):
        corpora.make_small(corpora.read_table(recipes / "wmt14_en_de.json"), tmp_path, tmp_path / "out")
