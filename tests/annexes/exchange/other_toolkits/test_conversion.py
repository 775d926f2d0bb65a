"""`nmt convert-command`: what it prints is a command of nmt, with the settings of the original."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.annexes.exchange.other_toolkits.conversion import (
    _SWITCHES,
    _is_flag,
    converted,
    quoted,
)
from nmt_cli.annexes.exchange.other_toolkits.reading import PROGRAMS, answers_for
from nmt_cli.cli import application
from nmt_cli.errors import UsageError
from nmt_cli.files.text import weighted
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


OPENNMT = """
data:
    corpus_1: {path_src: raw/train.en, path_tgt: raw/train.de, src_prefix: <news>}
    corpus_2: {path_src: raw/more.en.gz, path_tgt: raw/more.de.gz}
    valid: {path_src: raw/valid.en, path_tgt: raw/valid.de}
save_data: run/data
src_vocab: run/vocab
src_vocab_size: 16000
share_vocab: true
transforms: [sentencepiece, filtertoolong]
src_subword_model: joint.model
encoder_type: transformer
enc_layers: 6
dec_layers: 3
hidden_size: 256
position_encoding: true
share_embeddings: true
share_decoder_embeddings: true
optim: adam
learning_rate: 2
decay_method: noam
warmup_steps: 8000
batch_type: tokens
batch_size: 4096
accum_count: [4]
world_size: 2
dropout: [0.1]
average_decay: 0.0001
"""
EOLE = """
data:
    corpus_1: {path_src: train.src, path_tgt: train.trg}
    valid: {path_src: d.src, path_tgt: d.trg}
src_vocab: vocab
transforms_configs: {filtertoolong: {src_seq_length: 90}}
transforms: [onmt_tokenize, filtertoolong]
training: {optim: adam, learning_rate: 1e-3, train_steps: 60000, normalization: tokens,
    compute_dtype: bf16}
model:
    architecture: transformer
    layers: 4
    hidden_size: 128
    embeddings: {position_encoding_type: Rotary}
"""


def commands(text: str) -> list[str]:
    """Return the commands, which stand above the comments."""
    lines = text.splitlines()
    count = sum(line.startswith("nmt ") for line in lines)
    assert all(line.startswith("nmt ") for line in lines[:count])
    assert all(line.startswith("# ") for line in lines[count:])
    return lines[:count]


def written(tmp_path: Path, content: str) -> str:
    path = tmp_path / "settings.yaml"
    path.write_text(content, encoding="utf-8")
    return str(path)


def parsed(line: str) -> dict[str, Any]:
    """Return the values of the flags that `nmt` reads."""
    words = shlex.split(line)
    assert words[0] == "nmt"
    command: Any = typer.main.get_command(application(words[1:])).commands[words[1]]  # type: ignore[attr-defined]
    values: dict[str, Any] = command.make_context(words[1], words[2:]).params
    return {name.rpartition(".")[2]: value for name, value in values.items()}


@pytest.mark.parametrize("line", LINES)
def test_our_parser_accepts_the_command(line: str) -> None:
    for command in commands(converted(line)):
        parsed(command)


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
    for command in commands(text):
        parsed(command)
    assert "--batch-tokens 8192 " in text
    assert "--warmup-steps 3000 --peak-learning-rate 0.0005 " in text
    assert "--num-layers 6 " in text
    assert "--num-decoder-layers 3 " in text
    assert "--attention-dropout 0.1 " in text
    assert "--norm pre " in text
    assert "#   encoder.layer-norm pre" in text.splitlines()
    assert "--patience" not in text


def test_joeynmt_text_and_search(tmp_path: Path) -> None:
    data = "{src: de, trg: en, train: t/train, dev: t/dev, level: bpe, lowercase: true}"
    content = JOEYNMT.replace("{src: {lang: de}, trg: {lang: en}}", data)
    content += "testing: {beam_size: 5, alpha: 1.0}\n"
    prepare, _, translate = commands(converted(written(tmp_path, content)))
    assert "--source-lang de --target-lang en " in prepare
    assert "--train t/train --valid t/dev " in prepare
    assert "--subwords none " in prepare
    assert "--lowercase --separate-vocabularies" in prepare
    assert translate == "nmt translate RUN --alpha 1 --beam 5"


@pytest.mark.parametrize(
    ("schedule", "flags"),
    [
        ("warmupinversesquareroot", "--warmup-steps 3000 --peak-learning-rate 0.0005 "),
        ("noam", "--warmup-steps 3000 --learning-rate-scale 1 "),
        ("plateau", "--schedule constant --learning-rate 0.0005 "),
    ],
)
def test_schedules_of_joeynmt(tmp_path: Path, schedule: str, flags: str) -> None:
    content = JOEYNMT.replace("warmupinversesquareroot", schedule)
    text = converted(written(tmp_path, content))
    assert flags in text
    assert "--patience" not in text


def test_opennmt(tmp_path: Path) -> None:
    text = converted(written(tmp_path, OPENNMT))
    prepare, train = commands(text)
    pairs = shlex.split(prepare)
    sources = [pairs[i + 1] for i, word in enumerate(pairs) if word == "--train-source"]
    targets = [pairs[i + 1] for i, word in enumerate(pairs) if word == "--train-target"]
    assert (sources, targets) == (
        ["raw/train.en", "raw/more.en.gz"],
        ["raw/train.de@<news>", "raw/more.de.gz"],
    )
    assert "--source-lang en " in prepare
    assert "--target-lang de " in prepare
    assert "--max-words 192 " in prepare
    assert "--subwords unigram --vocab-size 16000" in prepare
    assert "--separate-vocabularies" not in prepare
    assert train.startswith("nmt train run/data ")
    values = parsed(train)
    expected = {
        "batch_tokens": 2 * 4 * 4096,
        "learning_rate_scale": 2.0,
        "warmup_steps": 8000,
        "num_layers": 6,
        "num_decoder_layers": 3,
        "norm": "pre",
        "dropout": 0.1,
        "feed_forward_dropout": 0.1,
        "attention_dropout": 0.1,
        "label_smoothing": 0.0,
        "beta2": 0.999,
        "epsilon": 1e-8,
        "output_bias": True,
        "positions": "sinusoidal",
        "ema_decay": 0.9999,
    }
    assert values | expected == values
    assert "--clip-norm" not in train
    assert "max-grad-norm 5: it clips the gradient of a loss divided by sentences" in text
    assert "#   attention-dropout 0.1" in text.splitlines()


def test_version_2_of_opennmt_has_biases_and_another_epsilon(tmp_path: Path) -> None:
    text = converted(written(tmp_path, OPENNMT.replace("hidden_size", "rnn_size")))
    values = parsed(commands(text)[1])
    assert (values["epsilon"], values["attention_biases"], values["d_model"]) == (1e-9, True, 256)


def test_eole(tmp_path: Path) -> None:
    text = converted(written(tmp_path, EOLE))
    prepare, train = commands(text)
    assert "--max-words 90 " in prepare
    assert "--subwords bpe --vocab-size 32768 --separate-vocabularies" in prepare
    values = parsed(train)
    expected = {
        "num_layers": 4,
        "d_model": 128,
        "attention": "rotary",
        "positions": "none",
        "clip_norm": 5.0,
        "precision": "bfloat16",
        "max_steps": 60000,
        "learning_rate": 1e-3,
    }
    assert values | expected == values
    assert "rates fall by steps from update 50000 on" in text
    assert "train.src does not name the language" in text


def test_a_command_line_and_its_configuration(tmp_path: Path) -> None:
    path = written(tmp_path, OPENNMT)
    line = f"onmt_train -config {path} -world_size 1 -accum_count 1 -seed 7"
    assert "--batch-tokens 4096 " in converted(line)
    assert len(commands(converted(f"onmt_build_vocab -config {path} -n_sample 500"))) == 1
    assert "--sample-pairs 500" in converted(f"onmt_build_vocab -config {path} -n_sample 500")
    eole = written(tmp_path, EOLE)
    assert "--d-model 128 " in converted(f"eole train -c {eole}")
    assert "none.yml: no such file" in converted("marian-decoder -c none.yml")


@pytest.mark.parametrize(
    ("line", "flags"),
    [
        ("onmt_translate -model a.pt b.pt -src s", "a.pt b.pt --alpha 1 --input s --beam 5 "),
        ("onmt_translate -model a -src s -length_penalty none", "a --alpha 0 --input s --beam 5 "),
        ("onmt_translate -model a -length_penalty wu -alpha 0.9", "a --alpha 0.9 --beam 5"),
        ("marian-decoder -m a.npz b.npz -n 0.6 -b 4", "a.npz b.npz --beam 4 --alpha 0.6"),
        ("marian-decoder --beam-size 6", "RUN --beam 6 --alpha 0"),
    ],
)
def test_translation(line: str, flags: str) -> None:
    (command,) = commands(converted(line))
    assert f"nmt translate {flags}" in f"{command} "
    parsed(command)


@pytest.mark.parametrize(
    ("path", "language"),
    [("a/corpus.bpe.en", "en"), ("c.de-en.zh_CN.gz", "zh_CN"), ("x.cs.dev", "cs"), ("x.$L", "$L")],
)
def test_language_of_a_file(path: str, language: str) -> None:
    prepare = commands(converted(f"marian --train-sets {path} b.txt"))[0]
    assert shlex.split(prepare)[5] == language


def test_marian_text_and_search() -> None:
    sets = "--train-sets c.{en,de} --valid-sets v.en v.de --vocabs v.spm v.spm"
    line = f"marian --type transformer {sets} --dim-vocabs 8000 8000 --beam-size 6 --normalize 0.6"
    prepare, _, translate = commands(converted(line))
    assert "--train-source c.en --source-lang en --train-target c.de " in prepare
    assert "--valid-source v.en --valid-target v.de " in prepare
    assert "--max-words 50 " in prepare
    assert prepare.endswith("--subwords unigram --vocab-size 8000")
    assert translate == "nmt translate RUN --beam 6 --alpha 0.6"
    split = commands(converted(f"{MARIAN} --vocabs a.yml b.yml"))[0]
    assert "--subwords none " in split
    assert "--separate-vocabularies" in split


@pytest.mark.parametrize(
    ("flags", "clips"),
    [
        ("--cost-type ce-mean-words --clip-norm 5", True),
        ("--clip-norm 5", False),
        ("--normalize-gradient --clip-norm 5", True),
        ("--cost-type ce-mean-words --clip-norm 0", False),
    ],
)
def test_marian_clips_the_gradient_of_a_sum(flags: str, clips: bool) -> None:
    assert ("--clip-norm 5 " in converted(f"{MARIAN} {flags}")) == clips


def test_marian_weight_decay_and_pre_norm() -> None:
    text = converted(
        f"{MARIAN} -l 2e-4 --optimizer-params 0.9 0.98 1e-9 0.01 --transformer-preprocess n"
    )
    values = parsed(commands(text)[1])
    assert (values["optimizer"], values["weight_decay"], values["norm"]) == ("adamw", 0.01, "pre")
    assert (values["schedule"], values["learning_rate"]) == ("constant", 2e-4)


def test_fairseq_decays_until_the_last_update() -> None:
    line = "fairseq-train bin --lr-scheduler polynomial_decay --max-update 900 --power 2"
    text = converted(line)
    assert "--schedule linear_decay --decay-steps 900 " in text
    assert "power 2: the decay is linear here" in text


def test_other_commands() -> None:
    prepare = converted("fairseq-preprocess -s en -t de --trainpref 'a b' --destdir d")
    assert "--separate-vocabularies --train 'a b' --out d " in prepare
    translate = converted("fairseq-generate d --path run --lenpen 0.6 --gen-subset test")
    assert translate.startswith("nmt translate run --alpha 0.6 --test --beam 5\n")
    assert "divides by length^X" in translate


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("marian -c none --cost-type perplexity --clip-norm 1", "a loss divided by perplexity"),
        ("marian --optimizer-params 0.8", "--beta1 0.8 --beta2 0.999 --epsilon 1e-8"),
        ("marian --optimizer-params 0.9 0.98 1e-9 0.1", "--weight-decay 0.1"),
        (
            "onmt_train -decay_method rsqrt -warmup_steps 0 -learning_rate 2",
            "--peak-learning-rate 2",
        ),
        ("onmt_train -decay_method none -train_steps x", "--schedule constant"),
        ("onmt_train -position_encoding -position_encoding_type Learned", "--positions learned"),
        ("onmt_train", "#   separate source embeddings"),
    ],
)
def test_rare_values(line: str, text: str) -> None:
    assert text in converted(line)


WEIGHTED = """
data:
    a: {path_src: DIR/a.en, path_tgt: DIR/a.de, weight: 2}
    b: {path_src: DIR/b.en, path_tgt: DIR/b.de}
train_steps: 2e5
src_vocab: v
"""


def test_weights_of_corpora_with_sizes_that_are_not_known(tmp_path: Path) -> None:
    path = tmp_path / "my model.yaml"
    path.write_text(WEIGHTED, encoding="utf-8")
    text = converted(str(path))
    assert "--train-target DIR/a.de --train-target DIR/b.de " in text
    assert "a 2, b 1: pairs drawn in turn there" in text


def test_the_share_of_a_corpus_in_an_epoch(tmp_path: Path) -> None:
    """Two pairs of `a` are drawn with one of `b` there, whatever their sizes."""
    sizes = {"a": 10, "b": 40}
    for name, size in sizes.items():
        (tmp_path / f"{name}.en").write_text("line\n" * size, encoding="utf-8")
    text = converted(written(tmp_path, WEIGHTED.replace("DIR", str(tmp_path))))
    words = shlex.split(commands(text)[0])
    places = [words[i + 1] for i, word in enumerate(words) if word == "--train-target"]
    weights = {Path(path).stem: weight for path, weight in map(weighted, places)}
    assert weights["a"] * sizes["a"] == 2 * weights["b"] * sizes["b"]


@pytest.mark.parametrize("weight", ["0", "x", "-1"])
def test_a_weight_that_is_no_number_of_pairs(tmp_path: Path, weight: str) -> None:
    for name in ("a.en", "b.en"):
        (tmp_path / name).write_text("line\n", encoding="utf-8")
    content = WEIGHTED.replace("DIR", str(tmp_path)).replace("weight: 2", f"weight: {weight}")
    assert f"a {weight}, b 1: pairs drawn in turn there" in converted(written(tmp_path, content))


def test_a_whole_number_in_scientific_notation(tmp_path: Path) -> None:
    values = parsed(commands(converted(written(tmp_path, WEIGHTED)))[1])
    assert values["max_steps"] == 200_000


@pytest.mark.parametrize(
    ("settings", "activation", "gated"),
    [
        ("model: {mlp_activation_fn: gated-silu}", "swish", True),
        ("model: {mlp_activation_fn: gated-gelu}", "gelu", True),
        ("model: {mlp_activation_fn: silu}", "swish", False),
        ("model: {mlp_activation_fn: relu}", "relu", False),
        ("pos_ffn_activation_fn: silu\nsave_model: m\ntrain_steps: 1", "swish", True),
        ("pos_ffn_activation_fn: gated-gelu\nsave_model: m\ntrain_steps: 1", "gelu", True),
        ("pos_ffn_activation_fn: gelu\nsave_model: m\ntrain_steps: 1", "gelu", False),
    ],
)
def test_feed_forward_layers_of_opennmt(
    tmp_path: Path, settings: str, activation: str, gated: bool
) -> None:
    content = f"data: {{c: {{path_src: a.en, path_tgt: a.de}}}}\n{settings}\n"
    if settings.startswith("model"):
        content += "training: {train_steps: 5}\nsrc_vocab: v\n"
    text = converted(written(tmp_path, content))
    values = parsed(commands(text)[1])
    assert (values["activation"], bool(values["gated_feed_forward"])) == (activation, gated)
    assert ("no biases there" in text) == (not gated)


def test_biases_of_gated_layers_are_lost() -> None:
    line = "onmt_train -pos_ffn_activation_fn gated-gelu -add_ffnbias"
    assert "#   biases of gated feed-forward layers" in converted(line).splitlines()


@pytest.mark.parametrize(
    "line", ["fairseq-train bin --activation-fn tanh", f"{MARIAN} --transformer-ffn-activation x"]
)
def test_an_activation_that_is_not_known_here(line: str) -> None:
    text = converted(line)
    assert "--activation " not in text
    assert ": relu is written" in text


def test_paths_with_spaces_in_a_command_line() -> None:
    line = "marian-decoder -m 'my models/a.npz' b.npz -i 'my text.en'"
    words = shlex.split(commands(converted(line))[0])
    assert words[2:4] == ["my models/a.npz", "b.npz"]
    assert words[words.index("--input") + 1] == "my text.en"
    assert "--out ~/'my run' " in converted("fairseq-train bin --save-dir '~/my run'")


PATHS = st.text("ab $'\"*?;&|<>(){}#~/\\.", min_size=1)


@given(PATHS, PATHS)
def test_a_shell_reads_the_paths_of_a_list_back(source: str, target: str) -> None:
    with TemporaryDirectory() as folder:
        content = f"type: transformer\ntrain-sets: {json.dumps([source, target])}\n"
        words = shlex.split(commands(converted(written(Path(folder), content)))[0])
    assert words[words.index("--train-source") + 1] == source
    assert words[words.index("--train-target") + 1] == target


@given(PATHS)
def test_a_shell_reads_a_path_back(path: str) -> None:
    with TemporaryDirectory() as folder:
        content = f"data: {{c: {{path_src: {json.dumps(path)}, path_tgt: t}}}}\nsrc_vocab: v\n"
        words = shlex.split(commands(converted(written(Path(folder), content)))[0])
    assert words[words.index("--train-source") + 1] == path


@pytest.mark.parametrize(
    "content",
    [
        "data: {valid: {path_src: v.en, path_tgt: v.de}}\nsave_model: m\ntrain_steps: 5",
        "src_vocab: vocab.src\ntgt_vocab: vocab.tgt\nsrc_vocab_size: 8000",
        "type: transformer\ndim-emb: 256\nvalid-sets: [v.en, v.de]",
    ],
)
def test_settings_without_text_to_train_on(tmp_path: Path, content: str) -> None:
    text = converted(written(tmp_path, content))
    assert commands(text)[0].startswith("nmt train DATA ")


@pytest.mark.parametrize(
    "line", ["fairseq-preprocess -s en -t de --testpref t", "onmt_build_vocab -src_vocab v"]
)
def test_text_is_not_prepared_without_text_to_train_on(line: str) -> None:
    with pytest.raises(UsageError, match=f"^{line.split()[0]}: there is no training text"):
        converted(line)


@pytest.mark.parametrize(
    "line",
    [
        "onmt_translate -model a.pt -src s",
        "marian-decoder -m a.npz",
        "marian-decoder --models a.npz b.npz",
        "fairseq-interactive bin --path a.pt",
    ],
)
def test_models_of_other_programs_are_imported_first(line: str) -> None:
    assert "`nmt import` makes one of a model of " in converted(line)


SCRIPT = """#!/bin/bash
# fairseq-train bin --arch none
export CUDA_VISIBLE_DEVICES=0,1
if [ ! -e $FAIRSEQ/train.py ]; then mkdir marian; exit 1; fi
fairseq-preprocess -s en -t de --trainpref a --nwordstgt 8000 --destdir bin > log
OMP_NUM_THREADS=1 fairseq-train bin \\
    --arch transformer --max-tokens 1000 2>&1 --patience 3 | tee train.log
cat b | fairseq-interactive bin --path a.pt < b > c
"""


def test_a_script() -> None:
    lines = converted(SCRIPT).splitlines()
    prepare, train, translate = [line for line in lines if not line.startswith("#")]
    assert "--vocab-size 8000 " in prepare
    assert "--batch-tokens 2000 " in train
    assert "--patience 3 " in train
    assert translate == "nmt translate a.pt --alpha 1 --beam 5"


def test_processes_of_a_launcher() -> None:
    launcher = "python -m torch.distributed.launch --nproc_per_node=8 $(which fairseq-train) bin"
    assert "--batch-tokens 800 " in converted(f"{launcher} --max-tokens 100")


@pytest.mark.parametrize(
    ("line", "flags"),
    [
        ("fairseq-train bin --max-epoch 0 --max-update 0", "--max-steps 100000000 "),
        ("fairseq-train bin --tensorboard-logdir logs", "--tensorboard "),
        ("fairseq-generate bin --path run", "--test "),
        (f"{MARIAN} --valid-metrics cross-entropy bleu-detok", "--best-by loss,bleu "),
        (f"{MARIAN} --valid-metrics chrf perplexity", "--best-by chrf,loss "),
        (f"{MARIAN} --model m/model.npz", "--out m/model "),
        (f"{MARIAN} --dim-vocabs 9000 8000", "--vocab-size 8000 "),
        (f"{MARIAN} --right-left --precision float16 float32", "--precision float16 "),
        ("marian --type transformer --tsv --train-sets stdin", "prepare --train - "),
        ("marian-decoder -m a --n-best -b4 -n0.6", "--beam 4 --alpha 0.6 --nbest 4 "),
        ("python -m fairseq_cli.train bin --max-epoch 5", "--max-epochs 5 "),
        ("fairseq-train bin --store-ema", "--ema-decay 0.9999 "),
        ("fairseq-train bin --store-ema --ema-decay 0.9", "--ema-decay 0.9 "),
        ("marian-decoder -m a --max-length 99 --max-length-crop", "--max-source-length 99"),
        ("onmt_train -self_attn_type scaled-dot", "--num-heads 8"),
        (
            "fairseq-generate bin --path run --sampling --replace-unk",
            "translate run --alpha 1 --test --sample ",
        ),
        ("marian-decoder -m a --output-sampling", "--alpha 0 --sample "),
        (
            "marian-decoder -m a --output-sampling topk 10 0.5",
            "--sample --top-k 10 --temperature 0.5 ",
        ),
        ("marian-decoder -m a --output-sampling full 0.7", "--sample --temperature 0.7 "),
    ],
)
def test_values_that_change(line: str, flags: str) -> None:
    text = converted(line)
    assert flags in text.replace("\n", " \n")
    for command in commands(text):
        parsed(command)


@pytest.mark.parametrize("command", ["prepare", "train", "translate"])
def test_only_flags_of_ours_that_take_one_get_a_value(command: str) -> None:
    others = ["--attention", "relative", "--optimizer", "adamw"] if command == "train" else []
    group: Any = typer.main.get_command(application([command, *others]))
    known = {flag: option for option in group.commands[command].params for flag in option.opts}
    for program in PROGRAMS.values():
        answers = answers_for(program, command).values() if command in program["commands"] else ()
        for flag in " ".join(filter(_is_flag, answers)).split():
            assert getattr(known[flag], "is_flag", False) == (flag in _SWITCHES), flag


@pytest.mark.parametrize(
    ("line", "remark"),
    [
        ("fairseq-generate bin --sampling", "samples have no --beam"),
        ("fairseq-train bin --lr 1e-3,5e-4", "lr 1e-3,5e-4: the first value is taken"),
        ("fairseq-interactive bin --constraints", "constraints ordered: --glossary FILE"),
        ("marian-decoder -m a b --weights 0.3 0.7", "weights 0.3"),
    ],
)
def test_remarks(line: str, remark: str) -> None:
    text = converted(line)
    assert remark in text
    for command in commands(text):
        parsed(command)


def test_a_second_source_of_marian() -> None:
    text = converted("marian --type multi-transformer --train-sets a.en a.fr a.de")
    assert "#   train-sets: a source beside a.en" in text.splitlines()


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("type: transformer\nexponential-smoothing: true\n", "--ema-decay 0.9999 "),
        ("learn-rate: 0.0003\nvalid-freq: 3000\n", "--validate-every 3000 "),
        ("models: [my model.npz]\nvocabs: [a.spm, a.spm]\n", "nmt translate 'my model.npz' "),
    ],
)
def test_files_of_marian(tmp_path: Path, content: str, text: str) -> None:
    assert text in converted(written(tmp_path, content))


DEFAULTS_OF_MARIAN = """
after-epochs: 0
dec-cell: gru
dim-vocabs: [0, 0]
guided-alignment: none
lr-decay-strategy: epoch+stalled
sentencepiece-options: ""
transformer-ffn-depth: 2
transformer-tied-layers: []
type: transformer
ulr-dim-emb: 0
word-penalty: 0
"""


def test_defaults_that_marian_writes_are_not_remarks(tmp_path: Path) -> None:
    text = converted(written(tmp_path, DEFAULTS_OF_MARIAN))
    for name in DEFAULTS_OF_MARIAN.replace(":", "").split():
        assert f"#   {name} " not in text
    parsed(commands(text)[0])


def test_settings_of_joeynmt_that_were_not_converted(tmp_path: Path) -> None:
    content = JOEYNMT.replace("eval_metric: bleu", "early_stopping_metric: eval_metric")
    content = content.replace("training:", "training:\n    eval_metric: chrf")
    content = content.replace("num_layers: 6,", "num_layers: 6, freeze: true,", 1)
    content = content.replace("{lang: en}", "{lang: en, level: word, tokenizer_cfg: {alpha: 0.1}}")
    content += "testing: {n_best: 3, max_output_length: 90, no_repeat_ngram_size: -1}\n"
    text = converted(written(tmp_path, content))
    assert "--best-by chrf " in text
    assert "--nbest 3 --max-length 90" in text
    assert "--no-repeat-ngram" not in text
    assert "#   encoder.freeze: `--freeze encoder`" in text.splitlines()
    assert "#   trg.alpha 0.1: --unigram-sampling or --bpe-dropout" in text.splitlines()


def test_the_limit_of_a_vocabulary_of_joeynmt(tmp_path: Path) -> None:
    data = "{src: de, trg: en, train: t, level: word, src_voc_limit: 900, src_voc_min_freq: 1}"
    content = JOEYNMT.replace("{src: {lang: de}, trg: {lang: en}}", data)
    assert "--vocab-size 900 " in converted(written(tmp_path, content))


def test_unknown_flags_have_a_line() -> None:
    assert "#   frob 1: not known" in converted("fairseq-train bin --frob 1").splitlines()


@pytest.mark.parametrize(
    "line",
    [
        "",
        "frob",
        "fairseq-train bin --lr",
        "fairseq-train '",
        "no.yaml",
        "onmt_train -config no.yaml",
    ],
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
