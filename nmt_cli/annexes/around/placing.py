"""Inline tags, protected text and terms with a given translation, put into their places in outputs.

They are spans of the source. The model translates the line without tags, and the alignment of the
attention says which stretch of the output belongs to a span. Tags are put around it, and a term or
protected text in its place. Each span has one stretch, inside the stretch of the span around it, so
tags are nested well and nothing is lost.

Places are counted in units, which are words and single signs.
"""

from __future__ import annotations

import html
import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import regex

from nmt_cli.annexes.around.attention import Aligner
from nmt_cli.annexes.around.settings import PlacingConfig
from nmt_cli.annexes.around.unknown_words import read_dictionary
from nmt_cli.annexes.around.words import HAN, LETTER, PLACES_OF_UNITS, UNITS
from nmt_cli.decoding.around import Around
from nmt_cli.decoding.engine import Engine, Request
from nmt_cli.decoding.options import TranslateOptions
from nmt_cli.decoding.outputs import Output, Translation
from nmt_cli.errors import UsageError, shown

TAG = re.compile(
    r"<!--(?:(?!<!--).)*?-->|<[!?][^<>]*>"
    r"""|<(?:/?)(?P<name>[A-Za-z_][\w:.-]*)(?:\s(?:"[^"<]*"|'[^'<]*'|[^<>"'])*?)?/?>"""
)
# Tags between words.
BREAKS = re.compile(r"[bh]r|p|div|li|[uo]l|t[dhr]|table|h[1-6]", re.IGNORECASE)
BEGINNING_OF_WORD = re.compile(r"\w")  # a letter or a digit
SECONDS = 5.0  # that an expression may take for a line
DEEPEST = 100  # elements inside of elements. The others count as single tags


class Range(NamedTuple):
    """A stretch of characters or units, which may be empty."""

    start: int
    end: int

    def covers(self, other: Range) -> bool:
        return self.start <= other.start and other.end <= self.end


class Units:
    """The words and single signs of a text."""

    def __init__(self, text: str) -> None:
        self.text = text
        matches = list(UNITS.finditer(text))
        self.starts = [unit.start() for unit in matches]  # in characters
        self.ends = [unit.end() for unit in matches]

    def __len__(self) -> int:
        return len(self.starts)

    def is_word(self, number: int) -> bool:
        return BEGINNING_OF_WORD.match(self.text, self.starts[number]) is not None

    def characters(self, units: Range) -> Range:
        """Return the characters of a range of units, which is not empty."""
        return Range(self.starts[units.start], self.ends[units.end - 1])

    def text_of(self, units: Range) -> str:
        """Return the text of a range of units, which is not empty."""
        start, end = self.characters(units)
        return self.text[start:end]

    def touched(self, characters: Range) -> Range:
        """Return the units that a range of characters touches: none, if it is empty."""
        last = bisect_left(self.starts, characters.end)
        if characters.start == characters.end:
            return Range(last, last)
        return Range(bisect_right(self.ends, characters.start), last)


@dataclass
class Span:
    """A stretch of the source and what becomes of its counterpart."""

    range: Range  # of characters while a line is read, then of units
    text: str | None = None  # in place of the counterpart
    before: str = ""  # the tags
    after: str = ""
    inner: list[Span] = field(default_factory=list)

    def count_units(self, units: Units) -> None:
        """Make units of characters, here and inside."""
        self.range = units.touched(self.range)
        for span in self.inner:
            span.count_units(units)

    def add(self, place: Range, text: str) -> None:
        """Put a text into the innermost span around this place.

        It is left out where another text is, or where a border of a span crosses it.
        """
        if self.text is not None:
            return
        for span in self.inner:
            if span.range.covers(place):
                span.add(place, text)
                return
        for span in self.inner:
            if any(place.start < border < place.end for border in span.range):
                return
        self.inner.append(Span(place, text))


def placing(config: PlacingConfig, *, engine: Engine, options: TranslateOptions) -> Placing:
    """Return the `Around` that keeps tags, protected text and terms.

    Raises:
        UsageError: the regular expression is wrong, or the task is not for text.
        DataError: the glossary has an error.
    """
    finders: list[Pattern] = []
    if config.protect:
        try:
            finders.append(Pattern(regex.compile(config.protect), "--protect"))
        except regex.error as error:
            raise UsageError(
                f"--protect {config.protect!r} is no regular expression: {error}"
            ) from error
    if config.glossary and Path(config.glossary) != Path():  # an empty path is no file
        finders.append(Terms(read_dictionary(Path(config.glossary), one_translation=True)))
    return Placing(finders, engine=engine, options=options, markup=config.markup)


class Pattern:
    """Finds text that a regular expression matches, such as addresses. It stays as it is."""

    def __init__(self, pattern: regex.Pattern[str], flag: str) -> None:
        self._pattern, self._flag = pattern, flag

    def find(self, text: str) -> list[tuple[Range, str | None]]:
        """Return ranges of characters, and the texts for their places. None is the text as it is.

        Raises:
            UsageError: it takes too long.
        """
        results = []
        try:
            for match in self._pattern.finditer(text, timeout=SECONDS):
                results.append((Range(*match.span()), self.target_of(match[0])))
        except TimeoutError as error:
            raise UsageError(
                f"{self._flag} takes more than {SECONDS:g} s for the line {shown(text)}"
            ) from error
        return results

    def target_of(self, match: str) -> str | None:
        return None


class Terms(Pattern):
    """Terms, and their translations by term. A term in the text may begin with a capital."""

    def __init__(self, glossary: Mapping[str, str]) -> None:
        self._targets = dict[str, str]()
        for term, target in glossary.items():
            self._targets[term[0].upper() + term[1:]] = target
        self._targets.update(glossary)
        terms = sorted(self._targets, key=len, reverse=True)
        super().__init__(regex.compile("|".join(map(_whole, terms))), "--glossary")

    def target_of(self, match: str) -> str | None:
        return self._targets.get(" ".join(match.split()))


class Placing(Around):
    """Finds spans in lines, and puts them into outputs.

    Args:
        finders: of text that has its place in outputs.
        markup: whether lines have tags, and characters such as `&amp;`.

    Raises:
        UsageError: the task is not for text, or a model shows no attention.
    """

    order = 10
    needs_models = True
    changes_words = True

    def __init__(
        self,
        finders: Sequence[Pattern],
        *,
        engine: Engine,
        options: TranslateOptions,
        markup: bool = False,
    ) -> None:
        if engine.task.languages is None:
            raise UsageError(
                "--markup, --protect and --glossary are for text, not for the task "
                f"{engine.task.name}"
            )
        self._finders, self._markup, self._text_of = finders, markup, engine.task.text_of
        self._aligner = Aligner(engine, options.get("tag"))

    def joined(self, inner: Around) -> Around | None:
        """Return one for both, as the places in an output are shared among all spans."""
        if not isinstance(inner, Placing):
            return None
        both = copy(self)
        both._finders = [*self._finders, *inner._finders]
        both._markup = self._markup or inner._markup
        return both

    def read(self, line: str) -> tuple[list[str], Any]:
        """Return the text to translate, and a span of the whole of it with the others inside.

        Raises:
            UsageError: a regular expression takes too long.
        """
        text = line
        spans = list[Span]()
        if self._markup:
            text, spans = self._without_tags(line)
        units = Units(text)
        root = Span(Range(0, len(text)), inner=spans)
        root.count_units(units)
        for finder in self._finders:
            for characters, target in finder.find(text):
                place = units.touched(characters)
                if place.start < place.end:
                    root.add(place, target or units.text_of(place))
        return [text], root

    def revise(self, batch: Sequence[Request], outputs: list[list[Output]]) -> list[list[Output]]:
        """Add the links of units, which `write` reads in another process."""
        return self._aligner.linked(batch, outputs, PLACES_OF_UNITS)

    def write(self, line: str, translations: Sequence[Translation], note: Any) -> Translation:
        """Return the translation of a line with the spans in the outputs."""
        (translation,) = translations
        source = Units(translation.source)
        outputs = [
            replace(output, text=self._written(output, source, note))
            for output in translation.outputs
        ]
        return replace(translation, source=line, outputs=outputs)

    def _without_tags(self, line: str) -> tuple[str, list[Span]]:
        """Return the text, and the spans of elements and of single tags."""
        text = ""
        spans = list[Span]()
        opened = list[_Opened]()
        end = 0  # of the last tag
        for tag in TAG.finditer(line):
            if not self._text_of(tag[0]):  # a symbol of the task, such as a language's
                continue
            text = _appended(text, _unescaped(line[end : tag.start()]))
            end = tag.end()
            name = tag["name"]
            if name and BREAKS.fullmatch(name):
                text = _appended(text, " ")
            is_end = tag[0].startswith("</")
            beginning = _last_opened(opened, name) if is_end else None
            if beginning is not None:
                # What was opened since then, and has no end, is a single tag.
                number = beginning.number
                element = spans[number]
                element.range = Range(element.range.start, len(text))
                element.after = tag[0]
                element.inner = spans[number + 1 :]
                del spans[number + 1 :], opened[opened.index(beginning) :]
                continue
            is_empty = tag[0].endswith("/>")
            if name and not is_end and not is_empty and len(opened) < DEEPEST:
                opened.append(_Opened(name, len(spans)))
            spans.append(Span(Range(len(text), len(text)), before=tag[0]))
        return _appended(text, _unescaped(line[end:])), spans

    def _written(self, output: Output, source: Units, root: Span) -> str:
        units = Units(output.text)
        sources = dict[int, _Source]()
        for i, j in output.notes.get(PLACES_OF_UNITS, ()):
            sources[j] = _Source(i, source.is_word(i) == units.is_word(j))
        escape: Callable[[str], str] = str
        if self._markup:
            escape = partial(html.escape, quote=False)
        characters = Range(0, len(output.text))
        return _Output(units, sources, escape).of(root, Range(0, len(units)), characters)


class _Opened(NamedTuple):
    """An element whose end tag has not come yet."""

    name: str
    number: int  # of its span


def _last_opened(opened: Sequence[_Opened], name: str) -> _Opened | None:
    for element in reversed(opened):
        if element.name == name:
            return element
    return None


class _Source(NamedTuple):
    """The unit of the source that a unit of the output attends to."""

    number: int
    same_kind: bool  # both are words, or both are signs


@dataclass
class _Output:
    units: Units
    sources: dict[int, _Source]  # by the unit of the output
    escape: Callable[[str], str]

    def of(self, span: Span, place: Range, characters: Range) -> str:
        """Return the text of a span with all spans inside, given its place and characters."""
        text = self.units.text
        has_spaces = re.search(f"[{HAN}]", text) is None
        written = ""
        end = characters.start
        for inner_place, inner in self._places(span.inner, place):
            here = Range(end, end)
            is_empty = inner_place.start == inner_place.end
            if not is_empty:
                here = self.units.characters(inner_place)
            elif inner_place.start > place.start:  # not at the beginning, so after a unit
                after = self.units.ends[inner_place.start - 1]
                here = Range(after, after)
            written += self.escape(text[end : here.start])
            end = here.end
            if inner.text is None:
                content = self.of(inner, inner_place, here)
            else:
                content = self.escape(inner.text)
            if inner.text and is_empty and has_spaces:
                if written and not written[-1].isspace():
                    content = " " + content
                if _is_word(text[here.start :]):
                    content += " "
            written += inner.before + content + inner.after
        return written + self.escape(text[end : characters.end])

    def _places(self, spans: Sequence[Span], whole: Range) -> list[tuple[Range, Span]]:
        """Return the places of spans inside of `whole`, in order.

        Spans whose texts the output has come first, the most attended to before others.
        """
        free = [whole]
        gains = list[float]()
        for span in spans:
            place = self._as_it_is(span, free)
            gains.append(-math.inf if place is None else self._gain(span, place))
        places = list[tuple[Range, int]]()
        for number in sorted(range(len(spans)), key=lambda number: -gains[number]):
            span = spans[number]
            taken = self._as_it_is(span, free)
            if taken is None:
                taken = self._attending(span, free)
            if taken is None:
                taken = self._after(span, free)
            places.append((taken, number))
            _take(free, taken)
        return [(place, spans[number]) for place, number in sorted(places)]

    def _as_it_is(self, span: Span, free: Sequence[Range]) -> Range | None:
        """Return where the output has the text of the span, at best where it attends to it."""
        if span.text is None:
            return None
        length = len(Units(span.text))
        places = []
        for gap in free:
            for start in range(gap.start, gap.end - length + 1):
                place = Range(start, start + length)
                if self.units.text_of(place) == span.text:
                    places.append(place)
        return max(places, key=lambda place: self._gain(span, place), default=None)

    def _attending(self, span: Span, free: Sequence[Range]) -> Range | None:
        """Return the shortest stretch with the greatest gain, if a gain is above 0."""
        if span.range.start == span.range.end:
            return None
        best = None
        greatest = 0
        for gap in free:
            gain, start = 0, gap.start
            for unit in range(gap.start, gap.end):
                if gain <= 0:  # a stretch that begins here is better, or as good and shorter
                    gain, start = 0, unit
                gain += self._gain(span, Range(unit, unit + 1))
                if gain > greatest:
                    greatest, best = gain, Range(start, unit + 1)
        return best

    def _after(self, span: Span, free: Sequence[Range]) -> Range:
        """Return the empty place after the counterpart of what is before the span in the source."""
        first, last = free[0].start, free[-1].end
        before = []  # units of the source and of the output
        for unit, source in self.sources.items():
            if source.number < span.range.start and first <= unit < last:
                before.append((source.number, unit))
        place = first
        if before:
            place = max(before)[1] + 1
        gap = next(gap for gap in free if gap.end >= place)
        place = max(gap.start, place)
        return Range(place, place)

    def _gain(self, span: Span, place: Range) -> int:
        """Return how many units more attend to the span than to others."""
        gain = 0
        for unit in range(place.start, place.end):
            source = self.sources.get(unit)
            if source is None:
                continue
            # A sign that attends to a word, such as a full stop, is not its translation.
            if source.same_kind or span.text is None:
                in_span = span.range.start <= source.number < span.range.end
                gain += 1 if in_span else -1
        return gain


def _take(free: list[Range], taken: Range) -> None:
    """Leave two ranges of the free one around what is taken. They may be empty."""
    for number, gap in enumerate(free):
        if gap.covers(taken):
            before = Range(gap.start, taken.start)
            after = Range(taken.end, gap.end)
            free[number : number + 1] = [before, after]
            return


def _is_word(unit: str) -> bool:
    return BEGINNING_OF_WORD.match(unit) is not None


def _whole(term: str) -> str:
    """Return an expression of the term as whole words, with any white space in it."""
    expression = r"\s+".join(map(re.escape, term.split()))
    if _is_word(term):
        expression = rf"(?<!{LETTER})" + expression
    if _is_word(term[-1]):
        expression += rf"(?!{LETTER})"
    return expression


def _unescaped(text: str) -> str:
    """Return a line with the characters that `&amp;` and the like stand for."""
    return re.sub(r"&#?\w+;", _character, text)


def _character(escaped: re.Match[str]) -> str:
    return re.sub(r"[\n\r]", " ", html.unescape(escaped[0]))  # a line stays one line


def _appended(text: str, more: str) -> str:
    """Return a text with more text, without spaces at its beginning or two in a row."""
    if text[-1:] in ("", " "):
        more = more.lstrip(" ")
    return text + more
