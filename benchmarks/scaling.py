"""A model of the time of a training step on several devices, fitted to measurements and extrapolated.

    python -m benchmarks.scaling [--out DIRECTORY]

A step of n processes takes

    overhead + tokens / (n x speed) + 2 (n - 1) / n x bytes of the gradients / bandwidth

seconds: what every step costs, the arithmetic on a process's share of the tokens, and the reduction of the gradients in
a ring, of which the backward pass hides nothing or the share that --hidden gives. The input is made ahead and costs
nothing while a batch is made faster than a step. Overhead, speed and bandwidth are fitted by least squares.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import report
from benchmarks.peers.serve import Size
from benchmarks.synthetic import ENDLESS, NOTHING_ELSE, SIZES, flag_words, model_flags, random_pairs, write_corpus
from benchmarks.workers import ROOT

FITTED = ((1, 2048), (1, 8192), (2, 4096), (2, 16_384))
"""Processes and tokens of an update that the model is fitted to."""
CHECKED = ((1, 4096), (2, 8192))
"""Those that it is checked against."""
METHOD = """
The small model (3 + 3 layers, width 256, a vocabulary of 8,000), one thread for each process, processes joined by gloo
on this machine. Seconds are medians over the steps of one run of `nmt train` each.
"""


@dataclass(frozen=True)
class Model:
    """The time of a step."""

    overhead: float  # seconds of every step
    speed: float  # source and target tokens of one side that a process computes in a second
    bandwidth: float  # bytes a second
    hidden: float = 0.0  # share of the reduction that the backward pass hides

    def seconds(self, processes: int, tokens: float, gradient_bytes: float) -> float:
        """Return the seconds of a step of `tokens` in all."""
        reduction = ring(processes) * gradient_bytes / self.bandwidth
        return self.overhead + tokens / processes / self.speed + (1 - self.hidden) * reduction


def ring(processes: int) -> float:
    """Return how often each gradient crosses a process's connection in a ring all-reduce."""
    return 2 * (processes - 1) / processes


def fit(measured: Sequence[tuple[int, int, float]], gradient_bytes: float) -> Model:
    """Return the model of the least squared relative errors.

    Args:
        measured: processes, tokens of a step and its seconds, with one process and with several.
    """
    seconds = np.array([each for _, _, each in measured])
    columns = np.array([[1.0, tokens / n, ring(n) * gradient_bytes] for n, tokens, _ in measured])
    scale = columns.max(axis=0)
    found, *_ = np.linalg.lstsq(columns / scale / seconds[:, None], np.ones(len(seconds)), rcond=None)
    overhead, a_token, a_byte = np.maximum(found / scale, 1e-15)
    return Model(float(overhead), float(1 / a_token), float(1 / a_byte))


def measure(data: Path, folder: Path, size: Size, processes: int, tokens: int, steps: int) -> float:
    """Return the median seconds of a step.

    Raises:
        SystemExit: the training failed.
    """
    out, record = folder / f"{processes}-{tokens}", folder / f"{processes}-{tokens}.json"
    settings = {
        **model_flags(size),
        **NOTHING_ELSE,
        "batch_tokens": tokens,
        "max_steps": steps,
        "log_every": ENDLESS,
        "precision": "float32",
        "device": "cpu",
        "import": "benchmarks.probe",
        "schedule": "probed",
        "record": record,
    }
    launcher = (
        ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)] if processes > 1 else []
    )
    command = [sys.executable, *launcher, "-m", "nmt_cli", "train", str(data), "--out", str(out), *flag_words(settings)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"error: {' '.join(done.stderr.strip().splitlines()[-3:])}")
    starts = json.loads(record.read_text(encoding="utf-8"))["starts"]
    return float(statistics.median(np.diff(starts)[2:].tolist()))


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scaling", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=report.positive, default=8, metavar="N", help="of a run; default: 8")
    gpu = parser.add_argument_group("the extrapolation to GPUs (by default, of the big model on H200s in one machine)")
    gpu.add_argument("--parameters", type=float, default=214e6, metavar="N", help="default: 214 million")
    gpu.add_argument("--step-ms", type=float, metavar="X", help="measured time of a step of 25,000 tokens on one GPU")
    gpu.add_argument("--eighth-ms", type=float, metavar="X", help="of a step of 3,125 tokens")
    gpu.add_argument("--bandwidth", type=float, default=450e9, metavar="X", help="bytes/s of a ring; default: 450e9")
    gpu.add_argument("--hidden", type=float, default=0.0, metavar="X", help="share of the reduction; default: 0")
    report.add_places(parser)
    return parser.parse_args(words)


def checked(options: argparse.Namespace) -> list[str]:
    """Return the parts of the report about the measured configurations."""
    size = SIZES["small"]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        largest = max(tokens for _, tokens in (*FITTED, *CHECKED))
        write_corpus(folder / "data", random_pairs(options.steps * largest // 20, size.vocabulary), size.vocabulary)
        times = {
            case: measure(folder / "data", folder, size, *case, options.steps) for case in sorted({*FITTED, *CHECKED})
        }
    gradient_bytes = 4.0 * parameters(size)
    model = fit([(*case, times[case]) for case in FITTED], gradient_bytes)
    rows = []
    for case in (*FITTED, *CHECKED):
        expected = model.seconds(*case, gradient_bytes)
        rows.append(
            [
                f"{case[0]}, {case[1]:,}",
                "yes" if case in FITTED else "no",
                f"{times[case]:.2f}",
                f"{expected:.2f}",
                f"{expected / times[case] - 1:+.0%}",
            ]
        )
    return [
        report.table(["processes, tokens", "fitted", "measured, s", "model, s", "error"], rows),
        report.paragraph(
            f"Overhead {1e3 * model.overhead:.0f} ms; {model.speed:,.0f} tokens/s a process; "
            f"{model.bandwidth / 1e9:.2f} GB/s."
        ),
    ]


def parameters(size: Size) -> int:
    """Return the number of weights of the paper's model of this size."""
    attention, inner, norm = 4 * size.width**2, 2 * size.width * size.inner + size.width + size.inner, 2 * size.width
    encoder = attention + inner + 2 * norm
    decoder = 2 * attention + inner + 3 * norm
    return size.vocabulary * size.width + size.layers * (encoder + decoder)


def extrapolated(options: argparse.Namespace) -> list[str]:
    """Return the parts of the report about GPUs: strong scaling with 25,000 tokens in all, weak with 25,000 each."""
    if options.step_ms is None or options.eighth_ms is None:
        return ["The extrapolation needs --step-ms and --eighth-ms, which `benchmarks.gpu` measures."]
    whole, part = options.step_ms / 1e3, options.eighth_ms / 1e3
    speed = (25_000 - 3_125) / max(whole - part, 1e-9)
    model = Model(max(0.0, whole - 25_000 / speed), speed, options.bandwidth, options.hidden)
    gradient_bytes, rows = 4 * options.parameters, []
    for count in (1, 8, 64):
        strong = model.seconds(count, 25_000, gradient_bytes)
        weak = model.seconds(count, 25_000 * count, gradient_bytes)
        rows.append(
            [
                str(count),
                *(f"{1e3 * s:.1f}" for s in (strong, weak)),
                f"{whole / strong / count:.0%}",
                f"{whole / weak:.0%}",
            ]
        )
    head = ["GPUs", "strong: ms", "weak: ms", "strong: efficiency", "weak: efficiency"]
    return ["An extrapolation, not a measurement:", report.table(head, rows)]


def main() -> None:
    options = arguments()
    report.begin(options, "scaling")
    result = report.Report("scaling", METHOD)
    result.add(*checked(options), *extrapolated(options))
    result.write(options.out)
    print(options.out / "scaling.md")


if __name__ == "__main__":
    main()
