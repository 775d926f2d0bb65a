"""Top-k accuracy of retrosynthesis in percent, counted in four ways. Markdown on standard output.

reactions.py NBEST.tsv GOLD     n-best lists of `nmt translate --nbest 5 --format tsv`, and a line of reactants for each

Needs RDKit. Liu et al. (2017) compare InChI. The last way is that of Karpov, Godin and Tetko
(2019): only the first of five outputs that shares a reactant counts, it may have more, and what
RDKit cannot read is left out before.
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
    """Return the place, from 0, of the first output whose molecules RDKit writes as the
    reference's, or infinity.
    """
    forms = (
        write(molecule) if (molecule := Chem.MolFromSmiles(output)) else None for output in outputs
    )
    wanted = write(Chem.MolFromSmiles(reference))
    return next((rank for rank, form in enumerate(forms) if form == wanted), math.inf)


def rank_by_reactants(outputs: Sequence[str], reference: str) -> float:
    found, wanted = list(filter(None, map(readable, outputs[:5]))), readable(reference)
    rank = next((rank for rank, reactants in enumerate(found) if reactants & wanted), 0)
    return rank if found and wanted <= found[rank] else math.inf


def readable(smiles: str) -> set[str]:
    return {
        Chem.MolToSmiles(molecule)
        for molecule in map(Chem.MolFromSmiles, smiles.split("."))
        if molecule
    }


RANKS: dict[str, Callable[[Sequence[str], str], float]] = {
    "same string": lambda outputs, reference: (
        outputs.index(reference) if reference in outputs else math.inf
    ),
    "same canonical SMILES": partial(rank_by, Chem.MolToSmiles),
    "same InChI": partial(rank_by, Chem.MolToInchi),
    "all reactants, or more": rank_by_reactants,
}


def main(nbest: str, gold: str) -> None:
    RDLogger.DisableLog("rdApp.*")  # a message for each output that cannot be read
    lists = [["".join(text.split()) for _, text in outputs] for outputs in read_nbest(Path(nbest))]
    references = ["".join(line.split()) for line in read_lines(Path(gold))]
    check_lengths([(nbest, [outputs[0] for outputs in lists])], [(gold, references)])
    for number, reference in enumerate(references, 1):
        if not reference or Chem.MolFromSmiles(reference) is None:
            raise DataError(
                f"{gold}:{number}: expected SMILES that RDKit can read, not {reference!r:.60}"
            )
    rows = []
    for name, rank_of in RANKS.items():
        ranks = list(map(rank_of, lists, references))
        rows.append(
            [
                name,
                *(f"{100 * sum(rank < k for rank in ranks) / len(ranks):.2f}" for k in (1, 3, 5)),
            ]
        )
    print_table(["right if", "top-1", "top-3", "top-5"], rows)


if __name__ == "__main__":
    with user_errors():
        main(*sys.argv[1:])
