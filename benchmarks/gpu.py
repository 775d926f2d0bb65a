"""Everything there is to measure of training on a GPU, in one call and about half an hour.

    python -m benchmarks.gpu [--part NAME ...] [--minutes 28] [--out DIRECTORY]

Each part is measured on its own: one that fails is reported and costs the others nothing. The report is written after
each part. With `--device cpu --tiny` the parts run in seconds, to try them.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks import kernels, report
from benchmarks.peers.serve import Size
from benchmarks.synthetic import (
    ENDLESS,
    NOTHING_ELSE,
    SIZES,
    Pair,
    flag_words,
    flops_of_token,
    model_flags,
    random_pairs,
    write_corpus,
)
from benchmarks.workers import ROOT
from nmt_cli.training.run_directory import METRICS

MODELS = {"base": SIZES["base"], "big": Size(6, 1024, 4096, 16, 37_000)}
TINY = Size(1, 16, 32, 2, 60)
PROFILED = 3
"""Steps of which the launches are counted; they are slower."""
PADDED = ("--micro-batches", "8", "--attention-dropout", "1e-9")
"""Attention that drops weights is computed on padded sentences."""
METHOD = """
Random sentences of about 25 words, a vocabulary of 37,000. `nmt train` runs in a process of its own. A step is timed
from its start to the next one's. The first ones, in which code is compiled, are left out. The utilisation is the share
of this GPU's fastest product, measured in the part `products`, that the model's products without padding take.
"""


class NotAvailable(Exception):
    """A part needs what is not there."""


@dataclass
class Bench:
    """What the parts share."""

    device: torch.device
    tiny: bool
    folder: Path
    ends: float  # the time at which everything must be done, of the monotonic clock
    models: dict[str, Size]
    tokens: int  # of an update
    steps: int
    peak: float = 0.0  # of the products, in operations a second; 0 until it is measured
    pairs: list[Pair] = field(default_factory=list)

    def data(self) -> Path:
        """Return prepared data with enough sentences for the longest run; all models have one vocabulary."""
        path = self.folder / "data"
        vocabulary = next(iter(self.models.values())).vocabulary
        if not path.exists():
            count = 12 * self.steps if self.tiny else self.steps * self.tokens // 20
            self.pairs = random_pairs(count, vocabulary, mean=6 if self.tiny else 25)
            write_corpus(path, self.pairs, vocabulary)
        return path

    def train(
        self,
        name: str,
        size: Size,
        *flags: str,
        steps: int = 0,
        tokens: int = 0,
        log_every: int = ENDLESS,
        settings: Mapping[str, str] | None = None,
    ) -> Run:
        """Run `nmt train` for some steps; return what was recorded.

        Args:
            name: of the run; a name that was used is a run that is resumed.
            log_every: a log line waits for the GPU, so more of them slow the steps down.
            settings: environment variables.

        Raises:
            NotAvailable: the run failed; the message is the end of what it said.
        """
        steps, tokens, record = steps or self.steps, tokens or self.tokens, self.folder / f"{name}.json"
        warm = steps // 2 if self.tiny else min(20, steps // 2)
        chosen = {
            **model_flags(size),
            **NOTHING_ELSE,
            "batch_tokens": tokens,
            "max_steps": steps,
            "log_every": log_every,
            "device": self.device.type,
            "import": "benchmarks.probe",
            "schedule": "probed",
            "record": record,
            "warm_after": warm,
            "profiled": PROFILED if steps > warm + PROFILED else 0,
        }
        out = self.folder / name
        began = time.time()
        self.execute("train", self.data(), "--out", out, *flag_words(chosen), *flags, **(settings or {}))
        lines = [json.loads(line) for line in (out / METRICS).read_text(encoding="utf-8").splitlines()]
        return Run(json.loads(record.read_text(encoding="utf-8")), lines, began, warm)

    def execute(self, *words: object, **settings: str) -> str:
        """Run `nmt`; return what it wrote to standard output. Raises NotAvailable if it fails."""
        command = [sys.executable, "-m", "nmt_cli", *map(str, words)]
        paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        environment = {**os.environ, "PYTHONPATH": paths, **settings}
        left = max(1.0, self.ends - time.monotonic())
        try:
            done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=left)
        except subprocess.TimeoutExpired as error:
            raise NotAvailable("there was no time left") from error
        if done.returncode:
            raise NotAvailable(" ".join(done.stderr.strip().splitlines()[-3:]))
        return done.stdout


@dataclass(frozen=True)
class Run:
    """What was recorded of a run."""

    record: dict[str, Any]  # `benchmarks.probe`'s
    metrics: list[dict[str, Any]]  # a log line each
    began: float
    warm_after: int

    @property
    def seconds(self) -> list[float]:
        """The time of each step after the first ones and the profiled ones."""
        times = [after - before for before, after in itertools.pairwise(self.record["starts"])]
        return times[self.warm_after + PROFILED + 1 :] or times[-1:]

    @property
    def until_first_step(self) -> float:
        """Seconds from the start of the process to the end of the first step."""
        return float(self.record["starts"][1] - self.began)

    @property
    def rate(self) -> float:
        """Target tokens a second, at the median step."""
        last = self.metrics[-1]
        return float(last["target_tokens"] / last["step"] / statistics.median(self.seconds))


def products(bench: Bench) -> Iterator[str]:
    """The fastest matrix products, at the models' shapes."""
    rows = [*kernels.products(bench.models, bench.tokens, bench.device)]
    bench.peak = max(max(rates) for _, rates in rows)
    yield report.table(
        ["TFLOP/s in bfloat16", "forward", "input's gradient", "weight's gradient"],
        [[shape, *(report.digits(rate / 1e12) for rate in rates)] for shape, rates in rows],
    )


def attention(bench: Bench) -> Iterator[str]:
    """The kernels of self-attention on a packed batch, forwards and backwards."""
    bench.data()
    lengths = [len(target) + 1 for _, target in bench.pairs]
    for name, size in bench.models.items():
        rows = kernels.attention(size, lengths, bench.tokens, bench.device)
        yield report.table(
            [f"{name}: kernel", "ms"],
            [[kernel, found if isinstance(found, str) else report.digits(1e3 * found)] for kernel, found in rows],
        )


def steps(bench: Bench) -> Iterator[str]:
    """Updates of each model: one packed micro-batch, compiled or not, and padded groups for the paper's GPUs."""
    rows = []
    ways: dict[str, Sequence[str]] = {"default": (), "not compiled": ("--no-compile",), "padded": PADDED}
    for name, size in bench.models.items():
        for about, flags in ways.items():
            label = f"{name}, {about}"
            try:
                run = bench.train(f"steps {label}".replace(" ", "-"), size, *flags)
            except NotAvailable as error:
                rows.append([label, f"not available: {error}", *[""] * 7])
                continue
            rows.append([label, *figures_of(run, size, bench)])
    yield report.table(
        [
            "",
            "step, ms",
            "slowest, ms",
            "target tokens/s",
            "utilisation",
            "launches a step",
            "graphs, warm",
            "graphs, later",
            "GB",
        ],
        rows,
    )


def figures_of(run: Run, size: Size, bench: Bench) -> list[str]:
    """Return the figures of a run as the cells of a row."""
    record = run.record
    speed = run.rate * flops_of_token(size, bench.pairs)
    later = record["graphs"] - record.get("graphs_when_warm", record["graphs"])
    return [
        report.digits(1e3 * statistics.median(run.seconds)),
        report.digits(1e3 * max(run.seconds)),
        report.digits(run.rate),
        f"{speed / bench.peak:.1%}" if bench.peak else "",
        report.digits(record["launches"]) if "launches" in record else "",
        str(record.get("graphs_when_warm", "")),
        str(later),
        f"{record['memory'] / 1e9:.2f}" if "memory" in record else "",
    ]


def agreement(bench: Bench) -> Iterator[str]:
    """Loss and gradient norm of packed batches, against padded ones, also in float32; no dropout."""
    size = next(iter(bench.models.values()))
    ways: dict[str, Sequence[str]] = {
        "packed": (),
        "packed, not compiled": ("--no-compile",),
        "padded": PADDED,
        "padded, float32": (*PADDED, "--precision", "float32"),
    }
    runs = {
        about: bench.train(
            f"agreement {about}".replace(" ", "-"), size, "--dropout", "0", *flags, steps=4, log_every=1
        ).metrics
        for about, flags in ways.items()
    }
    rows = [
        [str(step + 1), *(f"{run[step]['loss']:.6f} / {run[step]['gradient_norm']:.6f}" for run in runs.values())]
        for step in range(4)
    ]
    yield report.table(["step", *(f"loss / gradient norm, {about}" for about in runs)], rows)


def resume(bench: Bench) -> Iterator[str]:
    """A run that is killed and resumed is bit for bit an uninterrupted one."""
    size = next(iter(bench.models.values()))
    flags = {**model_flags(size), "batch_tokens": bench.tokens, "device": bench.device.type}
    checking = ("--verify-resume", "--deterministic")
    yield bench.execute("train", bench.data(), *checking, *flag_words(flags)).strip()


def start(bench: Bench) -> Iterator[str]:
    """Seconds until the first step has ended, with nothing compiled yet and then with what is kept."""
    size = next(iter(bench.models.values()))
    rows = []
    for about in ("cold", "warm"):
        cache = {name: str(bench.folder / name) for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")}
        run = bench.train(f"start-{about}", size, steps=3, settings=cache)
        rows.append([about, f"{run.until_first_step:.1f}"])
    yield report.table(["start", "s to the end of the first step"], rows)


def save(bench: Bench) -> Iterator[str]:
    """What a checkpoint costs the training: the steps around it against the median."""
    rows = []
    for name, size in bench.models.items():
        run = bench.train(f"save-{name}", size, "--save-every", str(max(2, bench.steps // 5)), steps=bench.steps // 2)
        extra = max(run.seconds) - statistics.median(run.seconds)
        files = (bench.folder / f"save-{name}").rglob("*.safetensors")
        rows.append([name, f"{max(path.stat().st_size for path in files) / 1e9:.2f}", report.digits(1e3 * extra)])
    yield report.table(["", "GB of the largest file", "ms, the slowest step above the median"], rows)


def eighth(bench: Bench) -> Iterator[str]:
    """The speed with an eighth of the batch: what each of eight GPUs would have of the paper's."""
    rows = []
    for name, size in bench.models.items():
        whole, part = (
            bench.train(f"{name}-of-{parts}", size, tokens=bench.tokens // parts, steps=bench.steps // 2).rate
            for parts in (1, 8)
        )
        rows.append([name, report.digits(whole), report.digits(part), f"{part / whole:.1%}"])
    yield report.table(["", "tokens/s, whole batch", "an eighth", "bound on the efficiency of 8 GPUs"], rows)


PARTS: dict[str, Callable[[Bench], Iterator[str]]] = {
    part.__name__: part for part in (products, attention, steps, agreement, resume, eighth, save, start)
}


def measured(part: Callable[[Bench], Iterator[str]], bench: Bench) -> Iterator[str]:
    """Yield the section of a part, whatever happens in it."""
    began = time.monotonic()
    yield f"### {part.__name__}\n\n{(part.__doc__ or '').splitlines()[0]}"
    try:
        yield from part(bench)
    except NotAvailable as error:
        yield f"Not available: {error}"
    except Exception as error:  # a part must not cost the others their time on the machine
        yield f"Failed: {type(error).__name__}: {error}"
    yield f"Took {time.monotonic() - began:.0f} s."


def main() -> None:
    parser = report.parser("gpu", __doc__)
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS), dest="parts")
    parser.add_argument("--minutes", type=float, default=28.0, help="default: 28")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a tiny model and few steps")
    parser.add_argument("--tokens", type=report.positive, default=25_000, metavar="N", help="of an update")
    parser.add_argument("--steps", type=report.positive, default=200, metavar="N")
    options = parser.parse_args()
    versions = []
    if options.device == "cuda":
        if not torch.cuda.is_available():
            raise SystemExit("error: there is no GPU; to try the parts: --device cpu --tiny")
        versions = [f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}"]
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(
            device=torch.device(options.device),
            tiny=options.tiny,
            folder=Path(folder),
            ends=time.monotonic() + 60 * options.minutes,
            models={"tiny": TINY} if options.tiny else MODELS,
            tokens=256 if options.tiny else options.tokens,
            steps=8 if options.tiny else options.steps,
        )
        texts = []
        for name in options.parts:
            for text in measured(PARTS[name], bench):
                print(text, flush=True)
                texts.append(text)
                path = report.write(options.out, "gpu", METHOD, texts, versions)
    print(path)


if __name__ == "__main__":
    main()
