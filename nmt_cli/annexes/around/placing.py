"""What must come through translation as it is: inline tags, protected text, and terms with a given
translation.

They are spans of the source. The model translates the line without tags, and the alignment of the
attention says which stretch of the output belongs to a span. Tags are put around it, and a term or
protected text in its place. Each span has one stretch, inside that of the span around it, so tags
are nested well and nothing is lost.

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
from typing import Any

import regex

from nmt_cli.annexes.around.attention import HAN, LETTER, PLACES_OF_UNITS, UNITS, Aligner
from nmt_cli.annexes.around.settings import PlacingConfig
from nmt_cli.annexes.around.unknown_words import read_dictionary
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
SECONDS = 5.0  # that an expression may take for a line
DEEPEST = 100  # elements inside of elements; the others count as single tags

Range = tuple[int, int]


@dataclass
class Span:
    """A stretch of the source and what becomes of its counterpart."""

    range: Range  # of characters while a line is read, then of units
    text: str | None = None  # in place of the counterpart
    before: str = ""  # the tags
    after: str = ""
    inner: list[Span] = field(default_factory=list)

    def count_units(self, starts: Sequence[int], ends: Sequence[int]) -> None:
        """Make units of characters, here and inside."""
        first, last = _units(*self.range, starts, ends)
        self.range = (last if self.range[0] == self.range[1] else first, last)
        for each in self.inner:
            each.count_units(starts, ends)

    def add(self, first: int, last: int, text: str) -> None:
        """Put a text into the innermost span around this range; not where another text is or a
        border crosses it.
        """
        for each in self.inner:
            if each.range[0] <= first and last <= each.range[1]:
                return each.add(first, last, text)
        borders = (border for each in self.inner for border in each.range)
        if self.text is None and not any(first < border < last for border in borders):
            self.inner.append(Span((first, last), text))
        return None


def placing(config: PlacingConfig, *, engine: Engine, options: TranslateOptions) -> Placing:
    """Return what keeps tags, protected text and terms.

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
    if config.glossary and Path(config.glossary) != Path():  # an empty one is none
        finders.append(Terms(read_dictionary(Path(config.glossary), one_translation=True)))
    return Placing(finders, engine=engine, options=options, markup=config.markup)


class Pattern:
    """Finds text that a regular expression matches. It stands in the output as it is, such as
    addresses.
    """

    def __init__(self, pattern: regex.Pattern[str], flag: str) -> None:
        self._pattern, self._flag = pattern, flag

    def find(self, text: str) -> list[tuple[Range, str | None]]:
        """Return ranges of characters, and what stands in their places. None is the text as it is.

        Raises:
            UsageError: it takes too long.
        """
        try:
            return [
                (match.span(), self.target_of(match[0]))
                for match in self._pattern.finditer(text, timeout=SECONDS)
            ]
        except TimeoutError as error:
            raise UsageError(
                f"{self._flag} takes more than {SECONDS:g} s for the line {shown(text)}"
            ) from error

    def target_of(self, match: str) -> str | None:
        return None


class Terms(Pattern):
    """Terms, and their translations by term. A term in the text may begin with a capital."""

    def __init__(self, glossary: Mapping[str, str]) -> None:
        self._targets = {
            term[0].upper() + term[1:]: target for term, target in glossary.items()
        } | dict(glossary)
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
        both._finders, both._markup = (
            [*self._finders, *inner._finders],
            self._markup or inner._markup,
        )
        return both

    def read(self, line: str) -> tuple[list[str], Any]:
        """Return the text to translate, and a span of the whole of it with the others inside.

        Raises:
            UsageError: a regular expression takes too long.
        """
        text, spans = self._without_tags(line) if self._markup else (line, [])
        starts = [unit.start() for unit in UNITS.finditer(text)]
        ends = [unit.end() for unit in UNITS.finditer(text)]
        root = Span((0, len(text)), inner=spans)
        root.count_units(starts, ends)
        for finder in self._finders:
            for (begin, end), target in finder.find(text):
                first, last = _units(begin, end, starts, ends)
                if begin < end and first < last:
                    root.add(first, last, target or text[starts[first] : ends[last - 1]])
        return [text], root

    def revise(self, batch: Sequence[Request], outputs: list[list[Output]]) -> list[list[Output]]:
        """Add the links of units, which `write` reads in another process."""
        return self._aligner.linked(batch, outputs, PLACES_OF_UNITS)

    def write(self, line: str, translations: Sequence[Translation], note: Any) -> Translation:
        """Return the translation of a line with the spans in the outputs."""
        (translation,) = translations
        source = UNITS.findall(translation.source)
        outputs = [
            replace(output, text=self._written(output, source, note))
            for output in translation.outputs
        ]
        return replace(translation, source=line, outputs=outputs)

    def _without_tags(self, line: str) -> tuple[str, list[Span]]:
        """Return the text, and the spans of elements and of single tags."""
        text, spans, opened, end = "", list[Span](), list[tuple[str, int]](), 0
        for tag in TAG.finditer(line):
            if not self._text_of(tag[0]):
                continue
            text, end = _joined(text, _plain(line[end : tag.start()])), tag.end()
            name, closes, alone = tag["name"], tag[0][1] == "/", tag[0][-2] == "/"
            if name and BREAKS.fullmatch(name):
                text = _joined(text, " ")
            names = [each for each, _ in opened]
            if closes and name in names:  # what was opened since, and has no end, is a single tag
                place = len(names) - 1 - names[::-1].index(name)
                number = opened[place][1]
                element, inner = spans[number], spans[number + 1 :]
                element.range, element.after, element.inner = (
                    (element.range[0], len(text)),
                    tag[0],
                    inner,
                )
                del spans[number + 1 :], opened[place:]
                continue
            if name and not closes and not alone and len(opened) < DEEPEST:
                opened.append((name, len(spans)))
            spans.append(Span((len(text), len(text)), before=tag[0]))
        return _joined(text, _plain(line[end:])), spans

    def _written(self, output: Output, source: Sequence[str], root: Span) -> str:
        found = list(UNITS.finditer(output.text))
        places = [unit.span() for unit in found]
        sources = {
            j: (i, _is_word(source[i]) == _is_word(found[j][0]))
            for i, j in output.notes.get(PLACES_OF_UNITS, ())
        }
        written = _Output(
            output.text, places, sources, partial(html.escape, quote=False) if self._markup else str
        )
        return written.of(root, (0, len(places)), (0, len(output.text)))


@dataclass
class _Output:
    text: str
    units: list[Range]  # of characters
    # The unit of the source by that of the text; whether both are words or signs.
    sources: dict[int, tuple[int, bool]]
    escape: Callable[[str], str]

    def of(self, span: Span, own: Range, characters: Range) -> str:
        """Return what stands at the place `own` of a span."""
        written, at = "", characters[0]
        for (first, last), number in self._places(span.inner, own):
            inner, start, end = span.inner[number], at, at
            if first < last:
                start, end = self.units[first][0], self.units[last - 1][1]
            elif first > own[0]:  # else it is at the beginning
                start = end = self.units[first - 1][1]
            written += self.escape(self.text[at:start])
            at = end
            content = (
                self.of(inner, (first, last), (start, end))
                if inner.text is None
                else self.escape(inner.text)
            )
            if first == last and inner.text and not re.search(f"[{HAN}]", self.text):
                if written and not written[-1].isspace():
                    content = " " + content
                if _is_word(self.text[start:]):
                    content += " "
            written += inner.before + content + inner.after
        return written + self.escape(self.text[at : characters[1]])

    def _places(self, spans: Sequence[Span], own: Range) -> list[tuple[Range, int]]:
        """Return the places of spans inside of `own` with the numbers of the spans, in order.

        Texts that stand there have theirs first, those that attend to their span most before
        others.
        """
        free, placed = [own], list[tuple[Range, int]]()
        there = [self._as_it_is(span, free) for span in spans]
        for number in sorted(
            range(len(spans)), key=lambda number: -self._gain(spans[number], there[number])
        ):
            span = spans[number]
            first, last = (
                self._as_it_is(span, free) or self._attending(span, free) or self._after(span, free)
            )
            placed.append(((first, last), number))
            gap = next(gap for gap in free if gap[0] <= first and last <= gap[1])
            place = free.index(gap)
            free[place : place + 1] = dict.fromkeys([(gap[0], first), (last, gap[1])])
        return sorted(placed)

    def _as_it_is(self, span: Span, free: Sequence[Range]) -> Range | None:
        """Return where the output has the text of the span; the place that attends to the span
        most.
        """
        if span.text is None:
            return None
        length = len(UNITS.findall(span.text))
        found = [(j, j + length) for first, last in free for j in range(first, last - length + 1)]
        found = [
            (j, end)
            for j, end in found
            if self.text[self.units[j][0] : self.units[end - 1][1]] == span.text
        ]
        return max(found, key=lambda place: self._gain(span, place), default=None)

    def _attending(self, span: Span, free: Sequence[Range]) -> Range | None:
        """Return the stretch with the most units more that attend to the span than to others; the
        shortest of these.
        """
        most, found = 0.0, None
        if span.range[0] == span.range[1]:
            return None
        for first, last in free:
            total, start = 0.0, first
            for j in range(first, last):
                if total <= 0:
                    total, start = 0.0, j
                total += self._gain(span, (j, j + 1))
                if total > most:
                    most, found = total, (start, j + 1)
        return found

    def _after(self, span: Span, free: Sequence[Range]) -> Range:
        """Return the empty place after the counterpart of what stands before the span in the
        source.
        """
        first, last = free[0][0], free[-1][1]
        before = [
            (i, j + 1)
            for j, (i, _) in self.sources.items()
            if i < span.range[0] and first <= j < last
        ]
        place = max(before, default=(0, first))[1]
        start, _ = next(gap for gap in free if gap[1] >= place)
        return max(start, place), max(start, place)

    def _gain(self, span: Span, place: Range | None) -> float:
        """Return how many units more attend to the span than to others."""
        if place is None:
            return -math.inf
        found = [self.sources[j] for j in range(*place) if j in self.sources]
        # A sign that attends to a word, such as a full stop, is not its translation.
        sources = [source for source, same_kind in found if same_kind or span.text is None]
        return sum(1 if span.range[0] <= source < span.range[1] else -1 for source in sources)


def _is_word(unit: str) -> bool:
    """Return whether it begins with a letter or a digit."""
    return re.match(r"\w", unit) is not None


def _whole(term: str) -> str:
    """Return an expression of the term, with any white space in it, where no letters are beside its
    letters.
    """
    expression = r"\s+".join(map(re.escape, term.split()))
    if _is_word(term):
        expression = rf"(?<!{LETTER})" + expression
    if _is_word(term[-1]):
        expression += rf"(?!{LETTER})"
    return expression


def _plain(text: str) -> str:
    """Return a line with the characters that `&amp;` and the like stand for."""
    return re.sub(r"&#?\w+;", lambda match: re.sub(r"[\n\r]", " ", html.unescape(match[0])), text)


def _units(first: int, last: int, starts: Sequence[int], ends: Sequence[int]) -> Range:
    """Return the units that a range of characters touches."""
    return bisect_right(ends, first), bisect_left(starts, last)


def _joined(text: str, more: str) -> str:
    """Join two texts without a double space."""
    return text + (more.lstrip(" ") if text[-1:] in ("", " ") else more)
