"""Measurements of training and decoding on a GPU, in calls of at most eight minutes.

    python -m benchmarks.gpu --part A     # GPU tests, matrix products, attention, updates, kernels
    python -m benchmarks.gpu --part B     # agreement with padding and float32, resume
    python -m benchmarks.gpu --part C     # other ways to make updates
    python -m benchmarks.gpu --part D     # decoding, also by other programs, checkpoints, start
    python -m benchmarks.gpu --part tune  # our kernels: errors, and the fastest launch of each
    python -m benchmarks.gpu --part quality --text multi30k   # seconds to 38 and to 40 BLEU
    python -m benchmarks.gpu --without-gpu    # what can be known of training without one

A part has sections. One that fails is reported and costs the others nothing. Each figure is written
at once, to gpu-PART.json and gpu-PART.md in the directory --out. Part A first compiles the layers
of all models at the same time, and runs the tests meanwhile. What follows is measured alone. With
`--device cpu --tiny` a part runs in seconds, to try it.
"""

from __future__ import annotations

import json
import math
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from itertools import groupby, product
from pathlib import Path
from typing import Any

import torch

import nmt_cli
from benchmarks import kernels, predict, report, tune
from benchmarks.gpu_runs import Bench, NotAvailable, Run
from benchmarks.peers.serve import Size
from benchmarks.synthetic import (
    ALPHA,
    SIZES,
    flops_of_token,
    line,
    model_flags,
    random_sources,
    save_model,
)
from benchmarks.workers import ROOT, System, Worker, WorkerError

Row = dict[str, Any]  # of a table: strings and numbers by the names of columns
MODELS = {"base": SIZES["base"], "big": Size(6, 1024, 4096, 16, 37_000)}
TINY = Size(1, 16, 32, 2, 60)
PADDED = {"NMT_BENCHMARK_PADDED": "yes"}
"""Of the environment: padded sentences in place of bins."""
WAYS: dict[str, tuple[Sequence[str], dict[str, str]]] = {
    "default": ((), {}),
    "not compiled": (("--no-compile",), {}),
    "without our kernels": (("--no-kernels",), {}),
    "padded": ((), PADDED),
    "padded, float32": (("--precision", "float32"), PADDED),
}
PEERS: dict[str, list[tuple[str, Sequence[str], int]]] = {
    "cuda": [
        ("ctranslate2", ("bfloat16", "float16"), 10_000),
        ("huggingface", ("bfloat16",), 256),
    ],
    "cpu": [("ctranslate2", ("float32",), 10_000), ("huggingface", ("float32",), 256)],
}
"""Other programs: name, types and sentences of a call."""
RECORDS: dict[int, Sequence[str]] = {
    38: ("--criterion", "label_smoothed_cross_entropy"),  # CUDA graphs replay no sampled softmax
    40: "--criterion label_smoothed_cross_entropy --label-smoothing 0.1 --num-layers 4 "
    "--warmup-steps 200 --learning-rate-scale 1 --d-model 256 --d-ff 512 --dropout 0.2 "
    "--decay-steps 2450 --max-steps 2450 --save-every 98".split(),
}
"""Flags of recipes/speedrun.sh by the BLEU that they reach: benchmarks/speedrun.md."""
METHOD = """
Random sentences of about 25 words, a vocabulary of 37,000. `nmt train` runs in a process of its
own. A step is timed from its start to the next one's. The first ones, in which code is compiled,
are left out. The utilisation is the share that the model's products without padding have of this
GPU's fastest product, and of its data sheet.
"""


class Findings:
    """The rows that were found, by section. Each is written at once."""

    def __init__(
        self, folder: Path, name: str, versions: Sequence[str], method: str = METHOD
    ) -> None:
        self.folder, self.name, self.versions, self.method = folder, name, versions, method
        self.found: list[tuple[str, Row]] = []

    def add(self, section: str, row: Row) -> None:
        """Print and write a row."""
        print(
            f"{section}: {', '.join(f'{name} {shown(value)}' for name, value in row.items())}",
            flush=True,
        )
        self.found.append((section, row))
        self.write()

    def write(self) -> Path:
        """Write all rows. Return the path of the report."""
        texts = []
        for section, rows_of_section in groupby(self.found, lambda entry: entry[0]):
            texts.append(f"### {section}")
            for head, rows in groupby((row for _, row in rows_of_section), list):
                texts.append(
                    report.table(head, ([shown(value) for value in row.values()] for row in rows))
                )
        path = report.write(self.folder, self.name, self.method, texts, self.versions)
        content = json.dumps({"versions": self.versions, "found": self.found}, indent=1)
        path.with_suffix(".json").write_text(content, encoding="utf-8")
        return path


def shown(value: Any) -> str:
    """Return a value as the cell of a table."""
    return report.digits(value) if isinstance(value, (int, float)) else str(value)


def first_steps(bench: Bench) -> Iterator[Row]:
    """The first steps of all models and the tests that need a GPU, all at the same time.

    Later runs find the compiled code.
    """
    bench.data()
    with ThreadPoolExecutor() as pool:
        runs = {
            name: pool.submit(bench.train, f"first-{name}", size, steps=2)
            for name, size in bench.models.items()
        }
        tests = pool.submit(gpu_tests, bench)
    for name, run in runs.items():
        try:
            yield {"first step": name, "s": run.result().until_first_step}
        except NotAvailable as error:
            yield {"first step": name, "not available": str(error)}
    yield {"tests": tests.result()}


def gpu_tests(bench: Bench) -> str:
    """Return the result of the tests that need a GPU."""
    files = [
        path
        for path in sorted((ROOT / "tests" / "unit").rglob("test_*.py"))
        if "needs a GPU" in path.read_text()
    ]
    said = bench.execute(
        "pytest", "-q", "-k", "gpu", "-o", "addopts=--import-mode=importlib", *files
    )
    return said.strip().splitlines()[-1]


def products(bench: Bench) -> Iterator[Row]:
    """The fastest matrix products, at the models' shapes."""
    for shape, rates in kernels.products(bench.models, bench.tokens, bench.device):
        names = ("forward", "input's gradient", "weight's gradient")
        yield {
            "TFLOP/s in bfloat16": shape,
            **{name: rate / 1e12 for name, rate in zip(names, rates, strict=True)},
        }


def attention(bench: Bench) -> Iterator[Row]:
    """The kernels of self-attention over a batch, forwards and backwards."""
    bench.data()
    lengths = [len(target) + 1 for _, target in bench.pairs]
    for name, size in bench.models.items():
        for kernel, result in kernels.attention(size, lengths, bench.tokens, bench.device):
            yield {
                "kernel": f"{name}: {kernel}",
                "ms": result if isinstance(result, str) else 1e3 * result,
            }


def steps(bench: Bench) -> Iterator[Row]:
    """Updates of each model, and the kernels that take most of their time."""
    runs = {}
    for name, size in bench.models.items():
        try:
            runs[name] = bench.train(f"steps-{name}", size)
        except NotAvailable as error:
            yield {"": name, "not available": str(error)}
            continue
        yield figures_of(name, runs[name], size, bench)
    for name, run in runs.items():
        for kernel, count, milliseconds in run.record.get("kernels", []):
            yield {f"{name}: kernel": kernel, "launches a step": count, "ms a step": milliseconds}


def variants(bench: Bench) -> Iterator[Row]:
    """Updates that are made in other ways than by default."""
    for name, size in bench.models.items():
        for about, (flags, settings) in WAYS.items():
            try:
                run = bench.train(
                    f"{name}-{about}".replace(" ", "-"), size, *flags, settings=settings
                )
            except NotAvailable as error:
                yield {"": f"{name}, {about}", "not available": str(error)}
                continue
            yield figures_of(f"{name}, {about}", run, size, bench)


def figures_of(label: str, run: Run, size: Size, bench: Bench) -> Row:
    """Return the figures of a run."""
    record, speed = run.record, run.rate * flops_of_token(size, bench.pairs)
    sheet = [
        gpu.sheet
        for gpu in predict.GPUS
        if bench.device.type == "cuda" and gpu.name in torch.cuda.get_device_name()
    ]
    return {
        "": label,
        "step, ms": 1e3 * run.median,
        "slowest, ms": 1e3 * max(run.seconds),
        "target tokens/s": run.rate,
        "of the peak": f"{speed / bench.peak():.1%}",
        "of the data sheet": f"{speed / sheet[0]:.1%}" if sheet else "unknown",
        "launches": record.get("launches", "unknown"),
        "graphs, warm": record["graphs_when_warm"],
        "graphs, later": record["graphs"] - record["graphs_when_warm"],
        "GB": record.get("memory", 0) / 1e9,
    }


def agreement(bench: Bench) -> Iterator[Row]:
    """Loss and gradient norm of packed batches, against padded ones, also in float32.

    No dropout.
    """
    size = next(iter(bench.models.values()))
    for about, (flags, settings) in WAYS.items():
        name = f"agreement-{about}".replace(" ", "-")
        run = bench.train(
            name, size, "--dropout", "0", *flags, steps=4, log_every=1, settings=settings
        )
        values = (
            f"{step_figures['loss']:.6f} / {step_figures['gradient_norm']:.6f}"
            for step_figures in run.metrics
        )
        yield {
            "loss / gradient norm": about,
            **{f"step {step + 1}": figures for step, figures in enumerate(values)},
        }


def resume(bench: Bench) -> Iterator[Row]:
    """A run that is killed and resumed is bit for bit an uninterrupted one."""
    flags = {**model_flags(next(iter(bench.models.values()))), "batch_tokens": bench.tokens}
    checks = json.loads(
        bench.nmt(
            "doctor",
            bench.data(),
            "--deterministic",
            "--device",
            bench.device.type,
            "--json",
            flags=flags,
        )
    )
    yield {check["name"]: check["value"] for check in checks if check["name"] == "resume"}


def eighth(bench: Bench) -> Iterator[Row]:
    """The speed with an eighth of the batch: what each of eight GPUs would have of the paper's."""
    for name, size in bench.models.items():
        runs = (
            bench.train(f"{name}-of-{n}", size, tokens=bench.tokens // n, steps=bench.steps // 2)
            for n in (1, 8)
        )
        whole, part = (run.rate for run in runs)
        yield {
            "": name,
            "tokens/s": whole,
            "an eighth": part,
            "bound on the efficiency of 8 GPUs": f"{part / whole:.1%}",
        }


def decoding(bench: Bench) -> Iterator[Row]:
    """Sentences a second of the first model, with beam 4, greedily and by sampling.

    Every output has 30 tokens.
    """
    name, size = next(iter(bench.models.items()))
    path = save_model(bench.folder / "model", size)
    lines = [
        line(ids) for ids in random_sources(24 if bench.tiny else 3000, 5, 60, size.vocabulary)
    ]
    searches: dict[str, Any] = {"beam 4": {"beam": 4}, "greedy": {"beam": 1}}
    searches["sampling"] = {"sample": True}
    for search, dtype, tokens in (
        ("beam 4", "float32", 4096),
        ("beam 4", "bfloat16", 4096),
        ("beam 4", "bfloat16", 32_768),
        ("sampling", "bfloat16", 32_768),
        ("greedy", "bfloat16", 32_768),
    ):
        limits: Any = {"min_length": 29, "max_length": 29, "alpha": ALPHA}
        translator = nmt_cli.load(
            path, bench.device, dtype, batch_tokens=tokens, **searches[search], **limits
        )
        translator.translate(lines[: len(lines) // 8])
        began = time.perf_counter()
        translator.translate(lines)
        rate = len(lines) / (time.perf_counter() - began)
        yield {
            "": f"{name}, {dtype}, {search}",
            "tokens of a batch": tokens,
            "sentences/s": rate,
            "tokens/s": 30 * rate,
        }
    with torch.profiler.profile() as profile:
        translator.translate(lines[: len(lines) // 8])
    for kernel, launches, milliseconds in kernels.kernel_times(profile):
        yield {f"{name}, greedy: kernel": kernel, "launches": launches, "ms": milliseconds}


def beside(bench: Bench) -> Iterator[Row]:
    """Sentences a second of other programs with the weights of `decoding`, where they are there."""
    name, size = next(iter(bench.models.items()))
    path = save_model(bench.folder / "model-of-others", size)
    count = 24 if bench.tiny else 2000
    sources = random_sources(count, 5, 60, size.vocabulary)
    for peer, dtypes, batch in PEERS[bench.device.type]:
        for dtype, beam in product(dtypes, (4, 1)):
            label = f"{name}, {peer}, {dtype}, beam {beam}"
            setup = {**asdict(size), "checkpoint": str(path), "cores": 1, "beam": beam}
            setup |= {"alpha": ALPHA, "steps": 30, "device": bench.device.type}
            try:
                worker = Worker(System(peer, dtype), sys.executable, setup, "benchmarks.peers")
                request = {"sources": sources, "batch": min(batch, count), "seconds": 0.0}
                sample = worker.sample({}, 0, request)
                worker.close()
            except WorkerError as error:
                yield {"": label, "not available": str(error)}
                continue
            yield {"": label, "version": worker.version, "sentences/s": sample.rate}


def quality(bench: Bench) -> Iterator[Row]:
    """Seconds of a training on Multi30k, by the flags of the records in benchmarks/speedrun.md."""
    if bench.text is None:
        raise NotAvailable("give --text DIRECTORY of Multi30k")
    for goal, flags in RECORDS.items():
        words = ("--out", bench.folder / f"quality-{goal}", "--", *flags)
        said = bench.output("bash", ROOT / "recipes/speedrun.sh", bench.text, *words, PROCESSES="1")
        figures = re.findall(r"^(?:multi30k|seconds of nmt train:) +([\d.]+)", said, re.MULTILINE)
        bleu, seconds = map(float, figures)
        yield {"Multi30k": f"{goal} BLEU", "BLEU": bleu, "s of nmt train": seconds}


def save(bench: Bench) -> Iterator[Row]:
    """What a checkpoint costs the training: the steps around it against the median."""
    for name, size in bench.models.items():
        run = bench.train(
            f"save-{name}",
            size,
            "--save-every",
            str(max(2, bench.steps // 5)),
            steps=bench.steps // 2,
        )
        largest = max(
            path.stat().st_size for path in (bench.folder / f"save-{name}").rglob("*.safetensors")
        )
        extra = max(run.seconds) - run.median
        yield {
            "": name,
            "GB of the largest file": largest / 1e9,
            "ms, the slowest step above the median": 1e3 * extra,
        }


def start(bench: Bench) -> Iterator[Row]:
    """Seconds until the first step has ended, with nothing compiled yet and with a warm cache."""
    size = next(iter(bench.models.values()))
    for about in ("cold", "warm"):
        cache = {
            name: str(bench.folder / name)
            for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
        }
        run = bench.train(f"start-{about}", size, steps=3, settings=cache)
        yield {"start": about, "s to the end of the first step": run.until_first_step}


def kernels_right(bench: Bench) -> Iterator[Row]:
    """The errors of the kernels of an update in bfloat16, against float64."""
    bench.data()
    size = next(iter(bench.models.values()))
    for about, error in tune.errors(tune.Inputs(size, bench.pairs, bench.tokens, bench.device)):
        yield {"kernel": about, "relative error": error}


def launches(bench: Bench) -> Iterator[Row]:
    """The microseconds of each launch of a kernel, and the fastest one."""
    bench.data()
    for name, size in bench.models.items():
        inputs = tune.Inputs(size, bench.pairs, bench.tokens, bench.device)
        best: dict[str, Row] = {}
        for kernel, launch, block, result in tune.times(inputs):
            figures = {**launch._asdict(), "block": block or ""}
            row = {"": f"{name}: {kernel}", **figures, "us": result}
            yield row
            if isinstance(result, float) and result < best.get(kernel, {"us": math.inf})["us"]:
                best[kernel] = row
        for row in best.values():
            yield {"fastest": row[""], **row}


Section = Callable[[Bench], Iterator[Row]]
PARTS: dict[str, tuple[Section, ...]] = {
    "A": (first_steps, products, attention, steps),
    "B": (agreement, resume, eighth),
    "C": (variants,),
    "D": (decoding, beside, save, start),
    "quality": (quality,),
    "tune": (kernels_right, launches),
}


def measured(section: Section, bench: Bench) -> Iterator[Row]:
    """Yield the rows of a section, whatever happens in it."""
    began = time.monotonic()
    try:
        yield from section(bench)
    except NotAvailable as error:
        yield {"not available": str(error)}
    except Exception as error:  # a section must not cost the others their time on the machine
        yield {"failed": f"{type(error).__name__}: {error}"}
    yield {"took, s": time.monotonic() - began}


def main() -> None:
    parser = report.parser("gpu", __doc__)
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--part", choices=PARTS)
    chosen.add_argument("--without-gpu", action="store_true", help="predict the speed of training")
    parser.add_argument("--minutes", type=float, default=8.0, help="default: 8")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a tiny model and few steps")
    parser.add_argument(
        "--tokens", type=report.positive, default=25_000, metavar="N", help="of an update"
    )
    parser.add_argument("--steps", type=report.positive, default=60, metavar="N")
    parser.add_argument("--text", type=Path, metavar="DIRECTORY", help="Multi30k, for quality")
    options = parser.parse_args()
    models, tokens = ({"tiny": TINY}, 256) if options.tiny else (MODELS, options.tokens)
    if options.without_gpu:
        findings = Findings(
            options.out, "gpu-predicted", ["predicted, not measured"], predict.__doc__ or ""
        )
        for row in predict.predicted(models, tokens):
            findings.add("predicted", row)
        print(findings.write())
        return
    if options.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit(
            "error: there is no GPU; to try the parts: --device cpu --tiny; or --without-gpu"
        )
    versions = (
        [f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}"]
        if options.device == "cuda"
        else []
    )
    findings = Findings(options.out, f"gpu-{options.part}", versions)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(
            device=torch.device(options.device),
            tiny=options.tiny,
            folder=Path(folder),
            ends=time.monotonic() + 60 * options.minutes,
            models=models,
            tokens=tokens,
            steps=8 if options.tiny else options.steps,
            earlier=options.out / "gpu-A.json",
            text=options.text and options.text.resolve(),
        )
        for section in PARTS[options.part]:
            for row in measured(section, bench):
                findings.add(section.__name__, row)
    print(findings.write())


if __name__ == "__main__":
    main()
