"""Whole commands that translate a file, start and end included, beside a script with CTranslate2.

    python -m benchmarks.end_to_end CHECKPOINT --input FILE [--reference FILE] [--out DIRECTORY]

All search with beam 4 and all cores. The outputs end at different lengths, as in real use.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ctranslate2
import sacrebleu

from benchmarks import report
from benchmarks.commands import Run, run
from benchmarks.samples import spread
from nmt_cli.checkpoint import TASK, load_task
from nmt_cli.files.text import read_lines

NMT = (sys.executable, "-m", "nmt_cli")
SCRIPT = (sys.executable, "-m", "benchmarks.peers.script")
DTYPES = ("float32", "int8")
HEAD = ("", "seconds", "processor seconds", "memory, MB", "BLEU", "one line, seconds")
METHOD = """
Each command reads {lines:,} lines of text and writes a file, and then the first line alone. Seconds
are medians over the rounds with the quartiles in brackets. In each round, each command runs once.
Processor seconds are those of all processes together. Memory is the peak over all processes, with
shared pages counted once, in a run before the rounds. The script is benchmarks/peers/script.py.
CTranslate2 divides a score by length^0.6, and nmt by ((5 + length) / 6)^0.6, so outputs of the same
weights differ.
"""
Commands = dict[str, list[str]]  # by name, without input and output


def commands(checkpoint: Path, task: Any, cores: int, folder: Path) -> Commands:
    """Return the commands. The exports for CTranslate2 are written to `folder`."""
    pieces = folder / "pieces"
    pieces.write_bytes(task.vocabularies()[0].serialise())
    text = ["--threads", str(cores), *(["--lowercase"] if task.config.lowercase else [])]
    text += ["--moses", *task.languages] if task.config.moses else []
    command_lines = {}
    for dtype in DTYPES:
        export = str(folder / dtype)
        run(
            [
                *NMT,
                "export",
                str(checkpoint),
                "--to",
                "ctranslate2",
                "--quantization",
                dtype,
                "--out",
                export,
            ]
        )
        translate = [*NMT, "translate", "--quiet", "--workers", str(cores), "--dtype", dtype]
        command_lines[f"nmt translate, {dtype}"] = [*translate, str(checkpoint)]
        engine = ["--engine", "ctranslate2", str(folder / DTYPES[0])]  # nmt keeps float32, too
        command_lines[f"nmt translate --engine ctranslate2, {dtype}"] = [*translate, *engine]
        command_lines[f"CTranslate2 script, {dtype}"] = [*SCRIPT, *text, export, str(pieces)]
    return command_lines


def measure(
    command_lines: Commands, files: Mapping[str, Path], output: Path, rounds: int
) -> dict[tuple[str, str], list[Run]]:
    """Return the runs of each command with each file, which take turns."""
    runs: dict[tuple[str, str], list[Run]] = {}
    for _ in range(rounds):
        for name, command in command_lines.items():
            for case, path in files.items():
                runs.setdefault((name, case), []).append(translated(command, path, output))
    return runs


def translated(command: Sequence[str], source: Path, output: Path, watched: bool = False) -> Run:
    """Run a command on a file."""
    return run([*command, "--input", str(source), "--output", str(output)], watched)


def bleu(output: Path, reference: Path | None, lowercase: bool) -> str:
    """Return sacreBLEU's BLEU. Nothing without a reference."""
    if reference is None:
        return ""
    hypotheses, references = (list(read_lines(path)) for path in (output, reference))
    return f"{sacrebleu.corpus_bleu(hypotheses, [references], lowercase=lowercase).score:.2f}"


def main() -> None:
    parser = report.parser("end_to_end", __doc__, rounds=5)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--input", type=Path, required=True, metavar="FILE")
    parser.add_argument("--reference", type=Path, metavar="FILE")
    parser.add_argument(
        "--cores", type=report.positive, default=report.cores(), metavar="N", help="default: all"
    )
    options = parser.parse_args()
    lines = list(read_lines(options.input))
    task: Any = load_task(options.checkpoint / TASK)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files, output = {"text": options.input, "line": folder / "line"}, folder / "output"
        files["line"].write_text(f"{lines[0]}\n", encoding="utf-8")
        command_lines = commands(options.checkpoint, task, options.cores, folder)
        memory, scores = {}, {}
        for system, command in command_lines.items():
            memory[system] = translated(command, options.input, output, watched=True).megabytes
            scores[system] = bleu(output, options.reference, task.config.lowercase)
        runs = measure(command_lines, files, output, options.rounds)
    rows = []
    for system in command_lines:
        seconds, one = (
            report.shown(spread([run.seconds for run in runs[system, case]])) for case in files
        )
        processor = report.shown(spread([run.processor_seconds for run in runs[system, "text"]]))
        rows.append(
            [system, seconds, processor, report.digits(memory[system]), scores[system], one]
        )
    versions = [f"ctranslate2 {ctranslate2.__version__}"]
    method = METHOD.format(lines=len(lines))
    report.publish(
        options.out, "end_to_end", options.rounds, method, [report.table(HEAD, rows)], versions
    )


if __name__ == "__main__":
    main()
