"""The weights of the parts of the training text by epoch (`--mix-temperature` and `--stage`)."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
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
        self.temperature = config.mix_temperature
        self.parts = corpus.parts
        self.sizes = np.array([part.end - part.first for part in corpus.parts])
        self.factors: Sequence[Sequence[float]] = [[1.0] * len(corpus.parts)]  # by stage and part
        if config.stage:
            self.begins, self.factors = stages(config.stage, corpus.parts)
        self.plain_weights = [part.weight for part in corpus.parts]
        for first_epoch, text in zip(self.begins, config.stage, strict=False):
            sentences = self.sizes * self.weights(first_epoch, self.plain_weights)
            if round(sentences.sum()) == 0:
                raise UsageError(
                    f"--stage {shown(text)}: with these weights, an epoch has no sentences"
                )

    def weights(self, epoch: int, weights: Sequence[float]) -> Sequence[float]:
        """See `Sentences`."""
        stage = bisect_right(self.begins, epoch) - 1
        mixed = np.array(weights) * np.array(self.factors[stage])
        amounts = self.sizes * mixed
        if self.temperature != 1:
            shares = amounts ** (1 / self.temperature)
            mixed = amounts.sum() * shares / shares.sum() / np.maximum(self.sizes, 1)
        return list(mixed.tolist())

    def lines(self, epochs: float) -> list[str]:
        """Return a line about each stage: its epochs, and the weights and sizes of the parts."""
        lines = []
        ends = [*self.begins[1:], None]
        for first_epoch, end in zip(self.begins, ends, strict=True):
            stage = f"epoch {first_epoch + 1} on"
            if end is not None:
                stage = f"epochs {first_epoch + 1} to {end}"
            weights = self.weights(first_epoch, self.plain_weights)
            amounts = []
            for name, weight, size in zip(labels(self.parts), weights, self.sizes, strict=True):
                if weight:
                    amounts.append(f"{name} x {weight:.4g} ({weight * size:,.0f} pairs)")
            lines.append(f"{stage}: {', '.join(amounts)}")
        last = self.begins[-1]
        if last >= epochs:
            lines.append(
                f"warning: the run has {readable(epochs)} epochs, and the last --stage begins "
                f"after {last}"
            )
        return lines


def stages(texts: Sequence[str], parts: Sequence[Part]) -> tuple[list[int], list[list[float]]]:
    """Return the first epoch of each stage, from 0, and its factors for the parts' weights."""
    begins = [0]
    factors = []
    for number, text in enumerate(texts, 1):
        where = f"--stage {shown(text)}: "
        match = re.fullmatch(r"(.*?)(?:\suntil\s+(\d{1,9}))?\s*", text, re.DOTALL)
        assert match is not None
        factors.append(_factors(match[1].split(), parts, where))
        if number == len(texts):
            if match[2]:
                raise UsageError(
                    f"{where}the last stage has no last epoch: leave out `until {match[2]}`"
                )
            break
        end = int(match[2] or 0)
        if end <= begins[-1]:
            raise UsageError(
                f"{where}it is not the last stage, so it needs a last epoch: until "
                f"{begins[-1] + 1}, or later"
            )
        begins.append(end)
    return begins, factors


def _factors(words: Sequence[str], parts: Sequence[Part], where: str) -> list[float]:
    """Return the weight of each part in a stage that has these words: PART or PART*WEIGHT."""
    factors = [0.0] * len(parts)
    for word in words:
        name, weight = weighted(word, where)
        named = [place for place, part in enumerate(parts) if is_named(part, name)]
        if not named:
            raise UsageError(
                f"{where}no part of the training text is called {name}. "
                f"{nearest(name, labels(parts))}"
            )
        for place in named:
            if factors[place]:
                raise UsageError(f"{where}{name} is there twice")
            factors[place] = weight
    return factors


def is_named(part: Part, name: str) -> bool:
    """Return whether `name` is the end of one of the part's paths."""
    tail = Path(name).parts
    return any(path.parts[-len(tail) :] == tail for path in names(part))


def names(part: Part) -> list[Path]:
    """Return the paths by which a part may be named: its directory, and its prefix or its files."""
    paths = [part.data.resolve()]
    if part.prefix:
        prefix, _ = untagged(part.prefix)
        paths += map(Path, prefix.split("\t"))
    return paths


def labels(parts: Sequence[Part]) -> list[str]:
    """Return a short name for each part: of its text or its directory, or of both if need be."""
    paths = [names(part) for part in parts]
    of_text = [part_paths[-1].name for part_paths in paths]
    of_directory = [part_paths[0].name for part_paths in paths]
    for short in (of_text, of_directory):
        if len(set(short)) == len(short):
            return short
    return [f"{directory}/{text}" for directory, text in zip(of_directory, of_text, strict=True)]
