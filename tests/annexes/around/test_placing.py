"""Tags, protected text and terms come through a translation, where the alignment has them."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

import nmt_cli
from nmt_cli import registry
from nmt_cli.annexes.around.placing import Pattern, Placing, Terms, placing
from nmt_cli.annexes.around.settings import PlacingConfig
from nmt_cli.annexes.around.unknown_words import read_dictionary
from nmt_cli.annexes.around.words import PLACES_OF_UNITS, UNITS
from nmt_cli.decoding.around import Around
from nmt_cli.decoding.options import TranslateOptions
from nmt_cli.decoding.outputs import Output, Translation
from nmt_cli.errors import DataError, UsageError

TASK: Any = SimpleNamespace(
    languages=("en", "de"), text_of=lambda line: line.replace("<de>", ""), name="stub"
)
ENGINE: Any = SimpleNamespace(task=TASK, models=(), folders=())


def places(tags: bool, protect: str = "", terms: Mapping[str, str] | None = None) -> Placing:
    finders: list[Pattern] = []
    if protect:
        finders.append(Pattern(regex.compile(protect), "--protect"))
    if terms:
        finders.append(Terms(terms))
    return Placing(finders, engine=ENGINE, options=TranslateOptions(), markup=tags)


def through(placing: Placing, line: str, output: str, links: str | None = None) -> str:
    """The output with the spans of the line.

    Without links, each unit belongs to the unit of the same number.
    """
    (text,), root = placing.read(line)
    pairs = [(i, i) for i in range(len(UNITS.findall(output)))]
    if links is not None:
        pairs = [(int(i), int(j)) for i, j in (link.split("-") for link in links.split())]
    pairs = [(i, j) for i, j in pairs if i < len(UNITS.findall(text))]
    translation = Translation(
        text, [Output(output, 0.0, [], [], notes={PLACES_OF_UNITS: pairs})], 1, truncated=False
    )
    result = placing.write(line, [translation], root)
    assert result.source == line
    return result.text


def markup(line: str, output: str, links: str | None = None) -> str:
    return through(places(True), line, output, links)


@pytest.mark.parametrize(
    ("line", "output", "links", "expected"),
    [
        ("A <b>big</b> dog", "Ein großer Hund", None, "Ein <b>großer</b> Hund"),
        # The words move, and the tag with them.
        ("<i>I</i> <b>saw it</b>", "Es sah ich", "2-0 1-1 0-2", "<b>Es sah</b> <i>ich</i>"),
        # A link that is wrong does not tear an element.
        ("<b>a b c d</b> e", "A B X C D E", "0-0 1-1 4-2 2-3 3-4 4-5", "<b>A B X C D</b> E"),
        # Nested, and side by side without a space.
        ("<p>a <b>b <i>c</i></b></p>", "A B", "0-0 1-1", "<p>A <b>B<i></i></b></p>"),
        ("<p>a <b>b<i>c</i></b></p>", "A B", "0-0 1-1", "<p>A <b><i>B</i></b></p>"),
        # A full stop belongs where it attends to.
        ("<p>A <b>dog</b></p>", "Ein Hund.", "0-0 1-1 1-2", "<p>Ein <b>Hund.</b></p>"),
        # Single tags, an element without words and one without its counterpart stand after what was
        # before them.
        ('a<br/>b <img src="x"> c', "A B C", None, 'A<br/> B<img src="x"> C'),
        ("a <b></b> <i>b</i> c", "A C", "0-0 2-1", "A<b></b><i></i> C"),
        ("a <b><i>b", "A B", None, "A<b><i> B"),
        ("a </b> b <!-- c > d -->", "A B", None, "A</b> B<!-- c > d -->"),
        ("<b>a <br> b</b> c", "A B C", None, "<b>A<br> B</b> C"),
        # Characters with a meaning.
        ("a &lt; <b>b &amp; c</b>", "A < B & C", None, "A &lt; <b>B &amp; C</b>"),
        # A comparison is no tag, and neither is a symbol of the model.
        ("<de> 1 < 2 <b>a</b>", "1 < 2 A", "3-0 4-1 5-2 6-3", "1 &lt; 2 <b>A</b>"),
        ("<br/>", "", None, "<br/>"),
        ("<b>你好</b>世界", "ab 世界", "0-0 1-0 2-1 3-2", "<b>ab</b> 世界"),
    ],
)
def test_tags_stand_around_the_same_words(
    line: str, output: str, links: str | None, expected: str
) -> None:
    assert markup(line, output, links) == expected


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("A <b>big</b> dog", "A big dog"),
        ("a <br/> b", "a b"),
        ("End.<br/>Start", "End. Start"),
        ("<p>a</p><P>b</P><td>c</td>", "a b c "),
        ("a &NewLine; b&#10;c &copy=1", "a   b c &copy=1"),
        ("<!DOCTYPE html><a title=\"x>y\" b='c>'>m</a>", "m"),
        ("wo<b>r</b>d", "word"),
        ("a&nbsp;b &quot;c&quot;", 'a\u00a0b "c"'),
        ("<de> a", "<de> a"),
    ],
)
def test_the_model_reads_the_text_alone(line: str, read: str) -> None:
    assert places(True).read(line)[0] == [read]


@pytest.mark.parametrize(
    ("line", "output", "links", "expected"),
    [
        # In place of what the model made of it.
        (
            "see www.x.com now",
            "siehe ww. X. com jetzt",
            "0-0 1-1 2-2 3-3 4-4 5-5 6-6",
            "siehe www.x.com jetzt",
        ),
        # It is there already, at another place than the links say.
        ("at 10:30", "10:30 um", "0-0 0-1 0-2 1-3", "10:30 um"),
        # Of two that are the same, each has its own place.
        ("1:1 and 1:1", "1:1 und zwei", "0-0 1-1 2-2 3-3 4-4", "1:1 und 1:1"),
        # Left out by the model: after what was before it, or at the beginning.
        ("call 10:30 now", "ruf jetzt", "0-0 4-1", "ruf 10:30 jetzt"),
        ("10:30 now", "jetzt", "3-0", "10:30 jetzt"),
        ("10:30", "", "", "10:30"),
        ("10:30 and 1:1", "Und.", "", "10:30 1:1 Und."),
        # Whole words: no letter beside it is lost.
        ("at x10:30y", "um q", "0-0 1-1", "um x10:30y"),
    ],
)
def test_protected_text_is_copied(line: str, output: str, links: str, expected: str) -> None:
    assert through(places(False, r"www\.\w+\.\w+|\d+:\d+"), line, output, links) == expected


@pytest.mark.parametrize(
    ("line", "output", "expected"),
    [
        ("the dog runs", "der Köter rennt", "der Hund rennt"),
        ("Dog days", "Köter Tage", "Hundstage"),  # the longest term, and a capital at the beginning
        ("the dogma", "das Dogma", "das Dogma"),
        ("Dog  days", "Köter Tage", "Hundstage"),
        ("dog\u00a0days", "Köter Tage", "Hundstage"),
        ("a GPU", "ein gpu", "ein Grafikprozessor"),
        ("a gpu", "ein gpu", "ein gpu"),
        ("dog and dog", "Köter und Hund", "Hund und Hund"),
        ("5% of 7 %", "5 von 7", "5 Prozent von 7 Prozent"),  # a sign beside a digit
        ("dog\u0301 dog", "x y", "x Hund"),  # a mark makes another letter
        ("这是狗窝", "das ist Köter Haus", "das ist Hund Haus"),  # without spaces
        ("a dog", "ein.", "ein Hund."),  # the full stop is not its translation
    ],
)
def test_terms_have_their_translation(line: str, output: str, expected: str) -> None:
    terms = {
        "dog": "Hund",
        "狗": "Hund",
        "%": "Prozent",
        "dog days": "Hundstage",
        "GPU": "Grafikprozessor",
    }
    assert through(places(False, "", terms), line, output) == expected


def test_terms_and_protected_text_stand_inside_of_tags() -> None:
    both = places(True, r"\d+ &", {"dog": "Hund & Co"})
    expected = "Ein <b><i>Hund &amp; Co</i> mit 3 &amp; x</b>"
    assert through(both, "A <b><i>dog</i> with 3 &amp; x</b>", "Ein Köter mit 4 + x") == expected
    assert through(both, "A d<b>og dog", "Ein Kö ter") == "Ein Hund &amp; Co<b> Hund &amp; Co"
    assert (
        through(both, "A <b>hot</b> dog", "Ein heißer Köter") == "Ein <b>heißer</b> Hund &amp; Co"
    )


class Nesting(HTMLParser):
    """Reads tags, and asserts that each ends the one that was opened last."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.opened.append(tag)
        self.seen.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.opened.pop() == tag


WORDS = st.sampled_from(["dog", "cat", "10:30", "x", "1:1", "Dog", "&amp;", ".", ""])
ELEMENTS = st.recursive(
    st.lists(st.one_of(WORDS, st.just("<br/>")), max_size=4).map(" ".join),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["b", "i", "a"]), inner).map(
            lambda pair: f"<{pair[0]}>{pair[1]}</{pair[0]}>"
        ),
        st.lists(inner, max_size=4).map(" ".join),
    ),
)
OUTPUTS = st.lists(st.sampled_from(["Hund", "Katze", "10:30", "q", "<", "."]), max_size=12).map(
    " ".join
)


@given(ELEMENTS, OUTPUTS, st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=20))
def test_nothing_is_lost_and_tags_are_nested_well(
    line: str, output: str, links: list[tuple[int, int]]
) -> None:
    both = places(True, r"\d+:\d+", {"dog": "Hund"})
    result = through(
        both, line, output, " ".join(f"{i}-{j}" for i, j in links if j < len(UNITS.findall(output)))
    )
    before, after = Nesting(), Nesting()
    for parser, text in ((before, line), (after, result)):
        parser.feed(text)
        parser.close()
        assert parser.opened == []
    assert sorted(before.seen) == sorted(after.seen)
    for pattern in ("10:30", "1:1"):
        assert result.count(pattern) >= line.count(pattern)
    assert result.count("Hund") >= len(re.findall("[Dd]og", line))


@given(st.text("<>/ab &;!-\"'=", max_size=40), OUTPUTS)
def test_any_line_goes_through_with_its_tags(line: str, output: str) -> None:
    tags = markup(line, output)
    parts = [
        tag
        for tag in re.findall(r"<!--.*?-->|</?[ab][ab]*(?: [^<>]*)?/?>", line)
        if "<!--" not in line
    ]
    assert all(tag in tags for tag in parts)


def test_thousands_of_nested_tags_are_no_recursion_error() -> None:
    line = "<b>" * 3000 + "a" + "</b>" * 3000
    tags = markup(line, "A")
    assert tags.count("<b>") == tags.count("</b>") == 3000


def test_an_expression_that_matches_nothing_protects_nothing() -> None:
    assert through(places(False, "z*"), "abc de", "x y") == "x y"


def test_many_tags_stay_in_order() -> None:
    line = "<br/>a " * 1500
    assert markup(line, "A " * 1500) == "<br/>" + "A<br/> " * 1499 + "A "


def test_an_expression_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt_cli.annexes.around.placing.SECONDS", 1e-9)
    with pytest.raises(UsageError, match=r"--protect .* 1e-09 s .*'aaa"):
        places(False, "(a+)+b").read("a" * 3000)


def test_a_wrong_regular_expression() -> None:
    with pytest.raises(UsageError, match=r"--protect '\(' is no regular expression: missing \)"):
        placing(PlacingConfig(protect="("), engine=ENGINE, options=TranslateOptions())


def test_two_share_the_places_of_an_output() -> None:
    """They are one span: no text stands in another's place, and tags stay around their words."""
    addresses = places(False, r"\S+@\S+")
    whole = places(True, r"\d+:\d+").joined(addresses)
    assert isinstance(whole, Placing)
    assert (
        through(whole, "<b>10:30 a@b.de</b> x", "q a@b.de X", "0-0 3-1 4-2 5-3 6-4 7-5 8-6")
        == "<b>10:30 a@b.de</b> X"
    )
    assert addresses.joined(Around()) is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("dog\tHund\ncat", "terms:2: expected a word, a tab and its translation, not 'cat'"),
        ("dog\t\n", "terms:1: expected a word"),
        ("dog\tHund\ta\n", "terms:1: expected a word"),
        (
            "dog\tHund\ncat\tKatze\ndog \tKöter\n",
            "terms:3: 'dog' is already 'Hund'; leave one of the two out",
        ),
    ],
)
def test_a_glossary_with_an_error(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "terms").write_text(content)
    with pytest.raises(DataError, match=re.escape(message)):
        read_dictionary(tmp_path / "terms", one_translation=True)


def test_a_glossary_may_say_the_same_twice(tmp_path: Path) -> None:
    (tmp_path / "terms").write_text("hot  dog\tHotdog\ncat\tKatze\nhot dog\tHotdog\n")
    assert read_dictionary(tmp_path / "terms", one_translation=True) == {
        "hot dog": "Hotdog",
        "cat": "Katze",
    }


def test_the_example_of_the_documentation(
    tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One file with a finder of spans. With `--protect` they are one."""
    monkeypatch.setitem(registry._components, "around", dict(registry._components["around"]))
    guide = Path(__file__).parents[3] / "docs" / "adding-a-component.md"
    example = re.search(
        r"`addresses.py`.*?```python\n(.*?)```", guide.read_text(encoding="utf-8"), re.DOTALL
    )
    assert example is not None
    module = ModuleType("addresses")
    monkeypatch.setitem(sys.modules, "addresses", module)
    exec(example[1], vars(module))
    translator = nmt_cli.load(
        tiny_checkpoint, device="cpu", protect_addresses=True, protect=r"\d+", beam=1
    )
    assert [around.name for around in translator.chain.arounds] == [
        "--protect-addresses, --protect"
    ]
    (output,) = translator.translate(["abc x.y@z-1.de fgh 77"])
    assert output.count("x.y@z-1.de") == 1
    assert output.count("77") == 1
