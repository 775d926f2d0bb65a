"""Growth of the time of nmt's training step with the tokens of the batch, their length, the vocabulary and the width.

    python -m benchmarks.training_growth [--out DIRECTORY]

From the small model, batches of 2,048 tokens, sentences of 32 tokens and a vocabulary of 8,000, one of these changes at
a time.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.samples import Sample, Spread, rates, spread
from benchmarks.study import Curve, Study, samples_of_nmt
from benchmarks.synthetic import SIZES, batches, equal_pairs
from benchmarks.training import PACKAGE


@dataclass(frozen=True)
class Point:
    """A case; one of its values changes along a curve."""

    tokens: int = 2048  # of a batch
    length: int = 32  # tokens of a sentence, its end included
    vocabulary: int = 8_000
    width: int = 256  # of the model; that of a head stays 64, that of the inner layer four times the model's


CURVES = {
    "tokens": Curve("tokens of a batch", (512, 1024, 2048, 4096, 8192, 16_384)),
    "length": Curve("tokens of a sentence", (8, 16, 32, 64, 128, 256, 512)),
    "vocabulary": Curve("entries of the vocabulary", (4_000, 8_000, 16_000, 32_000, 64_000)),
    "width": Curve("width of the model", (128, 256, 512, 1024)),
}
METHOD = """
The small model (3 + 3 layers, width 256), random weights. Time of an update: medians over the rounds, with the
quartiles in brackets. Unless it changes: 2,048 tokens, sentences of 32 tokens, a vocabulary of 8,000, inner layers of
four times the width. In the figure a dotted line is growth in proportion.
"""


def measure(options: argparse.Namespace, point: Point) -> list[Sample]:
    """Return the samples of a point. Raises WorkerError if a training fails."""
    width = point.width
    size = dataclasses.replace(
        SIZES["small"], vocabulary=point.vocabulary, width=width, inner=4 * width, heads=width // 64
    )
    pairs = batches(equal_pairs(point.tokens // point.length, point.length - 1, point.vocabulary), point.tokens, 1)
    setup = {**dataclasses.asdict(size), "cores": options.cores, "tokens": point.tokens, "pairs": pairs}
    return samples_of_nmt(options, point, setup, lambda _: {"seconds": options.seconds}, PACKAGE)


def times(samples: Sequence[Sample], point: Point, system: str) -> Spread:
    """Return the milliseconds of an update of the point's tokens."""
    return spread([1000 * point.tokens / rate for rate in rates(samples, dataclasses.asdict(point), system).values()])


STUDY = Study("training-growth", "Time of an update", "ms for an update", METHOD, CURVES, Point(), measure, times)


if __name__ == "__main__":
    STUDY.run(__doc__, ["float32", "bfloat16"], rounds=3, seconds=2.0)
