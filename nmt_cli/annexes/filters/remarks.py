"""Notes of `nmt score` about text that is scored as it is, but probably should not be."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from nmt_cli.annexes.filters.marks import MOSES_MARKS
from nmt_cli.metrics.bleu import Named, Score

_TOKENIZED = re.compile(rf"{MOSES_MARKS.pattern}| [.,](?= |$)")
# Of the lines. Tokenized text has such a mark in most lines, plain text in very few.
_TOKENIZED_SHARE = 0.2


def remarks(
    systems: Sequence[Named], references: Sequence[Named], scores: Sequence[Score]
) -> Iterator[str]:
    """Yield the notes about systems and references."""
    signatures = [score.signature for score in scores]
    if any("|case:" in text and "|tok:none|" not in text for text in signatures):
        yield from _remarks_on_tokens([*references, *systems])
    bleu = [score for score in scores if score.details]
    if not all(re.search(r"\|tok:(zh|char)\|", score.signature) for score in bleu):
        yield from _remarks_on_spaces(references)
    without_bleu = {score.system for score in bleu if score.score == 0}
    for name, lines in systems:
        if name in without_bleu and all(len(line.split()) < 4 for line in lines):
            yield (
                f"{name} has no line of four words, without which BLEU is 0: use --metric "
                "chrf,exact"
            )
    if any("|case:mixed|" in text for text in signatures):
        yield from _remarks_on_case(systems, references)


def _remarks_on_tokens(files: Sequence[Named]) -> Iterator[str]:
    for name, lines in files:
        tokenized = [number for number, line in enumerate(lines, 1) if _TOKENIZED.search(line)]
        if len(tokenized) >= _TOKENIZED_SHARE * len(lines):
            yield (
                f"{name} looks tokenized (line {tokenized[0]}): detokenize it before scoring, or "
                "use --metric multi-bleu-untokenised"
            )


def _remarks_on_spaces(references: Sequence[Named]) -> Iterator[str]:
    for name, lines in references:
        if has_few_spaces(lines):
            yield (
                f"{name} has few spaces, and this BLEU counts words between spaces: use --metric "
                "sacrebleu-zh for Chinese, and sacrebleu-char or chrf for Japanese, Thai and others"
            )


def _remarks_on_case(systems: Sequence[Named], references: Sequence[Named]) -> Iterator[str]:
    if all(line == line.lower() for _, lines in references for line in lines):
        return
    for name, lines in systems:
        if "".join(lines).islower():
            yield (
                f"{name} has no upper case, but the references have: --metric bleu-lc does not "
                "count case"
            )


def has_few_spaces(lines: Sequence[str]) -> bool:
    """Return whether more than ten letters of scripts without upper case stand for each space."""
    text = "".join(lines)
    letters = [character for character in text if character.isalpha()]
    without_case = sum(letter.upper() == letter.lower() for letter in letters)
    return without_case > 10 * text.count(" ")
