"""The text, corpus, trained model, commands and look of plots that the chapters share."""

from __future__ import annotations

import itertools
import os
import random
import shlex
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import torch
from matplotlib_inline.backend_inline import set_matplotlib_formats
from torch import Tensor

from nmt_cli import registry
from nmt_cli.layers.settings import FullAttentionConfig
from nmt_cli.models.settings import TransformerConfig

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
WORK = Path(os.environ.get("NMT_BOOK") or tempfile.mkdtemp(prefix="nmt-book-"))
"""The directory of all files that the chapters make; one build of the site is one directory."""

SIZES = "--num-layers 2 --d-model 64 --d-ff 128 --num-heads 4"
SMALL = (
    f"{SIZES} --batch-tokens 1024 --warmup-steps 100 --learning-rate-scale 0.5 "
    "--log-every 50 --device cpu"
)
"""Flags of `nmt train` for a model that learns number names in a quarter of a minute."""

torch.set_num_threads(1)  # models this small gain nothing from more

GRAY = "#808080"  # legible on a white page and on a black one
plt.rcParams.update(
    {
        "figure.figsize": (7.5, 3),
        "figure.facecolor": "none",
        "axes.facecolor": "none",
        "savefig.facecolor": "none",
        "legend.frameon": False,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.prop_cycle": plt.cycler(color=["#3b8fd6", "#e07b39", "#4aa564", "#b36ad4"]),
        "svg.hashsalt": "book",  # the same plot has the same bytes
        **dict.fromkeys(
            ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), GRAY
        ),
    }
)
set_matplotlib_formats("svg")


def nmt(line: str, last: int = 100) -> None:
    """Run `nmt LINE` in `WORK` and print the command and the `last` lines of what it wrote.

    Raises:
        RuntimeError: the command failed; the message is its output.
    """
    print("$ nmt", " \\\n    ".join(textwrap.wrap(line, 90, break_on_hyphens=False)))
    command = [sys.executable, "-m", "nmt_cli", *shlex.split(line)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TERM": "dumb"}
    environment.pop("FORCE_COLOR", None)  # Jupyter sets it
    done = subprocess.run(
        command,
        cwd=WORK,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(done.stdout)
    print("\n".join(done.stdout.rstrip().split("\n")[-last:]))


def number_names() -> Path:
    """Write {train,valid,test}.{en,de}, the names of numbers below 10,000, to `WORK`.

    Files that are there stay. All numbers below 100 are in the training text, because the others
    are composed of them.
    """
    if not (WORK / "test.de").exists():
        sys.path.insert(0, str(RECIPES))
        from number_names import name

        generator = random.Random(1)
        drawn = [
            *generator.sample(range(100, 1000), 700),
            *generator.sample(range(1000, 10_000), 2700),
        ]
        generator.shuffle(drawn)
        splits = {
            "train": [*drawn[400:], *range(100)],
            "valid": drawn[:200],
            "test": drawn[200:400],
        }
        for split, language in itertools.product(splits, ("en", "de")):
            text = "".join(f"{name(n, language)}\n" for n in splits[split])
            (WORK / f"{split}.{language}").write_text(text, encoding="utf-8")
    return WORK


def prepared() -> Path:
    """Prepare the number names as chapter 1 does, unless that is done; return the directory."""
    if not (WORK / "data").exists():
        number_names()
        nmt(PREPARE, last=0)
    return WORK / "data"


PREPARE = (
    "prepare --source-lang en --target-lang de --train train --valid valid --test test "
    "--vocab-size 120 --out data"
)


def trained() -> Path:
    """Train a small model on the number names, unless that is done; return the run."""
    if not (WORK / "run").exists():
        prepared()
        nmt(TRAIN, last=0)
    return WORK / "run"


TRAIN = f"train data --out run {SMALL} --max-steps 300 --save-every 20 --validate-every 100"


def transformer(vocabulary_size: int, **sizes: Any) -> Any:
    """Return a Transformer with new weights.

    `sizes` are fields of `TransformerConfig`, by default the base model's.
    """
    return registry.build(
        TransformerConfig(**sizes),
        attention=FullAttentionConfig(),
        source_vocabulary_size=vocabulary_size,
        target_vocabulary_size=vocabulary_size,
        shared_vocabulary=True,
    )


registry.discover()


def heat_map(
    axes: Any, weights: Tensor, rows: Sequence[str], columns: Sequence[str], title: str = ""
) -> None:
    """Draw `weights` [rows, columns] as a matrix, 0 dark and 1 bright."""
    axes.imshow(weights, vmin=0, vmax=1, cmap="viridis", aspect="auto")
    axes.set_xticks(range(len(columns)), columns, rotation=90)
    axes.set_yticks(range(len(rows)), rows)
    axes.set_title(title, fontsize=10)
