"""Preparation of lines for tokenized BLEU: compared with Perl, if installed, and known cases."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.errors import UsageError
from nmt_cli.metrics.preparation import (
    STEPS,
    check_language,
    moses_tokenizer,
    split_compounds,
    tokenization_of,
)

lower_ascii, normalise_quotes, keep_inner_spaces = (
    STEPS[step]("de") for step in ("ascii-lower", "quotes", "ascii-spaces")
)
ONE_LINE = st.text(st.characters(exclude_characters="\n", exclude_categories=("Cs",)), max_size=40)
needs_perl = pytest.mark.skipif(shutil.which("perl") is None, reason="needs Perl: apt install perl")


def perl(program: str, lines: list[str]) -> list[str]:
    """Return the output of a Perl one-liner, which sees bytes, for each line."""
    text = "".join(f"{line}\n" for line in lines).encode()
    done = subprocess.run(
        ["perl", "-pe", program], input=text, capture_output=True, check=True, env={"LC_ALL": "C"}
    )
    return done.stdout.decode().split("\n")[:-1]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("rich-text format", "rich ##AT##-##AT## text format"),
        ("a-b-c", "a ##AT##-##AT## b-c"),  # b is used up by the first match: no overlaps
        ("a-é-b", "a ##AT##-##AT## é ##AT##-##AT## b"),  # é is two bytes, one for each match
        ("ab-cd-ef", "ab ##AT##-##AT## cd ##AT##-##AT## ef"),
        ("a--b", "a ##AT##-##AT## -b"),  # the second hyphen is \S too
        ("a - b", "a - b"),
        ("- 5 and x-", "- 5 and x-"),
        # A no-break space is no white space among bytes.
        (
            "a\u00a0-\u00a0b",
            "a\u00a0 ##AT##-##AT## \u00a0b",
        ),
        ("", ""),
    ],
)
def test_compounds_are_split_on_bytes_once_without_overlaps(line: str, expected: str) -> None:
    assert split_compounds(line) == expected


@needs_perl
def test_compounds_are_split_as_perl_splits_them() -> None:
    lines = [
        "a-b-c-d-e",
        "a-é-b",
        "日-本-語",
        "x-\u0085-y",
        "U-Bahn-Station",
        "-a-",
        "a-\tb",
        "é-é-é-é",
        "a-𝔘-b-c",
    ]
    assert [split_compounds(line) for line in lines] == perl(
        r"s/(\S)-(\S)/$1 ##AT##-##AT## $2/g", lines
    )


@given(ONE_LINE)
def test_splitting_compounds_only_adds_marks(line: str) -> None:
    assert split_compounds(line).replace(" ##AT##-##AT## ", "-") == line.replace(
        " ##AT##-##AT## ", "-"
    )


@needs_perl
def test_lower_case_is_that_of_perl_on_bytes() -> None:
    lines = ["ÄPFEL und Öl", "ABC xyz", "İstanbul", "ΑΒΓ", "STRASSE ß"]
    assert [lower_ascii(line) for line in lines] == perl("$_ = lc", lines)
    assert lower_ascii("ÄPFEL") == "Äpfel"


@given(ONE_LINE)
def test_only_ascii_white_space_separates_tokens(line: str) -> None:
    tokens = keep_inner_spaces(line).split()
    assert len(tokens) == len(line.encode().split())


def test_every_double_quote_becomes_the_straight_one() -> None:
    assert normalise_quotes("„Ja“, “yes”, «oui» ‚nein‘ it’s") == '"Ja", "yes", "oui" ‚nein‘ it’s'


def test_unicode_punctuation_leaves_the_low_quote() -> None:
    """The script knows “ and ” but not „, so the paper's references were treated apart."""
    assert STEPS["punctuation"]("de")("„Ja“ … it’s") == "„Ja\" ... it's"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('Er sagte: "Ja."', "Er sagte : &quot; Ja . &quot;"),
        ("Das kostet 5,30 Euro, Dr. Meier.", "Das kostet 5,30 Euro , Dr. Meier ."),
        # The last word's full stop is always split off.
        (
            "Heute ist der 26.",
            "Heute ist der 26 .",
        ),
        ("Am 26. Mai", "Am 26. Mai"),
        ("Und so z.B.", "Und so z.B ."),
        ("Nun ...", "Nun ..."),
        ("U-Bahn & [x] | <y>", "U-Bahn &amp; &#91; x &#93; &#124; &lt; y &gt;"),
        ("a\u00a0b", "a b"),
        ("", ""),
        (".", "."),
    ],
)
def test_moses_tokens(line: str, expected: str) -> None:
    assert moses_tokenizer("de")(line) == expected


def test_the_language_matters() -> None:
    assert moses_tokenizer("fr")("l'eau") == "l&apos; eau"
    assert moses_tokenizer("en")("it's") == "it &apos;s"


def test_an_unknown_language_is_refused() -> None:
    with pytest.raises(UsageError, match=r"'dd'.*Did you mean de"):
        check_language("dd")


@pytest.mark.parametrize(
    ("language", "tokenization"),
    [
        ("zh", "zh"),
        ("zh_CN", "zh"),
        ("cmn-Hant", "zh"),
        ("ja", "char"),
        ("th", "char"),
        ("de", "13a"),
        ("", "13a"),
    ],
)
def test_the_tokenization_of_a_language(language: str, tokenization: str) -> None:
    assert tokenization_of(language) == tokenization
