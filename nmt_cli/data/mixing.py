"""The weights of the parts of the training text by epoch (`--mix-temperature` and `--stage`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from nmt_cli.data.corpus import Corpus, weighted
from nmt_cli.errors import UsageError, nearest, shown

Stages = Sequence[tuple[int, Sequence[float]]]  # the first epoch of each, from 0, and the weight of each part in it


def mixture(corpus: Corpus, temperature: float, stages: Sequence[str]) -> Stages:
    """Return the stages of a training, or none if every epoch has the parts by their own weights.

    A text of `stages` is `bt*2 clean until 3`: the parts that it uses, with weights that multiply their own, and its
    last epoch, unless it is the last stage. With a temperature T, a part with the share q of the sentences gets a share
    proportional to q^(1/T) (Arivazhagan et al. 2019), and the size of the epoch stays.

    Raises:
        UsageError: a stage cannot be read, does not follow on the one before, or has no sentences.
    """
    sizes, own = (np.array(each) for each in zip(*((end - first, w) for first, end, w in corpus.weights), strict=True))
    found: list[tuple[int, list[float]]] = []
    begin = 0
    for number, text in enumerate(stages or ["*"], 1):
        where = f"--stage {shown(text)}: " if stages else ""
        match = re.fullmatch(r"(.*?)(?:\suntil\s+(\d{1,9}))?\s*", text, re.DOTALL)
        assert match is not None
        weights = own * _factors(match[1].split(), corpus, where) if stages else own
        amounts = sizes * weights
        if not round(amounts.sum()):
            raise UsageError(f"{where}with these weights, an epoch has no sentences")
        if temperature != 1:
            shares = amounts ** (1 / temperature)
            weights = amounts.sum() * shares / shares.sum() / np.maximum(sizes, 1)
        found.append((begin, weights.tolist()))
        if number < len(stages) and int(match[2] or 0) <= begin:
            raise UsageError(f"{where}it is not the last stage, so it needs a last epoch: until {begin + 1}, or later")
        if number == len(stages) and match[2]:
            raise UsageError(f"{where}the last stage has no last epoch: leave out `until {match[2]}`")
        begin = int(match[2] or 0)
    return found if stages or temperature != 1 else []


def _factors(words: Sequence[str], corpus: Corpus, where: str) -> list[float]:
    """Return the weight of each part in a stage that has these words: PART or PART*WEIGHT."""
    factors = [0.0] * len(corpus.names)
    for word in words:
        name, weight = weighted(word, where)
        tail = Path(name).parts
        named = [i for i, paths in enumerate(corpus.names) if any(each.parts[-len(tail) :] == tail for each in paths)]
        if not named:
            raise UsageError(f"{where}no part of the training text is called {name}. {nearest(name, labels(corpus))}")
        if any(factors[i] for i in named):
            raise UsageError(f"{where}{name} is there twice")
        for i in named:
            factors[i] = weight
    return factors


def labels(corpus: Corpus) -> list[str]:
    """Return a short name for each part: of its prefix or its directory if that differs from all others, or of both."""
    ways = [[paths[place].name for paths in corpus.names] for place in (-1, 0)]
    both = [f"{paths[0].name}/{paths[-1].name}" for paths in corpus.names]
    return next((way for way in ways if len({*way}) == len(way)), both)


def described(stages: Stages, corpus: Corpus) -> list[str]:
    """Return a line about each stage: its epochs, and the weights and sentences of the parts."""
    lines = []
    for (begin, weights), (end, _) in pairwise([*stages, (0, ())]):
        epochs = f"epochs {begin + 1} to {end}" if end else f"epoch {begin + 1} on"
        parts = zip(labels(corpus), weights, corpus.weights, strict=True)
        amounts = [f"{name} x {w:.4g} ({w * (stop - start):,.0f} pairs)" for name, w, (start, stop, _) in parts if w]
        lines.append(f"{epochs}: {', '.join(amounts)}")
    return lines
