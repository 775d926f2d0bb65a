"""Lines of several sentences: split, translated sentence by sentence, and put together again.

The splitter is sentencex: rules and lists of abbreviations by language. It is small, needs no model
and no download, is maintained, and leaves two sentences together rather than cut one in the middle.
It still cuts after "Ms." and, in French, "M.". So a sentence does not end after a word of Moses'
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

from nmt_cli.annexes.around.settings import SentencesConfig
from nmt_cli.annexes.around.words import LINKED, Links
from nmt_cli.decoding.around import Around
from nmt_cli.decoding.engine import Engine
from nmt_cli.decoding.options import TranslateOptions
from nmt_cli.decoding.outputs import Output, Translation
from nmt_cli.errors import UsageError, missing_package, shown
from nmt_cli.interfaces import EOS, SPECIAL_SYMBOLS
from nmt_cli.task import Task

Split = Callable[[str], list[str]]
"""From a line to its sentences, each with the white space after it. Joined, they are the line."""


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
        language: an ISO 639 code. None is the task's source language.

    Raises:
        UsageError: sentencex is not installed, the task has no source language, or its language is
            not an ISO 639 code.
    """
    if task.languages is None:
        raise UsageError(
            f"--split-sentences cannot be used with the task {task.name!r}: a line is one sentence"
        )
    origin = "--sentence-language"
    if language is None:
        language = task.languages[0]
        origin = "the checkpoint's source language"
    code = re.fullmatch(r"([a-z]{2,3})([-_].*)?", language.lower())
    if code is None:
        raise UsageError(
            f"{origin} is {shown(language)}, not an ISO 639 code: "
            "add --sentence-language CODE, such as en"
        )
    try:
        import sentencex
    except ImportError as error:
        raise missing_package("--split-sentences", error, extra="sentences") from error
    from sacremoses.corpus import NonbreakingPrefixes

    segment = partial(sentencex.segment, code[1])
    abbreviations = frozenset(NonbreakingPrefixes().words(code[1]))
    return partial(_sentences, segment, abbreviations)


class Sentences(Around):
    """Translates the sentences of a line one by one, and joins their outputs.

    The outputs of a line are those with the highest sums of the scores of its sentences. Samples
    are joined in the order in which they were drawn.
    """

    order = 20

    def __init__(self, split: Split, options: TranslateOptions) -> None:
        self._split = split
        self._nbest = options.search.nbest
        self._draws = bool(options.used("search"))  # outputs are samples

    def read(self, line: str) -> tuple[list[str], Any]:
        """Return the sentences of a line, with their white space. They are the note, too."""
        sentences = self._split(line)
        return sentences, sentences

    def write(self, line: str, translations: Sequence[Translation], note: Any) -> Translation:
        """See `Around`."""
        if len(translations) == 1:
            return translations[0]
        combinations = self._combined([translation.outputs for translation in translations])
        return replace(
            translations[0],
            source=line,
            outputs=[_joined(line, note, combination) for combination in combinations],
            source_length=sum(translation.source_length for translation in translations),
            truncated=any(translation.truncated for translation in translations),
            unknown=all(translation.unknown for translation in translations),
            longest=max(translation.longest for translation in translations),
        )

    def _combined(self, outputs: Sequence[Sequence[Output]]) -> list[list[Output]]:
        """Return combinations of an output of each sentence.

        They are the `nbest` with the highest sums of scores, best first, or the samples as drawn.
        """
        if self._draws:
            return self._samples(outputs)
        combinations: list[list[Output]] = [[]]
        for of_sentence in outputs:
            longer = list[list[Output]]()
            for i, combination in enumerate(combinations):
                for j, output in enumerate(of_sentence):
                    # So many pairs, of these outputs or better ones, are at least as good.
                    if (i + 1) * (j + 1) <= self._nbest:
                        longer.append([*combination, output])
            combinations = sorted(longer, key=_score, reverse=True)[: self._nbest]
        return combinations

    def _samples(self, outputs: Sequence[Sequence[Output]]) -> list[list[Output]]:
        """Return as many combinations as there are samples. An empty sentence has one output."""
        combinations = []
        for number in range(max(map(len, outputs))):
            combinations.append([row[min(number, len(row) - 1)] for row in outputs])
        return combinations


def _score(outputs: Iterable[Output]) -> float:
    return sum(output.score for output in outputs)


def _sentences(
    segment: Callable[[str], list[str]], abbreviations: Collection[str], line: str
) -> list[str]:
    """Split a line. A sentence is more than white space, and does not end in an abbreviation."""
    # sentencex 1.0.32 panics at some Unicode spaces.
    with_spaces = re.sub(r"[^\S\x00-\x7f]", " ", line)
    sentences: list[str] = []
    place = 0
    for segment_of_line in segment(with_spaces):
        end = place + len(segment_of_line)
        piece = line[place:end]
        place = end
        if sentences and (not piece.strip() or _goes_on(sentences[-1], abbreviations)):
            sentences[-1] += piece
        else:
            sentences.append(piece)
    return sentences or [line]


def _goes_on(sentence: str, abbreviations: Collection[str]) -> bool:
    """Return whether a sentence is white space so far, or ends in an abbreviation."""
    words = sentence.rsplit(maxsplit=1)
    if not words:
        return True
    word = re.sub(r"^\W+", "", words[-1].removesuffix("."))
    return words[-1].endswith(".") and word in abbreviations


def _joined(line: str, sentences: Sequence[str], outputs: Sequence[Output]) -> Output:
    """Return the output of a line, made of the outputs of its sentences.

    The score is the sum of their scores. Between their tokens stands the end of the sentence, so
    that each token has its log-probability.
    """
    *firsts, last = outputs
    text = ""
    tokens = list[str]()
    ids = list[int]()
    starts = [0]  # of the outputs, in the text
    for sentence, output in zip(sentences[:-1], firsts, strict=True):
        text += output.text + _space_between(sentence, output.text)
        starts.append(len(text))
        tokens += output.tokens
        ids += output.ids
        if len(output.token_scores) > len(output.tokens):  # else it was cut at its limit
            tokens.append(SPECIAL_SYMBOLS[EOS])
            ids.append(EOS)
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
    """Return the links of the words of a line, made of the links of its sentences.

    Args:
        starts: where the output of each sentence begins in `text`.
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
    """Return the tabs and spaces after a sentence for its output, or a space if there are none.

    After the full-width punctuation of Chinese and Japanese comes none.
    """
    if not output:
        return ""
    space = sentence[len(sentence.rstrip()) :]
    is_tabs_and_spaces = space != "" and space.strip("\t ") == ""
    if is_tabs_and_spaces and space != " ":
        return space
    last = output[-1]
    is_punctuation = unicodedata.category(last).startswith("P")
    if is_punctuation and unicodedata.east_asian_width(last) in "WF":
        return ""
    return " "
