"""A made-up English treebank for tests and trial runs.

The words of a sentence determine its tree. A phrase with `of` belongs to the noun before it, a
phrase with `in` to the verb.
"""

from __future__ import annotations

import random
from pathlib import Path

from report import write_lines

_NOUNS = "cat dog bird child teacher farmer house garden river stone song letter".split()
_ADJECTIVES = "old small green happy quiet".split()
_VERBS = "sees likes finds paints carries".split()
_THINKING = "thinks says hopes".split()
_DEEPEST = 2  # embedded clauses


def tree(source: random.Random) -> str:
    """Return a random tree in brackets."""
    return f"(TOP {_sentence(source, 0, ' (. .)')})"


def treebank(train: int, dev: int, test: int, seed: int = 1) -> dict[str, list[str]]:
    """Return the given numbers of different trees for "train", "dev" and "test"."""
    source = random.Random(seed)
    drawn: dict[str, None] = {}
    while len(drawn) < train + dev + test:
        drawn[tree(source)] = None
    trees = list(drawn)
    return {"test": trees[:test], "dev": trees[test : test + dev], "train": trees[test + dev :]}


def write_treebank(out: Path, train: int, dev: int, test: int, seed: int = 1) -> None:
    """Write OUT/{train,dev,test}.ptb, one tree a line."""
    out.mkdir(parents=True, exist_ok=True)
    for part, trees in treebank(train, dev, test, seed).items():
        write_lines(out / f"{part}.ptb", trees)


def _sentence(source: random.Random, depth: int, ending: str = "") -> str:
    return f"(S {_noun_phrase(source)} {_verb_phrase(source, depth)}{ending})"


def _noun_phrase(source: random.Random) -> str:
    adjective = f" (JJ {source.choice(_ADJECTIVES)})" if source.random() < 0.4 else ""
    phrase = f"(NP (DT the){adjective} (NN {source.choice(_NOUNS)}))"
    if source.random() < 0.25:
        phrase = f"(NP {phrase} (PP (IN of) {_noun_phrase(source)}))"
    return phrase


def _verb_phrase(source: random.Random, depth: int) -> str:
    if depth < _DEEPEST and source.random() < 0.25:
        return (
            f"(VP (VBZ {source.choice(_THINKING)}) (SBAR (IN that) {_sentence(source, depth + 1)}))"
        )
    place = f" (PP (IN in) {_noun_phrase(source)})" if source.random() < 0.3 else ""
    return f"(VP (VBZ {source.choice(_VERBS)}) {_noun_phrase(source)}{place})"
