"""Lines of several sentences: split, translated sentence by sentence, and put together again.

The splitter is sentencex: rules and lists of abbreviations by language. It is small, needs no model and no download, is
maintained, and leaves two sentences together rather than cut one in the middle. It still cuts after "Ms." and, in
French, "M."; so a sentence does not end after a word of Moses' lists of abbreviations either.
"""

from __future__ import annotations

import dataclasses
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from itertools import islice

from nmt_cli.decoding.outputs import Translation
from nmt_cli.errors import UsageError, missing_package, shown
from nmt_cli.interfaces import EOS, SPECIAL_SYMBOLS
from nmt_cli.task import Task

Split = Callable[[str], list[str]]
"""From a line to its sentences, each with the white space after it; joined, they are the line."""


def splitter(task: Task, language: str | None) -> Split:
    """Return the function that splits the source text of a task.

    Args:
        language: an ISO 639 code; None is the task's own source language.

    Raises:
        UsageError: sentencex is not installed, the task has no source language, or its language is no ISO 639 code.
    """
    if task.source_language is None:
        raise UsageError(f"--split-sentences cannot be used with the task {task.name!r}: a line is one sentence")
    chosen = task.source_language if language is None else language
    code = re.fullmatch(r"([a-z]{2,3})([-_].*)?", chosen.lower())
    if code is None:
        whose = "the checkpoint's source language" if language is None else "--sentence-language"
        raise UsageError(f"{whose} is {shown(chosen)}, not an ISO 639 code: add --sentence-language CODE, such as en")
    try:
        import sentencex
    except ImportError as error:
        raise missing_package("--split-sentences", error, extra="sentences") from error
    from sacremoses.corpus import NonbreakingPrefixes

    return partial(_sentences, partial(sentencex.segment, code[1]), frozenset(NonbreakingPrefixes().words(code[1])))


def joined(
    lines: Sequence[str], parts: Iterable[Sequence[str]], translations: Iterable[Translation]
) -> list[Translation]:
    """Return the translation of each line, made of the translations of its sentences.

    Args:
        parts: the sentences of each line.
        translations: of all sentences, one after the other.
    """
    rest = iter(translations)
    return [_joined(line, part, list(islice(rest, len(part)))) for line, part in zip(lines, parts, strict=True)]


def _sentences(segment: Callable[[str], list[str]], abbreviations: Collection[str], line: str) -> list[str]:
    """Split a line; a sentence is more than white space, and does not end in an abbreviation."""
    plain = re.sub(r"[^\S\x00-\x7f]", " ", line)  # sentencex 1.0.32 panics at some Unicode spaces
    sentences: list[str] = []
    place = 0
    for length in map(len, segment(plain)):
        piece = line[place : place + length]
        place += length
        if sentences and (not piece.strip() or _goes_on(sentences[-1], abbreviations)):
            sentences[-1] += piece
        else:
            sentences.append(piece)
    return sentences or [line]


def _goes_on(sentence: str, abbreviations: Collection[str]) -> bool:
    """Whether what follows belongs to it: it is white space so far, or ends in an abbreviation."""
    words = sentence.rsplit(maxsplit=1)
    return not words or (words[-1].endswith(".") and re.sub(r"^\W+", "", words[-1][:-1]) in abbreviations)


def _joined(line: str, sentences: Sequence[str], translations: Sequence[Translation]) -> Translation:
    """Return the translation of a line from those of its sentences.

    The score is the sum of their scores. Between their tokens stands the end of the sentence, so that each token has
    its log-probability.
    """
    if len(translations) == 1:
        return translations[0]
    *firsts, last = outputs = [translation.outputs[0] for translation in translations]
    text, tokens, ids = "", list[str](), list[int]()
    for sentence, output in zip(sentences[:-1], firsts, strict=True):
        text += output.text + _space_between(sentence, output.text)
        end = [EOS] * (len(output.token_scores) - len(output.tokens))  # none if it was cut at its maximum length
        tokens += [*output.tokens, *(SPECIAL_SYMBOLS[i] for i in end)]
        ids += [*output.ids, *end]
    whole = dataclasses.replace(
        last,
        text=(text + last.text).rstrip(),
        score=sum(output.score for output in outputs),
        tokens=[*tokens, *last.tokens],
        token_scores=[score for output in outputs for score in output.token_scores],
        ids=[*ids, *last.ids],
    )
    return dataclasses.replace(
        translations[0],
        source=line,
        outputs=[whole],
        source_length=sum(translation.source_length for translation in translations),
        truncated=any(translation.truncated for translation in translations),
        unknown=all(translation.unknown for translation in translations),
        longest=max(translation.longest for translation in translations),
    )


def _space_between(sentence: str, output: str) -> str:
    """Return what follows a sentence's output: the tabs and spaces after the sentence, or a space if there are none.

    After the full-width punctuation of Chinese and Japanese comes none.
    """
    if not output:
        return ""
    space, last = sentence[len(sentence.rstrip()) :], output[-1]
    if space != " " and space.strip("\t ") == "" != space:
        return space
    full_width = unicodedata.category(last).startswith("P") and unicodedata.east_asian_width(last) in "WF"
    return "" if full_width else " "
