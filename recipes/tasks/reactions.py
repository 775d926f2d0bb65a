"""Top-k accuracy of retrosynthesis in percent, counted in four ways. Markdown on standard output.

reactions.py NBEST.tsv GOLD
    n-best lists of `nmt translate --nbest 5 --format tsv`, and a line of reactants for each list

Needs RDKit. Liu et al. (2017) compare InChI. Karpov, Godin and Tetko (2019) count in the last way:
only the first of five outputs that shares a reactant counts, it may have more reactants, and
molecules that RDKit cannot read are left out before.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
from report import print_table, user_errors

from nmt_cli.errors import DataError
from nmt_cli.files.nbest import read_nbest
from nmt_cli.files.text import read_lines
from nmt_cli.metrics.bleu import check_lengths

try:
    from rdkit import Chem, RDLogger
except ImportError:
    sys.exit("error: reactions.py needs RDKit: pip install rdkit")


def rank_by(write: Callable[..., str], outputs: Sequence[str], reference: str) -> float:
    """Return the rank, from 0, of the first output that `write` writes as the reference."""
    expected = write(Chem.MolFromSmiles(reference))
    for rank, output in enumerate(outputs):
        molecule = Chem.MolFromSmiles(output)
        if molecule and write(molecule) == expected:
            return rank
    return math.inf


def rank_by_string(outputs: Sequence[str], reference: str) -> float:
    return outputs.index(reference) if reference in outputs else math.inf


def rank_by_reactants(outputs: Sequence[str], reference: str) -> float:
    expected = molecules_of(reference)
    candidates = [molecules_of(output) for output in outputs[:5]]
    candidates = [molecules for molecules in candidates if molecules]
    for rank, molecules in enumerate(candidates):
        if molecules & expected:
            return rank if expected <= molecules else math.inf
    return math.inf


def molecules_of(smiles: str) -> set[str]:
    """Return the canonical SMILES of the molecules that RDKit can read."""
    molecules = [Chem.MolFromSmiles(part) for part in smiles.split(".")]
    return {Chem.MolToSmiles(molecule) for molecule in molecules if molecule}


RANKS: dict[str, Callable[[Sequence[str], str], float]] = {
    "same string": rank_by_string,
    "same canonical SMILES": partial(rank_by, Chem.MolToSmiles),
    "same InChI": partial(rank_by, Chem.MolToInchi),
    "all reactants, or more": rank_by_reactants,
}


def without_spaces(text: str) -> str:
    return "".join(text.split())


def main(nbest: str, gold: str) -> None:
    RDLogger.DisableLog("rdApp.*")  # a message for each output that cannot be read
    lists = []
    for outputs in read_nbest(Path(nbest)):
        lists.append([without_spaces(text) for _, text in outputs])
    references = [without_spaces(line) for line in read_lines(Path(gold))]
    check_lengths([(nbest, [outputs[0] for outputs in lists])], [(gold, references)])
    for number, reference in enumerate(references, 1):
        if not reference or Chem.MolFromSmiles(reference) is None:
            raise DataError(
                f"{gold}:{number}: expected SMILES that RDKit can read, not {reference!r:.60}"
            )
    rows = []
    for name, rank_of in RANKS.items():
        pairs = zip(lists, references, strict=True)
        ranks = [rank_of(outputs, reference) for outputs, reference in pairs]
        row = [name]
        for k in (1, 3, 5):
            right = sum(rank < k for rank in ranks)
            row.append(f"{100 * right / len(ranks):.2f}")
        rows.append(row)
    print_table(["right if", "top-1", "top-3", "top-5"], rows)


if __name__ == "__main__":
    with user_errors():
        main(*sys.argv[1:])
