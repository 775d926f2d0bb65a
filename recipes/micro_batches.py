"""Into how many micro-batches a training must cut its updates: prints the number, or nothing where no flag is needed.

micro_batches.py PROCESSES RUN FLAGS OF nmt train...

The number is part of what defines a run. A run that was begun keeps its own, on any number of processes. A new one has
the number that `nmt train` gives it by itself (8 for the paper's batch), or the next larger one that PROCESSES divides.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from pathlib import Path

FLAG = "--micro-batches"


def needed(processes: int, run: Path, flags: list[str]) -> int | None:
    """What to give as --micro-batches; None where nothing is to be given."""
    if any(flag.split("=")[0] == FLAG for flag in flags):
        return None  # the user has said it
    try:
        begun: int | None = json.loads((run / "config.json").read_text(encoding="utf-8"))["training"]["micro_batches"]
        return begun
    except (OSError, ValueError, KeyError, TypeError):
        pass  # a new run, or one whose configuration is damaged: nmt train will see
    if processes == 1:
        return None
    usual = usual_number(flags)
    return None if usual % processes == 0 else -(-usual // processes) * processes


def usual_number(flags: list[str]) -> int:
    """How many micro-batches `nmt train` makes with these flags.

    Raises:
        SystemExit: it refuses them, and has said why.
    """
    from nmt_cli.cli import main  # PyTorch comes with these two; it is slow to import, and seldom needed here
    from nmt_cli.data.batching import derived_micro_batches

    with contextlib.redirect_stdout(io.StringIO()) as shown:
        try:
            main(["train", *flags, "--vocab-size", "1000", "--dry-run", "--json"])
        except SystemExit as ended:
            if ended.code:
                raise
    training = json.loads(shown.getvalue())["config"]["training"]
    number: int = training["micro_batches"] or derived_micro_batches(training["batch_tokens"])
    return number


if __name__ == "__main__":
    answer = needed(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
    if answer is not None:
        print(answer)
