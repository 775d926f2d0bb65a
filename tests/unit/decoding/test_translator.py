from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import nmt_cli
from nmt_cli import registry
from nmt_cli.cores import Sizes
from nmt_cli.decoding import own_engine
from nmt_cli.decoding.constraints import Rule
from nmt_cli.decoding.encoding import CHARACTERS_PER_TOKEN, request_of
from nmt_cli.decoding.engine import Request
from nmt_cli.decoding.options import SearchSettings, TranslateOptions
from nmt_cli.decoding.outputs import Translation
from nmt_cli.decoding.own_engine import OwnEngine
from nmt_cli.decoding.translator import Translator
from nmt_cli.device import Plain
from nmt_cli.errors import DataError, NmtError, UsageError
from nmt_cli.interfaces import EOS, UNK, Constraint, Hypothesis
from nmt_cli.task import Task

ALPHABET = "abcdefgh"


class LetterTask(Task):
    """Letters to letters.

    Anything else is unknown. It has no methods for preparing and training.
    """

    name = "letters"
    source_vocabulary_size = target_vocabulary_size = EOS + 1 + len(ALPHABET)

    def encode_source(self, line: str) -> list[int]:
        return [ALPHABET.find(letter) + EOS + 1 if letter in ALPHABET else UNK for letter in line]

    encode_target = encode_source

    def target_tokens(self, ids: Sequence[int]) -> list[str]:
        return ["?" if i == UNK else ALPHABET[i - EOS - 1] for i in ids]

    source_tokens = target_tokens

    def decode_target(self, ids: Sequence[int], source: str) -> str:
        return "".join(self.target_tokens(ids))

    def max_length(self, source_length: int) -> int:
        return source_length + 4


LetterTask.__abstractmethods__ = frozenset()


@pytest.fixture(scope="module")
def translator(toy: Callable[..., Any]) -> Translator:
    model = toy(LetterTask.source_vocabulary_size, 5, 3.0)
    return Translator(OwnEngine(LetterTask(), model, torch.device("cpu")))


def with_parts(translator: Translator, **parts: Any) -> Translator:
    """Return the translator with another task or model."""
    return replace(translator, engine=replace(translator.engine, **parts))  # type: ignore[type-var]


def with_options(translator: Translator, **options: Any) -> Translator:
    return replace(translator, options=TranslateOptions(**options))


def detailed(translator: Translator, lines: Iterable[str]) -> list[Translation]:
    return list(translator.translate_detailed(lines))


lines_of_letters = st.lists(st.text("abcdefgh \x00\ufffdé", max_size=12), max_size=30)


@settings(max_examples=30)
@given(lines=lines_of_letters, batch_tokens=st.integers(1, 100), read_ahead=st.integers(1, 12))
def test_each_line_gets_its_own_result_in_order(
    translator: Translator, lines: list[str], batch_tokens: int, read_ahead: int
) -> None:
    alone = [detailed(translator, [line])[0] for line in lines]
    together = detailed(
        with_options(translator, batch_tokens=batch_tokens, read_ahead=read_ahead), lines
    )
    assert [t.source for t in together] == lines
    assert [t.text for t in together] == [t.text for t in alone]
    assert [t.outputs[0].score for t in together] == pytest.approx(
        [t.outputs[0].score for t in alone], abs=1e-5
    )


def test_odd_lines_do_not_change_their_neighbours(translator: Translator) -> None:
    poison = [
        "",
        "   \t",
        "\x00",
        "\ufffd" * 50,
        "a" * 100_000,
        "\u2028",
        "\U0010ffff",
        "b" * 2000 + " ",
    ]
    good = ["abc", "hgfedcba", "a", "cab"]
    mixed = [line for pair in zip(poison, good * 2, strict=True) for line in pair]
    results = detailed(with_options(translator, max_source_length=100), mixed)
    assert [t.text for t in results[1::2]] == translator.translate(good) * 2
    assert [t.text for t in results[0:4:2]] == ["", ""]
    assert [t.truncated for t in results[0::2]] == [
        False,
        False,
        False,
        False,
        True,
        False,
        False,
        True,
    ]


def test_a_line_is_truncated_to_max_source_length(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    encode = translator.task.encode_source
    monkeypatch.setattr(
        translator.task, "encode_source", lambda line: seen.append(len(line)) or encode(line)
    )
    long, short, huge = detailed(
        with_options(translator, max_source_length=5), ["abcdefgh", "abcde", "abcde" * 100_000]
    )
    assert [translation.truncated for translation in (long, short, huge)] == [True, False, True]
    assert (long.source_length, long.text) == (huge.source_length, huge.text) == (5, short.text)
    assert max(seen) == 5 * CHARACTERS_PER_TOKEN  # cut before it is encoded


def test_empty_lines_never_reach_the_model(translator: Translator) -> None:
    model: Any = translator.engine.model  # type: ignore[attr-defined]
    model.rows_seen.clear()
    assert translator.translate(["", " ", "\u00a0\u3000"]) == ["", "", ""]
    assert model.rows_seen == []


@pytest.mark.parametrize("how", [{"beam": 1}, {"beam": 4}, {"sample": True}], ids=str)
def test_limits_at_their_boundaries(translator: Translator, how: dict[str, Any]) -> None:
    lines = ["abc", "abcdefgh", "a", "cab"] * 5

    def lengths(**options: Any) -> list[int]:
        return [len(text) for text in translator.translate(lines, **how, **options)]

    free = lengths()
    assert max(free) > 3
    assert max(lengths(max_length=3)) == 3
    assert lengths(max_length=1000) == free
    assert [min(n, 2) for n in lengths(max_length=2)] == lengths(max_length=2)
    assert max(lengths(max_length=3, max_length_offset=0)) <= 3  # of 8 + 0
    assert max(lengths(max_length=100, max_length_offset=0)[2::4]) <= 1  # of 1 + 0
    assert set(lengths(max_length=3, min_length=3)) == {3}
    assert all(
        min(lengths(min_length=n, **more)) >= n
        for n, more in ((4, {}), (9, {"max_length_offset": 0}))
    )


@pytest.mark.parametrize(
    "how", [{"beam": 1}, {"beam": 4, "nbest": 3}, {"sample": True, "nbest": 3}], ids=str
)
def test_outputs_begin_with_their_prefixes(translator: Translator, how: dict[str, Any]) -> None:
    prefixes, lines = ["hg", "", "bb", "?", "hgfedcbahgfedcba"], ["abc", "abcd", "", "c", "a"]
    translations = list(translator.translate_detailed(lines, prefixes=prefixes, **how))
    free = list(translator.translate_detailed(lines, **how))
    for line, prefix, translation in zip(lines, prefixes, translations, strict=True):
        for output in translation.outputs:
            assert output.text.startswith(prefix) or not line
            assert "?" not in output.text[1:]
    assert translations[1].outputs[0].text == free[1].outputs[0].text
    assert [output.text for output in translations[2].outputs] == [""]  # an empty line stays empty
    assert len(translations[4].text) == len(prefixes[4])  # more than the limit of 1 + 4


def test_prefixes_are_read_in_step_with_the_lines(translator: Translator) -> None:
    lines, prefixes = ["abc", "hg"] * 5, ["a", "b", "c", "d", "e"] * 2
    outputs = with_options(translator, read_ahead=3).translate(lines, prefixes=iter(prefixes))
    assert [text[0] for text in outputs] == prefixes
    for some_prefixes, message in (
        (prefixes[:7], r"more lines than prefixes \(7\)"),
        (["a"] * 11, r"more prefixes than lines \(10\)"),
    ):
        with pytest.raises(UsageError, match=message):
            with_options(translator, read_ahead=3).translate(lines, prefixes=some_prefixes)
    with pytest.raises(DataError, match="line 2 has more than 8 tokens"):
        with_options(translator, max_source_length=8).translate(
            ["abc", "abc"], prefixes=["a" * 8, "a" * 9]
        )
    with pytest.raises(DataError, match="line 1 has more than 8 tokens"):
        with_options(translator, max_source_length=8).translate(["abc"], prefixes=["a" * 10_000])


def test_no_output_repeats_an_ngram(translator: Translator) -> None:
    lines = ["abc", "hgfedcba", "a", "cab"]
    free = translator.translate(lines, max_length=30)
    assert any(len(set(text)) < len(text) for text in free)
    held = translator.translate(lines, max_length=30, no_repeat_ngram=1)
    assert all(len(set(text)) == len(text) for text in held)
    # The user's own repetition.
    forced = translator.translate(lines, no_repeat_ngram=1, prefixes=["aa"] * 4)
    assert all(text.startswith("aa") and text.count("a") == 2 for text in forced)


def test_batches_keep_to_their_budget_and_hold_lines_of_similar_length(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    model: Any = translator.engine.model  # type: ignore[attr-defined]
    shapes: list[Any] = []
    start = model.start
    monkeypatch.setattr(
        model, "start", lambda source: shapes.append(tuple(source.shape)) or start(source)
    )
    lines = ["a" * (1 + i % 20) for i in range(200)] + ["b" * 90]
    translator.translate(lines, batch_tokens=60)
    assert sum(rows for rows, _ in shapes) == 201
    assert shapes[0] == (1, 91)
    assert all(rows * width <= 60 for rows, width in shapes[1:])
    padding = sum(rows * width for rows, width in shapes) - sum(len(line) + 1 for line in lines)
    assert padding < 100
    for count, beam, batches in (
        (15, 4, [15]),
        (31, 4, [31]),
        (70, 4, [64, 6]),
        (300, 1, [256, 44]),
    ):
        shapes.clear()
        translator.translate(["a"] * count, beam=beam)
        assert [rows for rows, _ in shapes] == batches


def test_few_lines_are_divided_among_workers(translator: Translator) -> None:
    lines = [
        request_of(translator.task, translator.options, number, "a", "") for number in range(192)
    ]
    for parallel, count, sizes in (
        (1, 31, [31]),
        (2, 31, [16, 15]),
        (9, 31, [11, 11, 9]),
        (2, 15, [15]),
        (2, 95, [48, 47]),
        (2, 96, [24] * 4),
        (1, 192, [64] * 3),
        (2, 192, [48] * 4),
        (4, 192, [24] * 8),
    ):
        assert [len(batch) for batch in translator._batches(lines[:count], parallel)] == sizes


def test_a_gpu_has_large_batches(translator: Translator) -> None:
    gpu = with_parts(translator, device=torch.device("cuda"))
    lines = [request_of(gpu.task, gpu.options, number, "a" * 30, "") for number in range(400)]
    assert [[len(batch) for batch in gpu._batches(lines[:count])] for count in (200, 400)] == [
        [200],
        [256, 144],
    ]


def test_the_device_has_a_search_of_its_own(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Device(Plain):
        def search(self, model: Any, search: Any) -> Any:
            return lambda batches: (
                [[Hypothesis([7 + bool(constraint)], -1.0, [])]] for *_, constraint in batches
            )

    monkeypatch.setattr(own_engine, "fast", Device)
    other = with_parts(translator)
    assert other.translate(["abc"]) == ["d"]
    assert other.translate(["abc"], no_repeat_ngram=9) == ["e"]


@pytest.mark.parametrize("read_ahead", [7, None])
def test_it_reads_no_more_than_read_ahead_lines_ahead(
    read_ahead: int | None, translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default, as many as suit the device."""
    lines = read_ahead or 5
    monkeypatch.setattr(OwnEngine, "sizes", Sizes(4096, 128, 1024, read_ahead=5))
    taken = 0

    def endless() -> Iterator[str]:
        nonlocal taken
        while True:
            taken += 1
            yield "ab"

    results = translator.translate_detailed(endless(), read_ahead=read_ahead, beam=1)
    for number in range(50):
        next(results)
        assert taken == (number // lines + 1) * lines


@pytest.mark.parametrize(("batch_tokens", "most"), [(None, 3), (20, 2)])
def test_a_batch_that_does_not_fit_in_memory_is_halved(
    batch_tokens: int | None, most: int, translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is alone, and the second of three."""
    model: Any = translator.engine.model  # type: ignore[attr-defined]
    lines = [ALPHABET[:n] for n in (1, 5, 3, 8, 2, 7, 4)]
    expected, start = translator.translate(lines), model.start

    def small(source: Tensor) -> Any:
        sizes.append(len(source))
        if len(source) > most:
            raise torch.OutOfMemoryError("too much")
        return start(source)

    sizes = list[int]()
    monkeypatch.setattr(model, "start", small)
    assert translator.translate(lines, batch_tokens=batch_tokens) == expected
    assert sizes == ([2, 3, 3, 1, 2, 2] if batch_tokens else [7, 7, 3, 4, 2, 2])


@dataclass(frozen=True)
class FirstLetterConfig:
    first_letter: bool = False


class FirstLetter(Rule):
    """Outputs have the first letter only, one for each token of the line."""

    asked: ClassVar[list[Any]] = []

    def __init__(self, config: FirstLetterConfig, *, task: Task, options: TranslateOptions) -> None:
        if options.max_length == 1:
            raise UsageError("too short")

    def prepared(self, request: Request) -> Request:
        return request._replace(limit=len(request.ids))

    def constraint(
        self, requests: Sequence[Request], search: SearchSettings, device: torch.device
    ) -> Constraint:
        self.asked.append(([(request.line, request.limit) for request in requests], device))
        return OnlyFirstLetter(len(requests))


class OnlyFirstLetter:
    def __init__(self, rows: int) -> None:
        self.rows = rows

    def restrict(self, scores: Tensor) -> None:
        assert scores.shape == (self.rows, LetterTask.target_vocabulary_size)
        forbidden = [i for i in range(scores.shape[1]) if i != EOS + 1]
        scores[:, forbidden] = -torch.inf

    def advance(self, rows: Tensor, tokens: Tensor) -> OnlyFirstLetter:
        return OnlyFirstLetter(len(rows))


def test_outputs_keep_a_registered_constraint(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry._components, "constraint", {})
    registry.register("constraint", "first_letter", FirstLetterConfig)(FirstLetter)
    constrained = with_options(translator, first_letter=True)
    assert constrained.translate(["bcd", "efgh"]) == ["aaa", "aaaa"]
    assert FirstLetter.asked == [([("efgh", 4), ("bcd", 3)], torch.device("cpu"))]
    with pytest.raises(UsageError, match="too short"):
        with_options(translator, first_letter=True, max_length=1)


def test_out_of_memory_on_one_line_is_an_error(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def search(model: Any, source: Tensor, *_: Any) -> Any:
        sizes.append(len(source))
        raise MemoryError

    monkeypatch.setattr("nmt_cli.decoding.own_engine.beam_search", search)
    with pytest.raises(NmtError, match=r"out of memory .*\d+ tokens, .*beam of \d+"):
        with_parts(translator).translate(["abc", "ab", "a"])
    assert sizes == [3, 3, 1]


def test_half_a_surrogate_pair_becomes_a_question_mark(translator: Translator) -> None:
    (translation,) = translator.translate_detailed(["a\ud800b"])
    assert translation.source == "a?b"
    assert [translation.text] == translator.translate(["a?b"])


@pytest.mark.parametrize("wrong", ["ab", [None], ["a", b"b"], [3], 3])
def test_lines_and_prefixes_that_are_not_strings_are_refused(
    translator: Translator, wrong: Any
) -> None:
    for lines, prefixes in ((wrong, None), (["a"] * (1 if wrong == 3 else len(wrong)), wrong)):
        with pytest.raises(UsageError):
            translator.translate(lines, prefixes=prefixes)


def test_a_prefix_that_the_task_cannot_read_is_named(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(line: str) -> Any:
        raise DataError(f"{line} has no meaning")

    monkeypatch.setattr(translator.task, "encode_target", refuse)
    with pytest.raises(DataError, match="the prefix of line 2: b has no meaning"):
        translator.translate(["abc", "hg"], prefixes=["", "b"])


def ids(translation: Translation) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(output.ids) for output in translation.outputs)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_outputs_do_not_depend_on_the_number_of_workers(tiny_checkpoint: Path, dtype: str) -> None:
    translator = nmt_cli.load(tiny_checkpoint, "cpu", dtype, nbest=4, max_length_offset=3)
    random = torch.Generator().manual_seed(1)
    lengths = torch.randint(0, 12, (70,), generator=random).tolist()
    lines = [
        "".join(ALPHABET[i] for i in torch.randint(0, 8, (n,), generator=random).tolist())
        for n in lengths
    ]
    alone, few = (
        list(map(ids, translator.translate_window(some_lines))) for some_lines in (lines, lines[:3])
    )
    assert len(set(alone)) > 20
    for count in (1, 2, 3):
        with translator.engine.workers(translator, count) as workers:
            assert (workers is None) == (count == 1)
            assert list(map(ids, translator.translate_window(lines, workers=workers))) == alone
            assert list(map(ids, translator.translate_window(lines[:3], workers=workers))) == few


def test_workers_need_a_cpu(translator: Translator) -> None:
    elsewhere = with_parts(translator, device=torch.device("meta"))
    with elsewhere.engine.workers(elsewhere, None) as workers:
        assert workers is None
    with pytest.raises(UsageError, match=r"--workers 2: .*only on a CPU"):
        elsewhere.engine.workers(elsewhere, 2).__enter__()
