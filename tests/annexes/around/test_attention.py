"""Words of outputs are aligned to words of the source by attention."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from nmt_cli.annexes.around import attention
from nmt_cli.annexes.around.attention import Aligner, criterion_of, links_of, words_of
from nmt_cli.data.moses import Moses
from nmt_cli.errors import UsageError
from nmt_cli.interfaces import BOS, EOS, PAD
from nmt_cli.weights import load_model

CPU = torch.device("cpu")


class Attends:
    """Gives the weights `cross` [layers, H, T, S] to each sentence, and keeps what it has read.

    After them is a row of 1 / 16, of the position that reads the last token.
    """

    shows_attention = True
    output_weight = torch.zeros(1)

    def __init__(self, cross: Any, criterion: str | None = None) -> None:
        self.cross = F.pad(torch.tensor(cross, dtype=torch.float32), (0, 0, 0, 1), value=1 / 16)
        self.criterion = criterion
        self.seen: list[tuple[list[list[int]], list[list[int]]]] = []

    def attention_weights(self, source: Tensor, target_in: Tensor) -> dict[str, Tensor]:
        self.seen.append((source.tolist(), target_in.tolist()))
        return {"cross": self.cross.expand(len(source), -1, -1, -1, -1)}


def weights(pairs: Sequence[tuple[list[int], list[int]]], *models: Any) -> list[Any]:
    return [matrix.tolist() for matrix in aligner(*models).weights(pairs)]


def aligner(*models: Any) -> Aligner:
    """That of models whose checkpoints are named by their criteria."""
    folders = [Path(str(getattr(model, "criterion", None))) for model in models]
    engine: Any = SimpleNamespace(models=models, folders=folders, task=None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "criterion_of", str)
        return Aligner(engine, None)


def test_the_model_reads_the_pair_as_in_training() -> None:
    """A row is of the token that it predicts. The end of the source and padding are left out."""
    model = Attends([[[[0.5, 0.25, 0.25], [0, 0.75, 0.25]]]])
    weight_lists = weights([([6, 7], [8, 9]), ([6], [8])], model)
    assert model.seen == [([[6, 7, EOS], [6, EOS, PAD]], [[BOS, 8, 9], [BOS, 8, PAD]])]
    assert weight_lists == [[[0.5, 0.25], [0, 0.75]], [[0.5]]]


def test_the_layer_is_the_one_before_the_last_or_the_only_one() -> None:
    """The heads of a layer have the mean."""
    layers = [[[[place / 8, 0]], [[place / 4, 0]]] for place in range(1, 4)]
    assert weights([([6], [8])], Attends(layers)) == [[[0.375]]]
    assert weights([([6], [8])], Attends(layers[:1])) == [[[0.1875]]]


def test_an_ensemble_has_the_mean() -> None:
    """Of models with any numbers of heads and layers."""
    models = Attends([[[[1, 0]], [[0, 0]]]]), Attends([[[[0, 0]]], [[[1, 0]]]])
    assert weights([([6], [8])], *models) == [[[0.25]]]


def test_the_first_head_of_a_guided_model_aligns_the_token_that_is_read() -> None:
    """In an ensemble, the other model has the mean of its heads, where it predicts."""
    layer = [[[1 / 2, 0], [1 / 4, 0]], [[0, 0], [0, 0]]]
    guided, other = Attends([layer], "guided_alignment"), Attends([layer], "r_drop")
    pair = ([6], [8, 9])
    assert weights([pair], guided) == [[[1 / 4], [1 / 16]]]
    assert weights([pair], other) == [[[1 / 4], [1 / 8]]]
    assert weights([pair], other, guided) == [[[1 / 4], [3 / 32]]]


def test_the_criterion_of_a_checkpoint(
    tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of one without a record of its training."""
    assert criterion_of(tiny_checkpoint) is None
    contents = SimpleNamespace(
        sections={"criterion": {"name": "guided_alignment", "alignment_file": "a.tsv"}}
    )
    monkeypatch.setattr(attention, "read_contents", lambda folder: contents)
    assert criterion_of(tiny_checkpoint) == "guided_alignment"


def test_empty_outputs_and_no_outputs() -> None:
    assert weights([], Attends([[[[1, 0]]]])) == []
    assert weights([([6], [])], Attends([[[[1, 0]]]])) == [[]]


def test_models_without_attention_are_refused() -> None:
    models: Any = [Attends([[[[1]]]]), SimpleNamespace(shows_attention=False)]
    with pytest.raises(UsageError, match="attention_weights"):
        aligner(*models)


def test_a_sentence_has_the_same_weights_in_any_batch(
    tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, _ = load_model(tiny_checkpoint, CPU)
    pairs = [
        ([4 + i % 5 for i in range(n)], [5 + i % 5 for i in range(m)])
        for n, m in ((3, 5), (9, 1), (1, 8), (4, 4))
    ]
    together = aligner(model).weights(pairs)
    monkeypatch.setattr(attention, "PLACES", 200)  # two sentences at a time
    parts = aligner(model).weights(pairs)
    for pair, one, other in zip(pairs, together, parts, strict=True):
        (alone,) = aligner(model).weights([pair])
        assert alone.shape == (len(pair[1]), len(pair[0]))
        torch.testing.assert_close(one, alone, atol=1e-6, rtol=0)
        torch.testing.assert_close(other, alone, atol=1e-6, rtol=0)


def test_a_link_is_the_largest_sum_over_pieces() -> None:
    """The second output word attends to the pieces of `cd`, though to none of them most."""
    sums = torch.tensor([[0.5, 0.1, 0.1, 0.3], [0.4, 0.3, 0.3, 0.0]])
    assert links_of(sums, ["▁a", "▁c", "d", "▁e"], ["▁x", "▁y"], "a cd e", "x y") == [
        (0, 0),
        (1, 1),
    ]
    assert links_of(sums, ["▁a", "▁c", "d", "▁e"], ["▁x", "y"], "a cd e", "xy") == [(0, 0)]


def test_a_word_without_weights_has_no_link() -> None:
    assert links_of(torch.tensor([[0.0], [1.0]]), ["▁a"], ["▁x", "▁y"], "a", "x y") == [(0, 1)]
    assert links_of(torch.zeros(0, 1), ["▁a"], [], "a", "") == []


@given(
    st.lists(
        st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1), min_size=1, max_size=5
    ),
    st.data(),
)
def test_pieces_are_found_in_the_line(words: list[str], data: st.DataObject) -> None:
    """Any cut of any words. The mark of a space may be a piece of its own."""
    pieces, expected = [], []
    for number, word in enumerate(words):
        rest = "▁" + word.replace("▁", "_")
        while rest:
            length = data.draw(st.integers(1, len(rest)))
            pieces.append(rest[:length])
            expected.append(number)
            rest = rest[length:]
    assert words_of(pieces, "  ".join(word.replace("▁", "_") for word in words)) == expected


@pytest.mark.parametrize(
    ("pieces", "line", "expected"),
    [
        # Moses, escapes.
        (
            "▁don &apos;t ▁" + '"stop" ▁.',
            "Don\u2019t  \u201cstop\u201d.",
            [0, 0, 1, 1],
        ),
        ("▁ein ▁½ ▁fine ▁stra ß e", "Ein 1\u20442 ﬁne Straße", [0, 1, 2, 3, 3, 3]),  # NFKC, case
        ("▁caf é", "cafe\u0301 x", [0, 0]),  # composed, and the line goes on
        ("▁a ▁ <unk> ▁b", "a ☃☃ b", [0, 1, 1, 2]),
        ("▁a ▁ <0xE2> <0x98> <0x83> ▁b", "a ☃ b", [0, 1, 1, 1, 1, 2]),
        ("a@@ b c", "ab c", [0, 0, 1]),  # subword-nmt
        ("▁a ▁□ ▁□ ▁b", "a rex zorro b", [0, 1, 2, 3]),
        ("▁abc ▁d", "ABC D EFGHIJ", [0, 1]),  # the beginning of an upper-case line
        ("▁a ▁b", "a\u00a0b c", [0, 0]),  # no space of ASCII
        ("▁a ▁b", "\u00a0 a b", [1, 2]),
        ("▁a ▁b ▁c", "a", [0, 0, 0]),
    ],
)
def test_normalised_text_is_traced(pieces: str, line: str, expected: list[int]) -> None:
    assert words_of(pieces.split(" "), line) == expected


def test_nothing_is_found_in_nothing() -> None:
    assert words_of([], "a") == []
    assert words_of(["▁a"], "") == []
    assert words_of(["▁a"], "\u00a0") == []


def test_tokens_of_moses_are_traced() -> None:
    """One for each token, checked by the words between spaces."""
    line = "The dog's owner said: “it isn't 3.5 % of U.S. GDP (approx.)”, didn't he?"
    tokens = Moses("en", escape=True).tokenise(line).split(" ")
    words_found = words_of(["▁" + token for token in tokens], line)
    words = line.split(" ")
    plain = [token.replace("&apos;", "'").replace("&quot;", '"') for token in tokens]
    for token, number in zip(plain, words_found, strict=True):
        assert token in words[number].replace("“", '"').replace("”", '"')
    assert sorted(set(words_found)) == list(range(len(words)))
