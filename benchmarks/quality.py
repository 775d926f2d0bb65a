"""Quality and speed of `nmt translate` with each type of arithmetic, on test sets with references.

    python -m benchmarks.quality --test NAME CHECKPOINT SOURCE REFERENCE [--test ...]

The time is that of the whole command.
"""

from __future__ import annotations

import argparse
import operator
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks import report
from benchmarks.samples import Sample, append, rates, spread
from nmt_cli import score
from nmt_cli.errors import NmtError

METHOD = """
`nmt translate CHECKPOINT --dtype TYPE`, beam 4, alpha 0.6, the whole command with its start; the types take turns.
Seconds are medians over the rounds with the quartiles in brackets. "Other outputs" counts the lines that differ from
those of the first type.
"""


class Text(NamedTuple):
    """A model and a text to translate with it."""

    name: str
    checkpoint: Path
    source: Path
    reference: Path


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.quality", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = ("NAME", "CHECKPOINT", "SOURCE", "REFERENCE")
    parser.add_argument("--test", nargs=4, action="append", required=True, metavar=names, dest="tests")
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16", "int8"], metavar="DTYPE")
    parser.add_argument("--metric", default="bleu", help="of `nmt score`; default: bleu")
    report.add_options(parser, rounds=3)
    options = parser.parse_args(words)
    options.tests = [Text(name, *map(Path, paths)) for name, *paths in options.tests]
    for text in options.tests:
        for path in (text.source, text.reference):
            if not path.is_file():
                parser.error(f"{path}: no such file")
    return options


def translate(test: Text, dtype: str, output: Path) -> float:
    """Write the translation of the test set to `output`; return the seconds that the command took."""
    command = [sys.executable, "-m", "nmt_cli", "translate", str(test.checkpoint), "--dtype", dtype]
    began = time.perf_counter()
    done = subprocess.run([*command, "--quiet", "--input", str(test.source), "--output", str(output)], check=False)
    if done.returncode:
        raise SystemExit(done.returncode)  # the command has said why
    return time.perf_counter() - began


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def measure(options: argparse.Namespace, test: Text, path: Path) -> list[list[str]]:
    """Return a row of the table for each type; the samples are appended to the file `path`."""
    samples, outputs, case = [], {}, {"test": test.name}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.rounds):
            for dtype in options.dtypes:
                output = Path(folder) / dtype
                seconds = translate(test, dtype, output)
                outputs[dtype] = lines(output)
                samples.append(Sample(case, dtype, number, len(outputs[dtype]), seconds))
                append(path, samples[-1])
    rows, references = [], lines(test.reference)
    for dtype, hypotheses in outputs.items():
        speeds = list(rates(samples, case, dtype).values())
        other = sum(map(operator.ne, hypotheses, outputs[options.dtypes[0]]))
        found = score(hypotheses, references, [options.metric])[0].score
        taken = report.shown(spread([len(hypotheses) / speed for speed in speeds]))
        shares = f"{other:,} of {len(hypotheses):,}"
        rows.append([f"{test.name}, {dtype}", f"{found:.2f}", shares, taken, report.shown(spread(speeds))])
    return rows


def main() -> None:
    options = arguments()
    path = report.begin(options, "quality")
    try:
        rows = [row for test in options.tests for row in measure(options, test, path)]
    except NmtError as error:
        raise SystemExit(f"error: {error}") from error
    result = report.Report("quality", METHOD)
    result.add(report.table(["", options.metric, "other outputs", "seconds", "sentences/s"], rows))
    result.write(options.out)
    print(options.out / "quality.md")


if __name__ == "__main__":
    main()
