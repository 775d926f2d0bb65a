"""The output formats of `nmt translate`: each is a function in `FORMATS`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from nmt_cli.decoding.outputs import Translation

Format = Callable[[Translation, int], str]
"""From a translation and the number of its line in the input (from 1) to the text."""

_MOSES_BAR = "&#124;"
"""A vertical bar, as Moses escapes it."""


def text(translation: Translation, number: int) -> str:
    """A line an output: the text."""
    return "".join(f"{one_line(output.text)}\n" for output in translation.outputs)


def tsv(translation: Translation, number: int) -> str:
    """A line an output: line number (from 1), score and text, separated by tabs."""
    rows = []
    for output in translation.outputs:
        rows.append(f"{number}\t{output.score:.4f}\t{column(output.text)}\n")
    return "".join(rows)


def moses(translation: Translation, number: int) -> str:
    """A line an output, as in Moses' n-best lists, whose columns have ` ||| ` between them.

    The columns are line number (from 0), text, features and score. The features are the sum of the
    log-probabilities of tokens, and the number of tokens.
    """
    rows = []
    for output in translation.outputs:
        escaped = one_line(output.text).replace("|||", 3 * _MOSES_BAR)
        features = f"LogProb= {sum(output.token_scores):.4f} Length= {len(output.token_scores)}"
        rows.append(f"{number - 1} ||| {escaped} ||| {features} ||| {output.score:.4f}\n")
    return "".join(rows)


def as_json(translation: Translation, number: int) -> str:
    """A JSON object for each line of input, on one line."""
    outputs = []
    for output in translation.outputs:
        token_scores = [round(score, 4) for score in output.token_scores]
        outputs.append(
            {
                "text": output.text,
                "score": round(output.score, 4),
                "tokens": output.tokens,
                "token_scores": token_scores,
                "repairs": dict(output.repairs),
            }
        )
    line = {
        "line": number,
        "source": translation.source,
        "truncated": translation.truncated,
        "outputs": outputs,
    }
    return json.dumps(line, ensure_ascii=False) + "\n"


FORMATS: dict[str, Format] = {"text": text, "tsv": tsv, "moses": moses, "json": as_json}
"""By the name that `--format` takes."""


def one_line(content: str) -> str:
    """Return `content` with a space in place of each line break."""
    return re.sub(r"[\n\r]", " ", content)


def column(content: str) -> str:
    """Return `content` with a space in place of each line break and tab."""
    return re.sub(r"[\n\r\t]", " ", content)
