"""The top-k accuracy of reactions: the published figures of a real system, and each count."""

from __future__ import annotations

import gzip
import itertools
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

Script = Callable[..., Any]
GOLD = "CCO.CC(=O)O"


@pytest.fixture
def script(bash: Callable[..., Any], recipes: Path, tmp_path: Path) -> Script:
    """Run the script for n-best lists and references."""

    def run(lists: list[list[str]], references: list[str], **options: Any) -> Any:
        if find_spec("rdkit") is None and "PYTHONPATH" not in options:
            pytest.skip("needs RDKit: pip install rdkit")
        numbered = (
            f"{number}\t0\t{text}\n" for number, texts in enumerate(lists, 1) for text in texts
        )
        (tmp_path / "nbest.tsv").write_text("".join(numbered), encoding="utf-8")
        (tmp_path / "gold").write_text(
            "".join(f"{line}\n" for line in references), encoding="utf-8"
        )
        words = (
            sys.executable,
            recipes / "tasks/reactions.py",
            tmp_path / "nbest.tsv",
            tmp_path / "gold",
        )
        return bash("-c", 'exec "$@"', "_", *words, **options)

    return run


def test_published_accuracy(
    script: Script, rows_of: Callable[[str], dict[str, list[str]]], shared_data: Path
) -> None:
    """The LSTM of Liu et al. (2017), from its greedy search."""
    path = shared_data / "tasks/retrosynthesis/official/lstm-beam_1_test_results.gz"
    lines = itertools.islice(gzip.decompress(path.read_bytes()).decode().split("\n"), 5016)
    pairs = [
        [reaction.split(">>")[0] for reaction in line.split(" ")] for line in lines if ">>" in line
    ]
    rows = rows_of(
        script([[output] for output, _ in pairs], [reference for _, reference in pairs]).stdout
    )
    assert {
        name: cells[0]
        for name, cells in rows.items()
        if "top" not in cells[0] and "-" not in cells[0]
    } == {
        "same string": "35.67",
        "same canonical SMILES": "37.41",
        "same InChI": "37.47",
        "all reactants, or more": "37.69",
    }


@pytest.mark.parametrize(
    ("outputs", "reference", "places"),
    [
        ([GOLD], GOLD, [1, 1, 1, 1]),
        (["C C O . C C ( = O ) O"], GOLD, [1, 1, 1, 1]),
        (["OC(C)=O.OCC"], GOLD, [0, 1, 1, 1]),
        (["O=c1cccc[nH]1"], "Oc1ccccn1", [0, 0, 1, 0]),
        (["CCO(", GOLD], GOLD, [3, 3, 3, 1]),  # what cannot be read has no rank
        (["CCO.CC(=O)O.C("], GOLD, [0, 0, 0, 1]),
        (["CCO.CC(=O)O.C"], GOLD, [0, 0, 0, 1]),  # a reactant beyond the reference's
        (["CCO", GOLD], GOLD, [3, 3, 3, 0]),  # the first output shares a reactant
        (["N", "CC", "C", GOLD], GOLD, [5, 5, 5, 5]),
        (["N", "CC", "C", "CCC", "CCCC", GOLD], GOLD, [0, 0, 0, 0]),
        (["CCO(", "CC", "C", "CCC", "CCCC", GOLD], GOLD, [0, 0, 0, 0]),
        (["C("], GOLD, [0, 0, 0, 0]),
    ],
)
def test_ways_to_count(
    script: Script,
    rows_of: Callable[[str], dict[str, list[str]]],
    outputs: list[str],
    reference: str,
    places: list[int],
) -> None:
    """`places` has the smallest k at which each way counts the line as right."""
    rows = list(rows_of(script([outputs], [reference]).stdout).values())[2:]
    assert rows == [["100.00" if 0 < place <= k else "0.00" for k in (1, 3, 5)] for place in places]


@pytest.mark.parametrize(
    ("lists", "references", "message"),
    [
        ([["C"]], ["C", "N"], "nbest.tsv: 1 line, but"),
        ([["C"], ["C"]], ["C", "C("], "gold:2: expected SMILES that RDKit can read, not 'C('"),
        ([["C"], ["C"]], ["C", ""], "gold:2: expected SMILES"),
    ],
)
def test_files_that_cannot_be_compared(
    script: Script, lists: list[list[str]], references: list[str], message: str
) -> None:
    assert message in script(lists, references, code=1).stderr


def test_without_rdkit(script: Script, tmp_path: Path) -> None:
    (tmp_path / "rdkit.py").touch()
    assert (
        "needs RDKit: pip install rdkit"
        in script([["C"]], ["C"], code=1, PYTHONPATH=str(tmp_path)).stderr
    )
