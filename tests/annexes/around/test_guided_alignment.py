"""Guided alignment: its loss from the equation, its file, and what a run learns from it."""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from like_a_gpu import like_a_gpu
from tiny_run import SIZES, TINY, metrics, run
from torch import Tensor

import nmt_cli
from nmt_cli import checkpoint, registry
from nmt_cli.annexes.around.attention import Aligner, links_of
from nmt_cli.annexes.around.guided_alignment import GuidedAlignment, linked_pieces
from nmt_cli.annexes.around.settings import GuidedAlignmentConfig
from nmt_cli.annexes.doctor.resume import contents
from nmt_cli.commands.prepare import PrepareOptions, prepare
from nmt_cli.commands.train import TrainOptions
from nmt_cli.criteria.label_smoothed_cross_entropy import LabelSmoothedCrossEntropy
from nmt_cli.data.batching import collate
from nmt_cli.data.corpus import PairsInMemory
from nmt_cli.errors import DataError, UsageError
from nmt_cli.interfaces import EOS, ragged
from nmt_cli.layers.attention import Recorded
from nmt_cli.models.settings import TransformerConfig
from nmt_cli.tasks.translation import TranslationTask
from nmt_cli.training.start import train

CPU = torch.device("cpu")
LETTERS = "abcdefgh"
PAIRS = [
    ("ab c def", "gh ab", "0-1 2-1 1-0"),
    ("h", "e fg", ""),
    ("a b", "cd h e", "0-0 1-0 1-2"),
    ("d", "a", "0-0"),
]


def task_of_letters(**symbols: str) -> TranslationTask:
    """Each word is a piece for the space, and a piece for each letter."""
    registry.discover()
    component = registry.find("task", "translation")
    size = 5 + len(LETTERS) + len(symbols)
    task = component.build(
        component.config("en", "de", vocab_size=size, normalization="none", **symbols)
    )
    task.learn([(LETTERS, LETTERS[::-1])])
    return task


TASK = task_of_letters()


def pieces_of(word: str) -> int:
    return 1 + len(word)


def model_of(task: TranslationTask, **settings: Any) -> Any:
    registry.discover()
    torch.manual_seed(3)
    config = TransformerConfig(
        **{"num_layers": 3, "d_model": 16, "d_ff": 24, "num_heads": 2, "dropout": 0.0, **settings}
    )
    attention = registry.find("attention", "full").config()
    return registry.build(config, attention=attention, **checkpoint.vocabulary_of(task))


class Corpus(PairsInMemory):
    def __len__(self) -> int:
        return len(self.source_lengths)


def prepared(
    folder: Path,
    model: Any,
    pairs: list[tuple[str, str, str]],
    task: TranslationTask = TASK,
    weight: float = 0.7,
) -> tuple[Any, Any]:
    """The criterion, which has read these pairs, and a batch of them."""
    (folder / "links.tsv").write_text("".join("\t".join(pair) + "\n" for pair in pairs))
    ids = [[task.encode_source(s) for s, *_ in pairs], [task.encode_target(t) for _, t, _ in pairs]]
    criterion = GuidedAlignment(
        GuidedAlignmentConfig(alignment_file=f"{folder}/links.tsv", alignment_weight=weight)
    )
    run: Any = SimpleNamespace(model=model, task=task, corpus=Corpus(*map(ragged, ids)))
    run.plan, run.world = SimpleNamespace(text_changes=list), SimpleNamespace(is_main=True)
    criterion.prepare(run)
    return criterion, collate(*([np.array(ids_of_side) for ids_of_side in side] for side in ids))


def rows_of_pieces(line: str) -> list[list[int]]:
    """The places of the pieces of each word."""
    starts = [sum(map(pieces_of, line.split()[:n])) for n in range(len(line.split()) + 1)]
    return [list(range(first, end)) for first, end in itertools.pairwise(starts)]


def plain_loss(model: Any, batch: Any, pairs: list[tuple[str, str, str]], layer: int = 1) -> Tensor:
    """The sum over target pieces of the mean of -log a over their links, at the reading row."""
    recorded: list[Recorded] = []

    def masks(*arguments: Any, **keywords: Any) -> Recorded:
        recorded.append(Recorded(*arguments, **keywords))
        return recorded[-1]

    model.decoder_output(batch.source, batch.target_in, masks)
    loss = torch.zeros(())
    for number, (source, target, links) in enumerate(pairs):
        linked = [tuple(map(int, link.split("-"))) for link in links.split()]
        for j, rows in enumerate(rows_of_pieces(target)):
            columns = [
                c
                for i, place in enumerate(rows_of_pieces(source))
                for c in place
                if (i, j) in linked
            ]
            for row in rows if columns else ():
                loss = loss - recorded[-1].weights[layer][number, 0, row + 1, columns].log().mean()
    return loss


def gradients(model: Any, total: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    total.backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def test_it_is_the_plain_loss(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = model_of(TASK)
    criterion, batch = prepared(tmp_path, model, PAIRS)
    assert (
        capsys.readouterr().err == f"{tmp_path}/links.tsv: 4 pairs, 4 of 4 in the training text\n"
    )
    likelihood = LabelSmoothedCrossEntropy(GuidedAlignmentConfig())(model, batch)
    guided = plain_loss(model, batch, PAIRS)
    assert guided > 1
    guided_gradients = gradients(model, likelihood.total + 0.7 * guided)
    loss = criterion(model, batch)
    torch.testing.assert_close(loss.total, likelihood.total + 0.7 * guided)
    assert (loss.nll, loss.num_tokens) == (likelihood.nll, likelihood.num_tokens)
    torch.testing.assert_close(gradients(model, loss.total), guided_gradients, rtol=1e-4, atol=1e-5)
    model.eval()
    assert criterion(model, batch).total == likelihood.total


def test_the_only_layer_is_guided(tmp_path: Path) -> None:
    model = model_of(TASK, num_layers=1)
    criterion, batch = prepared(tmp_path, model, PAIRS)
    likelihood = LabelSmoothedCrossEntropy(GuidedAlignmentConfig())(model, batch)
    torch.testing.assert_close(
        criterion(model, batch).total,
        likelihood.total + 0.7 * plain_loss(model, batch, PAIRS, layer=0),
    )


def test_the_gradient_reaches_one_head_and_what_is_below_it(tmp_path: Path) -> None:
    model = model_of(TASK)
    criterion, batch = prepared(tmp_path, model, PAIRS)
    guided = (
        criterion(model, batch).total
        - LabelSmoothedCrossEntropy(GuidedAlignmentConfig())(model, batch).total
    )
    gradients_by_name = gradients(model, guided)
    assert all(
        not gradient.abs().max() > 1e-6
        for name, gradient in gradients_by_name.items()
        if name.startswith("decoder.2.")
    )
    for letter in "qk":
        first, second = gradients_by_name[f"decoder.1.cross_attention.w_{letter}.weight"].chunk(2)
        assert first.abs().max() > 1e-3
        assert second.abs().max() < 1e-6
    assert gradients_by_name["encoder.0.self_attention.w_v.weight"].abs().max() > 1e-4


def test_a_weight_of_zero_has_a_finite_loss(tmp_path: Path) -> None:
    model = model_of(TASK)
    with torch.no_grad():
        model.decoder[1].cross_attention.w_q.weight.mul_(1e4)
    criterion, batch = prepared(tmp_path, model, PAIRS)
    loss = criterion(model, batch)
    assert loss.total.isfinite()
    assert all(gradient.isfinite().all() for gradient in gradients(model, loss.total).values())


def test_pairs_are_found_in_any_order_and_others_have_no_guidance(tmp_path: Path) -> None:
    model = model_of(TASK)
    criterion, batch = prepared(tmp_path, model, PAIRS)
    expected = criterion(model, batch).total
    table = "".join(
        "\t".join(pair) + "\n" for pair in [("g g", "a", "1-0"), PAIRS[3], PAIRS[2], PAIRS[0]]
    )
    (tmp_path / "other.tsv.gz").write_bytes(gzip.compress(table.encode()))
    lines = gzip.decompress((tmp_path / "other.tsv.gz").read_bytes()).decode().splitlines()
    criterion.links = dict(linked_pieces(TASK, line, "") for line in lines)
    assert criterion(model, batch).total == expected


def test_a_tag_is_a_word(tmp_path: Path) -> None:
    """As `nmt prepare` puts it before the line, so it counts."""
    task = task_of_letters(symbols="<bt>")
    _, links = linked_pieces(task, "<bt> ab\tc\t0-0 1-0", "")
    places = np.frombuffer(links, np.uint16).reshape(-1, 2)
    assert places.tolist() == [[p, q] for p in range(4) for q in range(2)]
    key, _ = linked_pieces(task, "ab\tc\t0-0", "")
    assert key != linked_pieces(task, "<bt> ab\tc\t", "")[0]


lines_of_words = st.lists(st.text(LETTERS, min_size=1, max_size=4), min_size=1, max_size=6)


@given(lines_of_words, lines_of_words, st.data())
def test_links_of_words_become_links_of_pieces(
    source: list[str], target: list[str], data: st.DataObject
) -> None:
    everything = [(i, j) for i in range(len(source)) for j in range(len(target))]
    links = data.draw(st.lists(st.sampled_from(everything), unique=True))
    written = " ".join(f"{i}-{j}" for i, j in links)
    _, linked = linked_pieces(TASK, f"{' '.join(source)}\t{' '.join(target)}\t{written}", "")
    rows, columns = rows_of_pieces(" ".join(source)), rows_of_pieces(" ".join(target))
    expected = sorted((p, q) for i, j in links for p in rows[i] for q in columns[j])
    assert sorted(map(tuple, np.frombuffer(linked, np.uint16).reshape(-1, 2).tolist())) == expected


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a b", r"f:7: expected 3 columns with tabs between \(source, target, links\), found 1"),
        ("a\tb\t0-0\t", r"f:7: .*found 4"),
        ("a b\tc\t0-0 0:0", "f:7: 0:0 is no link of 2 source words and 1 target word"),
        ("a b\tc\t2-0", "f:7: 2-0 is no link of 2 source words and 1 target word, counted from 0"),
        ("a b\tc\t0-1", "f:7: 0-1 is no link"),
        ("a b\tc\t-1-0", "f:7: -1-0 is no link"),
        ("a b\tc\t00-0", "f:7: 00-0 is no link"),
        ("a b\tc\t0-" + "9" * 5000, "f:7: 0-9+ is no link"),
        ("\t\t0-0", "f:7: 0-0 is no link of 0 source words"),
    ],
)
def test_wrong_lines_are_named(line: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        linked_pieces(TASK, line, "f:7")


def test_an_empty_line_of_text_has_no_links() -> None:
    assert linked_pieces(TASK, "\t\t", "f:7") == (hash((EOS, 2)), b"")


@pytest.fixture
def table(tiny_data: Path, tmp_path: Path) -> Path:
    """Links between all words of the training text and the other side's first word, compressed."""
    english, german = (
        (tiny_data.parent / f"train.{side}").read_text().splitlines() for side in ("en", "de")
    )
    lines = (
        f"{s}\t{t}\t{' '.join(f'{i}-0' for i in range(len(s.split())))}\n"
        for s, t in zip(english, german, strict=True)
    )
    path = tmp_path / "table.tsv.gz"
    path.write_bytes(gzip.compress("".join(lines).encode()))
    return path


def guidance(table: Path, **more: Any) -> dict[str, Any]:
    return {"criterion": "guided_alignment", "alignment_file": str(table), **more}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alignment_file": ""}, "--criterion guided_alignment needs --alignment-file FILE"),
        ({"model": "gnmt", "num_layers": 2}, "--criterion guided_alignment is for Transformers"),
        ({"bpe_dropout": 0.1}, "--alignment-file cannot be used with --bpe-dropout"),
        (
            {"noise": "typos=0.1"},
            "--alignment-file cannot be used with --bpe-dropout, --unigram-sampling or --noise",
        ),
        ({"alignment_file": "/nowhere/x"}, "/nowhere/x: cannot read this file"),
    ],
)
def test_settings_that_cannot_be_used(
    settings: dict[str, Any], message: str, tiny_data: Path, tmp_path: Path, table: Path
) -> None:
    dropped = {"d_ff", "num_heads"} if "model" in settings else set()
    flags = {
        name: value
        for name, value in (TINY | guidance(table, **settings)).items()
        if name not in dropped
    }
    registry.discover()
    options = TrainOptions((str(tiny_data),), tmp_path / "run")
    with pytest.raises((UsageError, DataError), match=message):
        train(options, flags)
    assert not (tmp_path / "run").exists()


def test_a_file_of_another_text_is_refused(tiny_data: Path, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("a b\tc\t0-0\n")
    with pytest.raises(DataError, match=r"other: .*nmt prepare"):
        run(tiny_data, tmp_path / "run", **guidance(tmp_path / "other"))


def test_a_gpu_gets_padded_sentences(
    tiny_data: Path, tmp_path: Path, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which rows of real tokens are made of. The kernel does not see bins."""
    settings = guidance(
        table, compile=False, dropout=0.0, max_steps=2, log_every=1, alignment_weight=1.0
    )
    run(tiny_data, tmp_path / "padded", **settings)
    like_a_gpu(monkeypatch)
    run(tiny_data, tmp_path / "packed", **settings)
    for padded, packed in zip(
        *(metrics(tmp_path / name) for name in ("padded", "packed")), strict=True
    ):
        assert packed["loss"] == pytest.approx(padded["loss"], rel=1e-5)
        assert packed["loss"] > packed["nll"] + 0.1


def test_layers_that_are_computed_again_have_the_same_gradient(
    tiny_data: Path, tmp_path: Path, table: Path
) -> None:
    settings = guidance(table, dropout=0.3, max_steps=2, log_every=1, alignment_weight=1.0)
    run(tiny_data, tmp_path / "kept", **settings)
    run(tiny_data, tmp_path / "again", **settings, gradient_checkpointing=True)
    for plain, again in zip(*(metrics(tmp_path / name) for name in ("kept", "again")), strict=True):
        for name in ("loss", "gradient_norm"):
            assert again[name] == pytest.approx(plain[name], rel=1e-5)


def test_a_run_resumes_bit_for_bit(tiny_data: Path, tmp_path: Path, table: Path) -> None:
    settings = guidance(table, dropout=0.3, max_steps=6)
    run(tiny_data, tmp_path / "whole", **settings)
    run(tiny_data, tmp_path / "parts", **settings | {"max_steps": 4})
    run(tiny_data, tmp_path / "parts", **settings)
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepared lines of four letters that are copied."""
    folder = tmp_path_factory.mktemp("copied")
    random = np.random.default_rng(1)
    lines = [
        "".join(f"{word} " for word in random.choice(list(LETTERS), 4)).strip() + "\n"
        for _ in range(600)
    ]
    for side in ("en", "de"):
        (folder / f"train.{side}").write_text("".join(lines))
    registry.discover(homes=("tasks",))
    options = PrepareOptions(out=folder / "data", train=(str(folder / "train"),), workers=1)
    prepare(
        options, {"source_lang": "en", "target_lang": "de", "subwords": "none", "vocab_size": 12}
    )
    return folder


def test_attention_follows_the_links(copied: Path, tmp_path: Path, nmt: Callable[..., Any]) -> None:
    """Given in reverse order of a copy, so that nothing but the links asks for it.

    The option of translation agrees.
    """
    lines = (copied / "train.en").read_text().splitlines()
    table = tmp_path / "reversed.tsv"
    table.write_text("".join(f"{line}\t{line}\t0-3 1-2 2-1 3-0\n" for line in lines))
    settings = SIZES | {
        "d_model": 32,
        "num_layers": 2,
        "max_steps": 250,
        "warmup_steps": 30,
        "save_every": 250,
    }
    run(
        copied / "data",
        tmp_path / "run",
        **settings,
        dropout=0.0,
        **guidance(table, alignment_weight=1.0),
    )
    engine = nmt_cli.load([tmp_path / "run"] * 2, device="cpu").engine
    task = engine.task
    pairs = [(task.encode_source(line), task.encode_target(line)) for line in lines[:50]]
    expected = [(3, 0), (2, 1), (1, 2), (0, 3)]
    for line, pair, weights in zip(
        lines, pairs, Aligner(engine, None).weights(pairs), strict=False
    ):
        names = task.source_tokens(pair[0]), task.target_tokens(pair[1])
        assert weights.shape == (4, 4)
        assert links_of(weights, *names, line, line) == expected
    (tmp_path / "in").write_text(f"{lines[0]}\n")
    code, out, _ = nmt(
        *("translate", tmp_path / "run", "--input", tmp_path / "in", "--output", tmp_path / "out"),
        *("--alignments", tmp_path / "links", "--device", "cpu", "--prefix", tmp_path / "in"),
    )
    assert (code, out) == (0, "")
    assert (tmp_path / "links").read_text().split()[:4] == ["3-0", "2-1", "1-2", "0-3"]
