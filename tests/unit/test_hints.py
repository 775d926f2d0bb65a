from __future__ import annotations

from dataclasses import dataclass

import pytest

from nmt_cli.errors import UsageError
from nmt_cli.hints import refuse, unknown_flags


@dataclass
class Flag:
    is_flag: bool


KNOWN = {"--pan": Flag(False), "-p": Flag(False), "--hot": Flag(True), "--no-hot": Flag(True)}


@pytest.mark.parametrize(
    ("line", "unknown"),
    [
        ("--pan big egg --hot -p x", []),
        ("--pan -x --pot=3 --pan=-y", ["--pot"]),  # -x and -y are values
        # -p big, with one hyphen, as some programs write flags.
        (
            "-pbig -pan big --big_pan",
            ["-pan", "--big_pan"],
        ),
        ("pan -1 -.5 - --pot -x -- --pit", ["--pot", "-x"]),
        ("--hot --pot (0.9, 0.98) -3 --pit", ["--pot", "--pit"]),
    ],
)
def test_words_that_are_unknown_flags(line: str, unknown: list[str]) -> None:
    assert unknown_flags("cook", line.split(" "), KNOWN) == unknown


@pytest.mark.parametrize("value", ["true", "False"])
def test_a_boolean_flag_takes_no_value(value: str) -> None:
    with pytest.raises(UsageError, match="--hot takes no value"):
        unknown_flags("cook", ["--hot", value], KNOWN)


def test_each_unknown_flag_has_an_answer() -> None:
    refuse("cook has no flag", [], "cook", KNOWN)
    with pytest.raises(
        UsageError, match=r"^cook has no flag -pan: use --pan\n`nmt cook --help` lists the flags.$"
    ):
        refuse("cook has no flag", ["-pan", "-pan"], "cook", KNOWN)
    with pytest.raises(
        UsageError, match=r"^cook has no flag\n  --no-hto: did you mean --no-hot\?\n  --oven: unk"
    ):
        refuse("cook has no flag", ["--no-hto", "--oven"], "cook", KNOWN)


def test_the_message_about_a_large_file_is_short() -> None:
    names = ["x" * 10**6, *(f"name_{number}" for number in range(10**5))]
    with pytest.raises(UsageError) as error:
        refuse("a.yaml: there is no setting", names, "cook", KNOWN)
    assert len(str(error.value)) < 2000
