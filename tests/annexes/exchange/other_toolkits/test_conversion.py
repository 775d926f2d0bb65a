"""`nmt convert-command`: what it prints is a command of nmt, with the settings of the original."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.annexes.exchange.other_toolkits.conversion import converted, quoted
from nmt_cli.cli import application
from nmt_cli.errors import UsageError
from nmt_cli.metrics.bleu import check_metric

Nmt = Callable[..., tuple[int, str, str]]
ADAM = "--optimizer adam --lr-scheduler inverse_sqrt --warmup-updates 4000"
MARIAN = "marian --type transformer --enc-depth 6 --dec-depth 6 --train-sets a.en a.de"
LINES = [
    f"fairseq-train bin --arch transformer_iwslt_de_en {ADAM} --lr 5e-4 --max-tokens 4096",
    f"CUDA_VISIBLE_DEVICES=0,1 fairseq-train bin -a transformer {ADAM} --lr 7e-4 --fp16",
    f"python fairseq_cli/train.py bin --arch transformer_wmt_en_de_big_t2t {ADAM} --lr 1e-3",
    f"fairseq-train bin --arch transformer_vaswani_wmt_en_de_big {ADAM} --patience 5 | tee log",
    "fairseq-train bin --arch transformer --optimizer adam --lr 1e-4 --weight-decay 0.01",
    "fairseq-train bin --lr-scheduler polynomial_decay --total-num-update 500 --eval-bleu",
    "fairseq-train bin --batch-size 64 --update-freq 2 --cpu --user-dir here --bf16",
    f"{MARIAN} --mini-batch-fit true -w 9000 --lr-warmup 16000 --lr-decay-inv-sqrt 16000",
    f"{MARIAN} --mini-batch 64 --optimizer-params 0.9 0.98 1e-09 --exponential-smoothing",
    f"{MARIAN} --mini-batch-words 4000 --devices 0 1 --after 20e --transformer-preprocess n",
    "marian --task transformer-base --after 100Ku --valid-metrics bleu --mini-batch-warmup 4000",
    "fairseq-train bin --label-smoothing 0.1 --keep-last-epochs 5 --no-epoch-checkpoints",
]
JOEYNMT = """
data: {src: {lang: de}, trg: {lang: en}}
training:
    scheduling: warmupinversesquareroot
    learning_rate: 0.0005
    learning_rate_warmup: 3000
    patience: 8
    batch_size: 2048
    batch_type: token
    batch_multiplier: 4
    use_cuda: True
    eval_metric: bleu
model:
    tied_softmax: True
    encoder: {type: transformer, num_layers: 6, hidden_size: 256, ff_size: 1024, num_heads: 4}
    decoder: {type: transformer, num_layers: 3, hidden_size: 256, ff_size: 1024, num_heads: 4}
"""


def parsed(line: str) -> dict[str, Any]:
    """Return the values of the flags that `nmt` reads in the first line."""
    words = shlex.split(line.partition("\n")[0])
    assert words[0] == "nmt"
    command: Any = typer.main.get_command(application(words[1:])).commands[words[1]]  # type: ignore[attr-defined]
    values: dict[str, Any] = command.make_context(words[1], words[2:]).params
    return {name.rpartition(".")[2]: value for name, value in values.items()}


@pytest.mark.parametrize("line", LINES)
def test_our_parser_accepts_the_command(line: str) -> None:
    text = converted(line)
    parsed(text)
    assert all(comment.startswith("# ") for comment in text.splitlines()[1:])


def test_absent_settings_have_the_values_of_fairseq() -> None:
    first, *comments = converted(LINES[0]).splitlines()
    assert "--label-smoothing 0 " in f"{first} "
    assert "--epsilon 1e-8 " in first
    assert "--beta2 0.999 " in first
    assert "--batch-tokens 4096 " in first
    assert "--peak-learning-rate 0.0005 " in first
    assert "--d-ff 1024 --num-heads 4 " in first
    assert "#   label-smoothing 0" in comments


def test_the_metric_of_the_best_checkpoint_is_known_here(tmp_path: Path) -> None:
    for name in ("bleu", "chrf"):
        path = tmp_path / f"{name}.yaml"
        measure = f"training:\n    early_stopping_metric: {name}\n"
        path.write_text(JOEYNMT.replace("training:\n", measure), "utf-8")
        assert f"--best-by {name} " in converted(str(path))
        check_metric(name, "en")


def test_marian_decay_that_starts_later() -> None:
    text = converted(f"{MARIAN} --learn-rate 4e-4 --lr-warmup 400 --lr-decay-inv-sqrt 100")
    assert "--warmup-steps 400 --peak-learning-rate 0.0002 " in text
    assert "--dropout 0 " in text
    assert "rates are the same from update 400 on" in text


def test_joeynmt(tmp_path: Path) -> None:
    path = tmp_path / "transformer.yaml"
    path.write_text(JOEYNMT, encoding="utf-8")
    text = converted(str(path))
    parsed(text)
    assert "--batch-tokens 8192 " in text
    assert "--warmup-steps 3000 --peak-learning-rate 0.0005 " in text
    assert "--num-layers 6 " in text
    assert "--num-decoder-layers 3 " in text
    assert "--attention-dropout 0.1 " in text
    assert "--patience" not in text


def test_other_commands() -> None:
    prepare = converted("fairseq-preprocess -s en -t de --trainpref 'a b' --destdir d")
    assert "--separate-vocabularies --train 'a b' --out d " in prepare
    translate = converted("fairseq-generate d --path run --lenpen 0.6 --gen-subset test")
    assert translate.startswith("nmt translate run --alpha 0.6 --test --beam 5\n")
    assert "divides by length^X" in translate


def test_unknown_flags_have_a_line() -> None:
    assert "#   frob 1: not known" in converted("fairseq-train bin --frob 1").splitlines()


@pytest.mark.parametrize(
    "line", ["", "frob", "fairseq-train bin --lr", "fairseq-train '", "no.yaml"]
)
def test_bad_input(line: str, nmt: Nmt) -> None:
    with pytest.raises(UsageError):
        converted(line)
    code, out, _ = nmt("convert-command", line)
    assert (code, out) == (2, "")


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0")))
def test_quoted_words_are_one_word(word: str) -> None:
    assert shlex.split(quoted(word)) == [word]


@given(st.text("ab$(){}`;'\"\\ -"))
def test_commands_of_a_shell_are_not_run(word: str) -> None:
    if "`" in word or "$(" in word:
        assert quoted(word).startswith("'")
