from __future__ import annotations

from pathlib import Path

import pytest

from nmt_cli.errors import DataError
from nmt_cli.parsing.treebank import treebank_files


def write(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("(S (N a))\n")
    return path


def test_a_file_plain_or_compressed(tmp_path: Path) -> None:
    plain, packed = write(tmp_path / "a.txt"), write(tmp_path / "b.ptb.gz")
    assert treebank_files(str(plain)) == [plain]
    assert treebank_files(str(tmp_path / "b.ptb")) == [packed]
    assert treebank_files(str(packed)) == [packed]


def test_a_folder_as_the_penn_treebank_has_it(tmp_path: Path) -> None:
    for name in (
        "wsj/02/wsj_0202.mrg",
        "wsj/02/wsj_0201.mrg",
        "wsj/03/wsj_0301.mrg.gz",
        "wsj/02/readme",
        "wsj/04/a.prd",
    ):
        write(tmp_path / name)
    found = [path.relative_to(tmp_path).as_posix() for path in treebank_files(str(tmp_path / "wsj"))]
    assert found == ["wsj/02/wsj_0201.mrg", "wsj/02/wsj_0202.mrg", "wsj/03/wsj_0301.mrg.gz"]
    assert [path.name for path in treebank_files(str(tmp_path / "wsj/03"))] == ["wsj_0301.mrg.gz"]


def test_what_is_not_there(tmp_path: Path) -> None:
    write(tmp_path / "empty/readme")
    with pytest.raises(DataError, match=r"empty.*\.mrg"):
        treebank_files(str(tmp_path / "empty"))
    with pytest.raises(DataError, match=r"missing: there is no such file.*missing\.gz"):
        treebank_files(str(tmp_path / "missing"))
