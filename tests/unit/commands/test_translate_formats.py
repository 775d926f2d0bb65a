from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.commands.translate_formats import FORMATS
from nmt_cli.decoding.outputs import Output, Translation

TWO = Translation(
    "ein „Satz“\tx",
    [
        Output("a „b“", -0.5, ["▁a"], [-0.25, -0.30004]),
        Output("c", -1.25, ["▁c"], [-2.5], {"flat": 1}),
    ],
    3,
    truncated=True,
)


def formatted(name: str, translation: Translation = TWO) -> str:
    return FORMATS[name](translation, 7)


def test_each_format_of_two_outputs() -> None:
    assert formatted("text") == "a „b“\nc\n"
    assert formatted("tsv") == "7\t-0.5000\ta „b“\n7\t-1.2500\tc\n"
    assert formatted("moses") == (
        "6 ||| a „b“ ||| LogProb= -0.5500 Length= 2 ||| -0.5000\n6 ||| c ||| LogProb= -2.5000 "
        "Length= 1 ||| -1.2500\n"
    )
    line = formatted("json")
    assert "„Satz“" in line
    assert json.loads(line) == {
        "line": 7,
        "source": "ein „Satz“\tx",
        "truncated": True,
        "outputs": [
            {
                "text": "a „b“",
                "score": -0.5,
                "tokens": ["▁a"],
                "token_scores": [-0.25, -0.3],
                "repairs": {},
            },
            {
                "text": "c",
                "score": -1.25,
                "tokens": ["▁c"],
                "token_scores": [-2.5],
                "repairs": {"flat": 1},
            },
        ],
    }


@pytest.mark.parametrize("name", FORMATS)
@given(text=st.one_of(st.text(), st.text("\n\t\r|a ")))
def test_no_text_breaks_a_format(name: str, text: str) -> None:
    translation = Translation(
        text, [Output(text, -0.5, [], []), Output("second", -1.0, [], [])], 0, truncated=False
    )
    content = formatted(name, translation)
    *lines, end = re.split(r"\r\n|[\r\n]", content)
    assert (len(lines), end) == (1 if name == "json" else 2, "")
    if name == "json":
        assert json.loads(content)["outputs"][0]["text"] == text
    elif name == "moses":
        assert [len(line.split("|||")) for line in lines] == [4, 4]
        assert lines[0].split(" ||| ")[2:] == ["LogProb= 0.0000 Length= 0", "-0.5000"]
    elif name == "tsv":
        assert [line.count("\t") for line in lines] == [2, 2]
