"""Lines of several sentences: split, translated sentence by sentence, and put together again.

The splitter is sentencex: rules and lists of abbreviations by language. It is small, needs no model
and no download, is maintained, and leaves two sentences together rather than cut one in the middle.
It still cuts after "Ms." and, in French, "M."; so a sentence does not end after a word of Moses'
lists of abbreviations either.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from nmt_cli.annexes.around.attention import LINKED, Links
from nmt_cli.annexes.around.settings import SentencesConfig
from nmt_cli.decoding.around import Around
from nmt_cli.decoding.engine import Engine
from nmt_cli.decoding.options import TranslateOptions
from nmt_cli.decoding.outputs import Output, Translation
from nmt_cli.errors import UsageError, missing_package, shown
from nmt_cli.interfaces import EOS, SPECIAL_SYMBOLS
from nmt_cli.task import Task

Split = Callable[[str], list[str]]
"""From a line to its sentences, each with the white space after it; joined, they are the line."""


def sentences(
    config: SentencesConfig, *, engine: Engine, options: TranslateOptions
) -> Sentences | None:
    """Return what divides lines, if they are to be divided."""
    if config.split_sentences:
        return Sentences(splitter(engine.task, config.sentence_language), options)
    if config.sentence_language is not None:
        raise UsageError("--sentence-language needs --split-sentences")
    return None


def splitter(task: Task, language: str | None) -> Split:
    """Return the function that splits the source text of a task.

    Args:
        language: an ISO 639 code; None is the task's own source language.

    Raises:
        UsageError: sentencex is not installed, the task has no source language, or its language is
            no ISO 639 code.
    """
    if task.languages is None:
        raise UsageError(
            f"--split-sentences cannot be used with the task {task.name!r}: a line is one sentence"
        )
    chosen = task.languages[0] if language is None else language
    code = re.fullmatch(r"([a-z]{2,3})([-_].*)?", chosen.lower())
    if code is None:
        whose = "the checkpoint's source language" if language is None else "--sentence-language"
        raise UsageError(
            f"{whose} is {shown(chosen)}, not an ISO 639 code: add --sentence-language CODE, such "
            "as en"
        )
    try:
        import sentencex
    except ImportError as error:
        raise missing_package("--split-sentences", error, extra="sentences") from error
    from sacremoses.corpus import NonbreakingPrefixes

    return partial(
        _sentences,
        partial(sentencex.segment, code[1]),
        frozenset(NonbreakingPrefixes().words(code[1])),
    )


class Sentences(Around):
    """Translates the sentences of a line one by one, and joins their outputs.

    The outputs of a line are those with the highest sums of the scores of its sentences. Samples
    are joined in the order in which they were drawn.
    """

    order = 20

    def __init__(self, split: Split, options: TranslateOptions) -> None:
        self._split, self._nbest, self._draws = (
            split,
            options.search.nbest,
            bool(options.used("search")),
        )

    def read(self, line: str) -> tuple[list[str], Any]:
        """Return the sentences of a line. The note is what they are, with their white space."""
        sentences = self._split(line)
        return sentences, sentences

    def write(self, line: str, translations: Sequence[Translation], note: Any) -> Translation:
        """See `Around`."""
        if len(translations) == 1:
            return translations[0]
        outputs = [translation.outputs for translation in translations]
        return replace(
            translations[0],
            source=line,
            outputs=[_joined(line, note, combination) for combination in self._combined(outputs)],
            source_length=sum(translation.source_length for translation in translations),
            truncated=any(translation.truncated for translation in translations),
            unknown=all(translation.unknown for translation in translations),
            longest=max(translation.longest for translation in translations),
        )

    def _combined(self, outputs: Sequence[Sequence[Output]]) -> list[list[Output]]:
        """Return combinations of an output of each sentence: `nbest`, the best first, or the
        samples as drawn.
        """
        count = max(map(len, outputs))
        if self._draws:
            return [[row[min(number, len(row) - 1)] for row in outputs] for number in range(count)]
        combinations: list[list[Output]] = [[]]
        for row in outputs:
            # A pair with `nbest` better ones is out: each that is no worse in both parts is.
            pairs = [
                [*combination, output]
                for i, combination in enumerate(combinations)
                for j, output in enumerate(row)
                if (i + 1) * (j + 1) <= self._nbest
            ]
            combinations = sorted(pairs, key=_score, reverse=True)[: self._nbest]
        return combinations


def _score(outputs: Iterable[Output]) -> float:
    return sum(output.score for output in outputs)


def _sentences(
    segment: Callable[[str], list[str]], abbreviations: Collection[str], line: str
) -> list[str]:
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
    return not words or (
        words[-1].endswith(".") and re.sub(r"^\W+", "", words[-1][:-1]) in abbreviations
    )


def _joined(line: str, sentences: Sequence[str], outputs: Sequence[Output]) -> Output:
    """Return the output of a line, made of the outputs of its sentences.

    The score is the sum of their scores. Between their tokens stands the end of the sentence, so
    that each token has its log-probability.
    """
    *firsts, last = outputs
    text, tokens, ids, starts = "", list[str](), list[int](), [0]
    for sentence, output in zip(sentences[:-1], firsts, strict=True):
        text += output.text + _space_between(sentence, output.text)
        starts.append(len(text))
        # None if it was cut at its maximum length.
        end = [EOS] * (len(output.token_scores) - len(output.tokens))
        tokens += [*output.tokens, *(SPECIAL_SYMBOLS[i] for i in end)]
        ids += [*output.ids, *end]
    text = (text + last.text).rstrip()
    return replace(
        last,
        text=text,
        score=_score(outputs),
        tokens=[*tokens, *last.tokens],
        token_scores=[score for output in outputs for score in output.token_scores],
        ids=[*ids, *last.ids],
        notes=_joined_links(line, sentences, text, starts, outputs),
    )


def _joined_links(
    line: str, sentences: Sequence[str], text: str, starts: Sequence[int], outputs: Sequence[Output]
) -> dict[str, Links]:
    """Return the links of the words of a line, made of the links of its sentences, whose outputs
    begin at `starts`.
    """
    notes = dict[str, Links]()
    for name, word in LINKED.items():
        if not any(name in output.notes for output in outputs):
            continue
        notes[name] = []
        place = 0
        for sentence, output, start in zip(sentences, outputs, starts, strict=True):
            sources = _numbers(line, place, sentence, word)
            targets = _numbers(text, start, output.text, word)
            notes[name] += [(sources[i], targets[j]) for i, j in output.notes.get(name, ())]
            place += len(sentence)
    return notes


def _numbers(whole: str, place: int, part: str, word: re.Pattern[str]) -> list[int]:
    """Return the number in `whole` of each word of `part`, which stands there at `place`."""
    starts = [match.start() for match in word.finditer(whole)]
    return [bisect_right(starts, place + match.start()) - 1 for match in word.finditer(part)]


def _space_between(sentence: str, output: str) -> str:
    """Return what follows a sentence's output: the tabs and spaces after the sentence, or a space
    if there are none.

    After the full-width punctuation of Chinese and Japanese comes none.
    """
    if not output:
        return ""
    space, last = sentence[len(sentence.rstrip()) :], output[-1]
    if space != " " and space.strip("\t ") == "" != space:
        return space
    full_width = (
        unicodedata.category(last).startswith("P") and unicodedata.east_asian_width(last) in "WF"
    )
    return "" if full_width else " "
