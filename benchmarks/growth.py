"""Growth of nmt's time for a sentence with the beam, the sentence's length, the batch and the vocabulary.

    python -m benchmarks.growth [--out DIRECTORY]

From the small model, a beam of 4, sentences and outputs of 30 tokens, 32 sentences in a call and a vocabulary of 8,000,
one of these changes at a time.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.samples import Sample, Spread, rates, spread
from benchmarks.study import Curve, Study, samples_of_nmt
from benchmarks.synthetic import ALPHA, SIZES, random_sources, save_model
from benchmarks.workers import translations


@dataclass(frozen=True)
class Point:
    """A case; one of its values changes along a curve."""

    beam: int = 4
    length: int = 30  # tokens of a source and of an output, the end of the sentence included
    batch: int = 32
    vocabulary: int = 8_000


CURVES = {
    "beam": Curve("beam", (1, 2, 4, 8, 16)),
    "length": Curve("tokens of a sentence", (10, 20, 40, 80, 160, 320)),
    "batch": Curve("sentences in a call", (1, 2, 4, 8, 16, 32, 64, 128)),
    "vocabulary": Curve("entries of the vocabulary", (4_000, 8_000, 16_000, 32_000, 64_000)),
}
METHOD = """
The small model (3 + 3 layers, width 256), random weights. Time for a sentence: medians over the rounds, with the
quartiles in brackets. Unless it changes: beam 4, sentences and outputs of 30 tokens, 32 sentences in a call, a
vocabulary of 8,000. In the figure a dotted line is growth in proportion.
"""


def measure(options: argparse.Namespace, point: Point) -> list[Sample]:
    """Return the samples of a point. Raises WorkerError if a translation fails."""
    size = dataclasses.replace(SIZES["small"], vocabulary=point.vocabulary)
    words = point.length - 1
    sources = random_sources(2 * point.batch, words, words, point.vocabulary)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = save_model(Path(folder) / "model", size)
        setup = {"checkpoint": str(checkpoint), **dataclasses.asdict(size), "cores": options.cores, "alpha": ALPHA}
        setup |= {"beam": point.beam, "steps": point.length}
        return samples_of_nmt(options, point, setup, translations(sources, point.batch, options.seconds))


def times(samples: Sequence[Sample], point: Point, system: str) -> Spread:
    """Return the milliseconds of a sentence."""
    return spread([1000 / rate for rate in rates(samples, dataclasses.asdict(point), system).values()])


STUDY = Study("growth", "Time for a sentence", "ms for a sentence", METHOD, CURVES, Point(), measure, times)


if __name__ == "__main__":
    STUDY.run(__doc__, ["float32", "int8"], rounds=5, seconds=1.0)
