"""The weights of the parts of the training text by epoch (`--mix-temperature` and `--stage`)."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from nmt_cli.annexes.later.settings import MixingConfig
from nmt_cli.data.corpus import Corpus, Part
from nmt_cli.data.sentences import Sentences
from nmt_cli.errors import UsageError, nearest, shown
from nmt_cli.files.text import untagged, weighted
from nmt_cli.training.reporter import readable


class Mixing(Sentences):
    """The parts of the text by stages and by temperature.

    A text of `stage` is `bt*2 clean until 3`: the parts that it uses, with weights that multiply
    their own, and its last epoch, unless it is the last stage. With a temperature T, a part with
    the share q of the sentences gets a share proportional to q^(1/T) (Arivazhagan et al. 2019), and
    the size of the epoch stays.

    Raises:
        UsageError: a stage cannot be read, does not follow on the one before, or has no sentences.
    """

    def __init__(self, config: MixingConfig, *, corpus: Corpus, **_: Any) -> None:
        self.temperature, self.parts = config.mix_temperature, corpus.parts
        self.sizes = np.array([part.end - part.first for part in corpus.parts])
        self.factors: Sequence[Sequence[float]] = [[1.0] * len(corpus.parts)]
        if config.stage:
            self.begins, self.factors = stages(config.stage, corpus.parts)
        self.own = [part.weight for part in corpus.parts]
        for begin, text in zip(self.begins, config.stage, strict=False):
            if not round((self.sizes * self.weights(begin, self.own)).sum()):
                raise UsageError(
                    f"--stage {shown(text)}: with these weights, an epoch has no sentences"
                )

    def weights(self, epoch: int, weights: Sequence[float]) -> Sequence[float]:
        mixed = np.array(weights) * np.array(self.factors[bisect_right(self.begins, epoch) - 1])
        amounts = self.sizes * mixed
        if self.temperature != 1:
            shares = amounts ** (1 / self.temperature)
            mixed = amounts.sum() * shares / shares.sum() / np.maximum(self.sizes, 1)
        return list(mixed.tolist())

    def lines(self, epochs: float) -> list[str]:
        """Return a line about each stage: its epochs, and the weights and sentences of the parts."""
        lines = []
        for begin, end in pairwise([*self.begins, 0]):
            these = f"epochs {begin + 1} to {end}" if end else f"epoch {begin + 1} on"
            amounts = []
            for name, weight, size in zip(
                labels(self.parts), self.weights(begin, self.own), self.sizes, strict=True
            ):
                if weight:
                    amounts.append(f"{name} x {weight:.4g} ({weight * size:,.0f} pairs)")
            lines.append(f"{these}: {', '.join(amounts)}")
        last = self.begins[-1]
        if last >= epochs:
            lines.append(
                f"warning: the run has {readable(epochs)} epochs, and the last --stage begins "
                f"after {last}"
            )
        return lines


def stages(texts: Sequence[str], parts: Sequence[Part]) -> tuple[list[int], list[list[float]]]:
    """Return the first epoch of each stage, from 0, and by what it multiplies the weights of the
    parts.
    """
    begins, factors = [0], []
    for number, text in enumerate(texts, 1):
        where = f"--stage {shown(text)}: "
        match = re.fullmatch(r"(.*?)(?:\suntil\s+(\d{1,9}))?\s*", text, re.DOTALL)
        assert match is not None
        factors.append(_factors(match[1].split(), parts, where))
        begin, end = begins[-1], int(match[2] or 0)
        if number < len(texts) and end <= begin:
            raise UsageError(
                f"{where}it is not the last stage, so it needs a last epoch: until {begin + 1}, or "
                "later"
            )
        if number == len(texts) and match[2]:
            raise UsageError(
                f"{where}the last stage has no last epoch: leave out `until {match[2]}`"
            )
        begins.append(end)
    return begins[:-1], factors


def _factors(words: Sequence[str], parts: Sequence[Part], where: str) -> list[float]:
    """Return the weight of each part in a stage that has these words: PART or PART*WEIGHT."""
    factors = [0.0] * len(parts)
    for word in words:
        name, weight = weighted(word, where)
        tail = Path(name).parts
        named = [
            i
            for i, part in enumerate(parts)
            if any(path.parts[-len(tail) :] == tail for path in names(part))
        ]
        if not named:
            raise UsageError(
                f"{where}no part of the training text is called {name}. "
                f"{nearest(name, labels(parts))}"
            )
        if any(factors[i] for i in named):
            raise UsageError(f"{where}{name} is there twice")
        for i in named:
            factors[i] = weight
    return factors


def names(part: Part) -> list[Path]:
    """Return the paths by which a part may be named: of its directory, and the prefix or the files
    of its text.
    """
    places = untagged(part.prefix)[0].split("\t") if part.prefix else []
    return [part.data.resolve(), *map(Path, places)]


def labels(parts: Sequence[Part]) -> list[str]:
    """Return a short name for each part: of its prefix or its directory if that differs from all
    others, or of both.
    """
    paths = [names(part) for part in parts]
    for place in (-1, 0):
        short = [path[place].name for path in paths]
        if len(set(short)) == len(short):
            return short
    return [f"{path[0].name}/{path[-1].name}" for path in paths]
