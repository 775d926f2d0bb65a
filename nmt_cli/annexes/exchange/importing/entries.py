"""The vocabulary of another program in the order of our ids.

Ours begin with PAD, UNK, BOS and EOS. The other entries follow in their order. Where the decoder starts with another
symbol than BOS, BOS gets the embedding of that symbol, and a logit with which it is never chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nmt_cli.errors import CheckpointError
from nmt_cli.interfaces import BOS, EOS, PAD, SPECIAL_SYMBOLS, UNK

BELOW = 20.0
"""Distance of BOS's logit below the symbol with the same embedding: e^-20 is less than float32 can tell."""


class Entries(NamedTuple):
    """The vocabulary of a side, in the order of our ids."""

    pieces: list[str]
    rows: Tensor  # the id there of each
    bos_is_copied: bool  # BOS is another symbol there


def entries(vocab: Mapping[str, int], size: int, start: Any, path: Path) -> Entries:
    """Return the entries of a vocabulary.

    Args:
        vocab: their ids, in which the special symbols have our names.
        size: the number of embeddings.
        start: their id of the symbol with which the decoder starts.

    Raises:
        CheckpointError: a special symbol is missing, or ids are not those of different pieces.
    """
    "".join(vocab).encode()  # raises an error that the importer's caller reports, unless all are text
    ids = list(vocab.values())
    if not all(type(i) is int and 0 <= i < size for i in [*ids, start]) or len({*ids}) < len(ids):
        raise CheckpointError(
            f"{path}: damaged: expected different ids below {size} for all entries of its vocabulary and for the first "
            "symbol of outputs"
        )
    named = {i: piece for piece, i in vocab.items() if piece not in SPECIAL_SYMBOLS}
    special = [vocab.get(symbol) for symbol in SPECIAL_SYMBOLS]
    copied = special[BOS] != start
    special[BOS] = start
    for i in (PAD, UNK, EOS):
        if special[i] is None:
            raise CheckpointError(f"{path}: its vocabulary has no {SPECIAL_SYMBOLS[i]}")
    taken = {row for i, row in enumerate(special) if i != BOS or not copied}
    rest = [i for i in range(size) if i not in taken]
    pieces = [*SPECIAL_SYMBOLS, *(named.get(i, f"<unnamed {i}>") for i in rest)]
    return Entries(pieces, torch.tensor([*special, *rest]), copied)
