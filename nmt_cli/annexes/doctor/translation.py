"""The time and the cost of a translation, projected from some of its lines."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path

from nmt_cli.annexes.doctor.machine import Check, projected
from nmt_cli.data.vocabulary import SPACE
from nmt_cli.decoding.loading import load_translator
from nmt_cli.decoding.options import TranslateOptions
from nmt_cli.files.text import read_lines
from nmt_cli.interfaces import SPECIAL_SYMBOLS

FEWEST_LINES = 64  # in the first measurement
WORDS = 25  # of a made-up line, and tokens of its output
SECONDS = 15.0


def translation(
    checkpoints: Sequence[Path], device: str, number: int, text: Path | None, price: float | None
) -> Check:
    """Translate lines of `text` or made-up ones, as `nmt translate` does, and project `number`.

    Twice as many lines are translated until a measurement ends late. The first ones prepare a GPU.
    """
    options = TranslateOptions()
    if text is None:
        options = TranslateOptions(min_length=WORDS, max_length=WORDS)
    translator = load_translator(checkpoints, options, device=device, scores=False)
    draw = random.Random(1)
    if text is None:
        task = translator.task
        entries = task.source_tokens(range(len(SPECIAL_SYMBOLS), task.source_vocabulary_size))
        words = [entry.replace(SPACE, "") for entry in entries]
        lines = [" ".join(draw.choices(words, k=WORDS)) for _ in range(translator.read_ahead)]
    else:
        lines = list(read_lines(text)) or [""]
        draw.shuffle(lines)
    end = time.perf_counter() + SECONDS
    count = FEWEST_LINES
    with translator.engine.workers(translator, None) as workers:
        while True:
            sample = lines[:count]
            start = time.perf_counter()
            translator.translate_window(sample, workers=workers)
            seconds = time.perf_counter() - start
            if start + seconds > end:
                break
            count = min(2 * count, translator.read_ahead)
    rate = len(sample) / seconds
    value = f"{number:,} lines, {rate:,.3g} a second"
    return projected("translation", value, number / rate, 1, price, lines_per_second=rate)
