"""Speed and memory of `nmt prepare`, beside SentencePiece's own encoder.

    python -m benchmarks.prepare --source-lang en --target-lang de corpus/train [--out DIRECTORY]

The text is repeated, with an edit in each line, up to the sizes asked for.
"""

from __future__ import annotations

import argparse
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from benchmarks import figures, report
from benchmarks.samples import Sample, Spread, append, ratio, speed
from nmt_cli.files.text import find_file, read_lines
from nmt_cli.tasks.translation import TranslationTask

PEER = "SentencePiece"
VOCABULARY = ("--vocab-size", "8000", "--sample-pairs", "100000")
METHOD = """
`nmt prepare` cleans and encodes training text: the seconds are those of the passes "reading train" and "encoding
train", without learning the vocabulary. SentencePiece encodes the same lines with the same vocabulary in one batch call
on one core, and does nothing else. Both take turns. Medians over the rounds, with the quartiles in brackets.
"""
GROWTH = """
The whole command with all cores, BPE with 8,000 entries learned from 100,000 pairs. Memory is the peak of the sum of
all its processes, shared pages counted once.
"""


class Run(NamedTuple):
    """A finished `nmt prepare`."""

    passes: dict[str, float]  # the seconds of each pass, by its title
    seconds: float
    processor: float  # seconds of all its processes together
    megabytes: float  # at the peak


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.prepare", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("prefix", help="parallel text, as for nmt prepare --train")
    parser.add_argument("--source-lang", required=True, metavar="LANG")
    parser.add_argument("--target-lang", required=True, metavar="LANG")
    parser.add_argument("--pairs", type=report.positive, default=200_000, metavar="N", help="for the speed")
    parser.add_argument("--sizes", type=report.positive, nargs="*", default=[500_000, 2_000_000, 5_000_000])
    report.add_options(parser, rounds=3)
    return parser.parse_args(words)


def repeated(lines: Sequence[str], count: int) -> Iterator[str]:
    """Yield `count` lines: `lines`, and again and again with a number at the end that makes them different."""
    for number in range(count):
        again, place = divmod(number, len(lines))
        yield f"{lines[place]} {again}" if again else lines[place]


def write_corpus(prefix: str, languages: Sequence[str], count: int, folder: Path) -> str:
    """Write `count` pairs to `folder`; return their prefix."""
    for language in languages:
        lines = list(read_lines(find_file(prefix, language)))
        with (folder / f"{count}.{language}").open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{line}\n" for line in repeated(lines, count))
    return str(folder / str(count))


def prepare(prefix: str, languages: Sequence[str], out: Path, *flags: str) -> Run:
    """Run `nmt prepare`.

    Raises:
        SystemExit: it failed.
    """
    command = [sys.executable, "-m", "nmt_cli", "prepare", "--train", prefix, "--out", str(out), "--overwrite"]
    command += ["--source-lang", languages[0], "--target-lang", languages[1], *VOCABULARY, *flags]
    start, before, peak = time.monotonic(), processor_seconds(), 0.0
    with tempfile.TemporaryFile("w+") as log, subprocess.Popen(command, stderr=log) as process:
        while process.poll() is None:
            peak = max(peak, sum(map(megabytes, family(process.pid))))
            time.sleep(0.1)
        seconds = time.monotonic() - start
        log.seek(0)
        said = log.read()
    if process.returncode:
        raise SystemExit(f"error: nmt prepare: {said}")
    passes = {title: float(value) for title, value in re.findall(r"^([\w ]+): done in ([\d.]+) s", said, re.MULTILINE)}
    return Run(passes, seconds, processor_seconds() - before, peak)


def processor_seconds() -> float:
    """Return the processor time of the finished child processes and of theirs."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def family(process: int) -> list[int]:
    """Return the ids of a process and of all that it started."""
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return [process]
    return [process, *(each for child in children for each in family(int(child)))]


def megabytes(process: int) -> float:
    """Return the memory of a process, its share of shared pages included; 0 if it has ended."""
    try:
        return int(report.proc_fields(f"/proc/{process}/smaps_rollup")["Pss"].split()[0]) / 1024
    except (KeyError, OSError):
        return 0.0


def measure(prefix: str, languages: Sequence[str], folder: Path, pairs: int, rounds: int) -> Iterator[Sample]:
    """Yield samples of SentencePiece and of nmt with one and two workers, in turn, without Moses and with it."""
    lines = [line for language in languages for line in islice(read_lines(find_file(prefix, language)), pairs)]
    for moses in (False, True):
        case = {"pairs": pairs, "moses": moses}
        for number in range(rounds):
            for workers in (1, 2):
                flags = ["--workers", str(workers), *(["--moses"] if moses else [])]
                run = prepare(prefix, languages, folder / "data", *flags)
                seconds = run.passes["reading train"] + run.passes["encoding train"]
                yield Sample(case, f"nmt, workers: {workers}", number, pairs, seconds)
            vocabulary = TranslationTask.load(folder / "data" / "task").vocabularies()[0]
            yield Sample(case, PEER, number, pairs, batch_seconds(vocabulary.serialise(), lines))


def batch_seconds(model: bytes, lines: list[str]) -> float:
    """Return the time of SentencePiece's batch call."""
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    start = time.perf_counter()
    processor.encode(lines, num_threads=1)
    return time.perf_counter() - start


def speed_rows(samples: Sequence[Sample]) -> list[list[str]]:
    """Return the rows of the table of speeds."""
    rows = []
    for case in ({**samples[0].case, "moses": moses} for moses in (False, True)):
        for system in dict.fromkeys(sample.system for sample in samples):
            name = f"{system}, --moses" if case["moses"] and system != PEER else system
            own = speed(samples, case, system)
            rows.append([name, report.shown(own), report.shown(ratio(samples, case, system, PEER))])
    return rows


def growth(runs: Mapping[int, Run]) -> dict[str, dict[str, dict[int, Spread]]]:
    """Return the panels of the figure."""
    seconds = {size: Spread(*[run.processor] * 3) for size, run in runs.items()}
    memory = {size: Spread(*[run.megabytes] * 3) for size, run in runs.items()}
    return {"pairs": {"processor seconds": seconds, "MB": memory}}


def main() -> None:
    options = arguments()
    path = report.begin(options, "prepare")
    languages = (options.source_lang, options.target_lang)
    result = report.Report("prepare", METHOD)
    with tempfile.TemporaryDirectory(dir=options.out) as name:
        folder = Path(name)
        prefix = write_corpus(options.prefix, languages, options.pairs, folder)
        samples = []
        for sample in measure(prefix, languages, folder, options.pairs, options.rounds):
            samples.append(sample)
            append(path, sample)
            print(f"{sample.system} {sample.case}: {sample.rate:,.0f} pairs/s", file=sys.stderr)
        result.add(report.table(["", "pairs/s", f"times {PEER}"], speed_rows(samples)))
        runs = {}
        for size in options.sizes:
            runs[size] = prepare(write_corpus(options.prefix, languages, size, folder), languages, folder / "data")
            print(f"{size:,} pairs: {runs[size].seconds:.1f} s, {runs[size].megabytes:.0f} MB", file=sys.stderr)
    if runs:
        rows = [
            [f"{size:,}", *map(report.digits, (run.seconds, run.processor, run.processor / size * 1e6, run.megabytes))]
            for size, run in runs.items()
        ]
        result.add(
            report.paragraph(GROWTH),
            report.table(["pairs", "seconds", "processor seconds", "a million pairs", "memory, MB"], rows),
        )
        figure = figures.curves(growth(runs), "processor seconds, MB")
        result.add_figure("prepare", "Time and memory of nmt prepare against the number of pairs", figure)
    result.write(options.out)
    print(options.out / "prepare.md")


if __name__ == "__main__":
    main()
