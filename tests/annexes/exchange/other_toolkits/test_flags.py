from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest
import typer

from nmt_cli.annexes.exchange.other_toolkits.flags import HINTS, answers
from nmt_cli.cli import application
from nmt_cli.presets import PRESETS

Nmt = Callable[..., tuple[int, str, str]]
DOCS = Path(__file__).parents[4] / "docs"
IMPLICIT = "--nproc-per-node"  # a flag of torchrun


@pytest.mark.parametrize("command", HINTS)
def test_the_flags_and_presets_offered_exist(command: str) -> None:
    words = (
        [command, "--attention", "relative", "--schedule", "cosine"]
        if command == "train"
        else [command]
    )
    known = flags_of(*words)
    for answer in HINTS[command].values():
        flags_here = answer
        for other, text in re.findall(r"`(?:nmt|torchrun .* -m nmt_cli) ([^\s`]+)([^`]*)`", answer):
            assert flags_in(text) <= flags_of(other)
            flags_here = flags_here.replace(f"nmt {other}{text}", "")
        assert flags_in(flags_here) - {IMPLICIT} <= known
        assert set(re.findall(r"\btransformer_(?:base|big)\b", answer)) <= PRESETS.keys()


def flags_in(text: str) -> set[str]:
    return set(re.findall(r"--[a-z][a-z0-9-]+", text))


def flags_of(*words: str) -> set[str]:
    """Return the flags of the command that `words` call, hidden ones too."""
    commands: Any = typer.main.get_command(application(words))
    parameters: list[Any] = commands.commands[words[0]].params
    return {name for param in parameters for name in [*param.opts, *param.secondary_opts]}


def test_the_tables_of_the_page_are_those_of_the_messages() -> None:
    page = (DOCS / "reference" / "flags.md").read_text(encoding="utf-8")
    assert page == run_path(str(DOCS / "coming_from.py"))["with_tables"](page)
    assert all(f"<!-- begin {name}.tsv -->" in page for name in HINTS)


def test_a_flag_has_the_answer_of_each_program() -> None:
    table = "here\tA\tB\n--pan\t-p --big_pan\t\n--pot\t\t--big-pan\nnothing: it is warm\t\t--heat\n"
    both = "A: use --pan; B: use --pot"
    assert answers(table) == {"p": "use --pan", "big-pan": both, "heat": "nothing: it is warm"}


IWSLT = """data --arch transformer_iwslt_de_en --share-decoder-input-output-embed --optimizer adam
    --adam-betas '(0.9, 0.98)' --clip-norm 0.0 --lr 5e-4
    --lr-scheduler inverse_sqrt --warmup-updates 4000
    --dropout 0.3 --weight-decay 0.0001
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1
    --max-tokens 4096 --eval-bleu --eval-bleu-args '{"beam": 5}'
    --eval-bleu-detok moses --eval-bleu-remove-bpe
    --best-checkpoint-metric bleu --maximize-best-checkpoint-metric --lenpen -0.5 --srcdict dict"""


def test_all_unknown_flags_of_a_line_are_answered_at_once(nmt: Nmt) -> None:
    code, out, err = nmt("train", *shlex.split(IWSLT), "--max-epochz", "3", "--frobnicate")
    assert (code, out) == (2, "")
    answered = dict(re.findall(r"^  (-\S+): (.*)$", err, re.MULTILINE))
    known = flags_of("train")
    assert list(answered) == [
        word for word in shlex.split(IWSLT) if word[:2] == "--" and word not in known
    ] + [
        "--max-epochz",
        "--frobnicate",
    ]
    assert answered.pop("--frobnicate") == "unknown"
    assert answered.pop("--max-epochz") == "did you mean --max-epochs?"
    assert answered["--adam-betas"] == "use --beta1 and --beta2"
    assert answered["--lenpen"].endswith("`nmt translate --alpha X`")
    assert answered["--srcdict"] == "`nmt prepare`: use --subwords-from PATH"


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        (
            "train -learning_rate 2",
            "OpenNMT-py and eole: use --learning-rate-scale (the factor of noam)",
        ),
        (
            "train --learning_rate 2",
            "OpenNMT-py and eole: use --learning-rate-scale (the factor of noam)",
        ),
        ("train --learning_rate 2", "JoeyNMT, Hugging Face: use --peak-learning-rate"),
        ("train -valid_steps 3", "-valid_steps: use --validate-every"),
        ("train --lr=1", "--lr: use --peak-learning-rate"),
        ("train --fp16", "use --precision float16"),
        ("translate run -output text", "-output: use --output"),
        ("translate run --sample -b 3", "-b: use --beam"),
        ("serve run --beam-size 3", "use --beam"),
        ("score a --tokenize intl", "--metric sacrebleu-intl"),
        ("prepare --vocab_size 3 --model_prefix m", "--vocab_size: use --vocab-size"),
        ("average --num-epoch-checkpoints 5", "use --last"),
    ],
)
def test_answers(nmt: Nmt, line: str, answer: str) -> None:
    code, _, err = nmt(*line.split())
    assert (code, answer in err) == (2, True)
