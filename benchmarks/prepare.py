"""Speed and memory of `nmt prepare`, beside SentencePiece's own encoder.

    python -m benchmarks.prepare --source-lang en --target-lang de corpus/train [--out DIRECTORY]

The text is repeated, with an edit in each line, up to the sizes asked for.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import sentencepiece

from benchmarks import report
from benchmarks.commands import Run, run
from benchmarks.samples import Sample, ratio, speed
from nmt_cli.files.text import find_file, read_lines
from nmt_cli.tasks.translation import TranslationTask

PEER = "SentencePiece"
CASES = [{"workers": workers, "moses": moses} for moses in (False, True) for workers in (1, 2)]
VOCABULARY = ("--vocab-size", "8000", "--sample-pairs", "100000")
METHOD = """
`nmt prepare` cleans and encodes training text: the seconds are from the passes "reading train" and
"encoding train", without learning the vocabulary. SentencePiece encodes the same lines with the
same vocabulary in one batch call with as many threads, and does nothing else. Both take turns.
Medians over the rounds, with the quartiles in brackets.
"""
GROWTH = """
The whole command with all cores, BPE with 8,000 entries learned from 100,000 pairs. Memory is the
peak over all its processes, with shared pages counted once.
"""


def write_corpus(prefix: str, languages: Sequence[str], count: int, folder: Path) -> str:
    """Write `count` pairs to `folder`, the text again and again with a number in each line.

    Return their prefix.
    """
    for language in languages:
        lines = list(read_lines(find_file(prefix, language)))
        with (folder / f"{count}.{language}").open("w", encoding="utf-8", newline="\n") as file:
            for number in range(count):
                again, place = divmod(number, len(lines))
                file.write(f"{lines[place]} {again}\n" if again else f"{lines[place]}\n")
    return str(folder / str(count))


def prepare(prefix: str, languages: Sequence[str], out: Path, *flags: str) -> Run:
    """Run `nmt prepare`."""
    command = [
        sys.executable,
        *"-m nmt_cli prepare --train".split(),
        prefix,
        "--out",
        str(out),
        "--overwrite",
    ]
    return run(
        [
            *command,
            "--source-lang",
            languages[0],
            "--target-lang",
            languages[1],
            *VOCABULARY,
            *flags,
        ]
    )


def pass_seconds(said: str) -> dict[str, float]:
    """Return the seconds of each pass of `nmt prepare`, by its title."""
    return {
        title: float(value)
        for title, value in re.findall(r"^([\w ]+): done in ([\d.]+) s", said, re.MULTILINE)
    }


def measure(
    prefix: str, languages: Sequence[str], folder: Path, pairs: int, rounds: int
) -> Iterator[Sample]:
    """Yield samples of nmt and of SentencePiece, in turn, in each case."""
    lines = [
        line
        for language in languages
        for line in islice(read_lines(find_file(prefix, language)), pairs)
    ]
    for number in range(rounds):
        for case in CASES:
            flags = ["--workers", str(case["workers"]), *(["--moses"] if case["moses"] else [])]
            passes = pass_seconds(prepare(prefix, languages, folder / "data", *flags).said)
            yield Sample(
                case, "nmt", number, pairs, passes["reading train"] + passes["encoding train"]
            )
            vocabulary = TranslationTask.load(folder / "data" / "task").vocabularies()[0]
            processor = sentencepiece.SentencePieceProcessor(model_proto=vocabulary.serialise())
            start = time.perf_counter()
            processor.encode(lines, num_threads=case["workers"])
            yield Sample(case, PEER, number, pairs, time.perf_counter() - start)


def main() -> None:
    parser = report.parser("prepare", __doc__, rounds=3)
    parser.add_argument("prefix", help="parallel text, as for nmt prepare --train")
    parser.add_argument("--source-lang", required=True, metavar="LANG")
    parser.add_argument("--target-lang", required=True, metavar="LANG")
    parser.add_argument(
        "--pairs", type=report.positive, default=200_000, metavar="N", help="for the speed"
    )
    parser.add_argument(
        "--sizes", type=report.positive, nargs="*", default=[500_000, 2_000_000, 5_000_000]
    )
    options = parser.parse_args()
    languages = (options.source_lang, options.target_lang)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prefix = write_corpus(options.prefix, languages, options.pairs, folder)
        samples = list(measure(prefix, languages, folder, options.pairs, options.rounds))
        sizes = []
        for size in options.sizes:
            whole = prepare(
                write_corpus(options.prefix, languages, size, folder), languages, folder / "data"
            )
            sizes.append(
                [f"{size:,}", report.digits(whole.seconds), report.digits(whole.megabytes)]
            )
    rows = []
    for case in CASES:
        about = f"workers: {case['workers']}{', --moses' if case['moses'] else ''}"
        speeds = [report.shown(speed(samples, case, system)) for system in ("nmt", PEER)]
        rows.append([about, *speeds, report.shown(ratio(samples, case, "nmt", PEER))])
    parts = [report.table(["", "nmt, pairs/s", f"{PEER}, pairs/s", "ratio"], rows)]
    parts += [report.paragraph(GROWTH), report.table(["pairs", "seconds", "memory, MB"], sizes)]
    report.publish(options.out, "prepare", options.rounds, METHOD, parts)


if __name__ == "__main__":
    main()
