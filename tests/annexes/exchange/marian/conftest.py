"""Text that looks real, and tiny models for it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt_cli import registry

ENGLISH = (
    "the big small old happy quiet",
    "man woman dog café child farmer",
    "sees hears finds paints isn't",
    "today ! ?",
)
GERMAN = (
    "der große kleine alte frohe stille",
    "Mann Bäcker Hund Gärtner Fuß",
    "sieht hört findet malt",
    "heute ! ?",
)
ODD = [
    "",
    "   Two  spaces,  and  more ",
    "3.5 % of 1,234 — “quoted” text … (naïve) №5",
    "日本語 and emoji 🙂🙂 and Ünïcödé",
    "tab\there, no-break\u00a0space, zero\u200bwidth",
    "</s> a <pad> symbol <unk> <s> in the text",
    "one \u2581 block at the end and  white space \u2581 ",
    "so\u00adft hyphens, \u2066isolated\u2069 words\u202c, an \u2764\ufe0f, \u0085, \u0081, \u0093 "
    "and \u3164 too",
    "\u200b\u00ad \u2060",
    "\u0645\u06cc\u200c\u062e\u0648 \u0627\u200c\u0628, Auf\u200clage, \u0915\u094d\u200d\u0937",
    "an \u200d alone, \u09b0\u200d\u09cd\u09af, \U0001f469\u200d\U0001f680",
    "\u0e19\u0e49\u0e33 \u0e17\u0e4d\u0e32 \u0e97\u0eb3",
    "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f, a flag",
    "one \u2581 block, >>deu<< in the middle",
    "ﬁne ligatures, ① and full-width ＡＢＣ",
    "NFD: scho\u0308n, cafe\u0301; \ufeffa mark, a \x01 control, e\x01e; \u3000a wide space",
]
"""Lines with characters that no vocabulary here has, and with what looks like special symbols."""


def _sentences(words: tuple[str, ...], count: int) -> list[str]:
    draw = random.Random(len(words[0]))
    lists = [
        part.split(" ") for part in (words[0], words[1], words[2], words[0], words[1], words[3])
    ]
    return [
        " ".join(map(draw.choice, lists)).capitalize() + ("." if number % 3 else ", 12.5 %")
        for number in range(count)
    ]


@pytest.fixture(scope="session")
def text() -> list[tuple[str, str]]:
    """Pairs of sentences."""
    return list(zip(_sentences(ENGLISH, 60), _sentences(GERMAN, 60), strict=True))


@pytest.fixture(scope="session")
def odd_lines(text: list[tuple[str, str]]) -> list[str]:
    """A few sentences of the text, and odd ones."""
    return [*(line for pair in text[:4] for line in pair), *ODD]


@pytest.fixture(scope="session")
def build(text: list[tuple[str, str]]) -> Callable[..., tuple[Any, Any]]:
    """Makes a Transformer with random weights, and its task."""

    def make(
        task: dict[str, Any] | None = None, attention: str = "full", **fields: Any
    ) -> tuple[Any, Any]:
        registry.discover()
        component = registry.find("task", "translation")
        settings = {"source_lang": "en", "target_lang": "de", "vocab_size": 90, **(task or {})}
        built_model = component.build(component.config(**settings))
        built_model.learn(
            [built_model.normalise(type("Pair", (), {"source": s, "target": t})()) for s, t in text]
        )
        torch.manual_seed(1)
        sizes = {"num_layers": 2, "d_model": 16, "d_ff": 24, "num_heads": 2}
        model = registry.build(
            registry.find("model", "transformer").config(**{**sizes, **fields}),
            attention=registry.find("attention", attention).config(),
            source_vocabulary_size=built_model.source_vocabulary_size,
            target_vocabulary_size=built_model.target_vocabulary_size,
            shared_vocabulary=built_model.shared_vocabulary,
        )
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
        return model.eval(), built_model

    return make


@pytest.fixture(scope="session")
def taught() -> Callable[..., None]:
    """Lowers the loss of a model so far that most of its outputs end, and differ."""

    def teach(model: torch.nn.Module, loss: Callable[[], Tensor]) -> None:
        optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
        for _ in range(50):
            optimizer.zero_grad()
            loss().backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    return teach
