"""Results of `nmt translate` and `nmt score-targets` from the ranks of torchrun.

The ranks take turns at the windows of the input. They write the results to files, the parts, in a
hidden directory beside the output, and rank 0 joins them. The directory's name has a hash of all
that results depend on. So the same command goes on from the parts of one that was killed, and parts
of other settings are never joined.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from nmt_cli import __version__
from nmt_cli.checkpoint import resumable_of
from nmt_cli.commands.translate_streams import Advance, Results, Totals, Windows, Work
from nmt_cli.distributed import join_world
from nmt_cli.errors import NmtError
from nmt_cli.files import durable


@contextmanager
def shared_results(
    options: Any,
) -> Iterator[Callable[[Windows, Work, Advance], Iterator[Results]]]:
    """Join the ranks. Yield the function that yields all results in order, in rank 0 alone.

    The parts are deleted after a block without an error.

    Args:
        options: the flags of the command, as rank 0 has them.
    """
    parts = parts_folder(options)

    def results(windows: Windows, work: Work, advance: Advance) -> Iterator[Results]:
        first = 1  # the number of the first line
        count = 0
        for count, (lines, others) in enumerate(windows, start=1):
            part = parts / str(count)
            if count % world.size == world.rank and not os.path.lexists(part):
                parts.mkdir(exist_ok=True)
                result = work(advance, first, lines, others)
                durable.write_text(part, json.dumps(result, default=vars, ensure_ascii=False))
            else:
                advance(lines)
            first += len(lines)
        world.barrier()
        if world.is_main:
            for number in range(1, count + 1):
                yield read_part(parts / str(number), world.size)

    # One window may take long.
    with join_world(options.device, timeout_minutes=24 * 60, on_gpus=False) as world:
        yield results
        if world.is_main:
            durable.discard(parts)


def read_part(path: Path, ranks: int) -> Results:
    durable.check_ours(path)
    try:
        texts, totals, warnings = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise NmtError(
            f"{path}: this part is missing. All processes must see the same files, --output too"
        ) from error
    totals["seconds"] = totals["seconds"] / ranks  # as the ranks compute at the same time
    totals["repairs"] = Counter(totals["repairs"])
    return texts, Totals(**totals), warnings


def parts_folder(options: Any) -> Path:
    """Return the directory of the parts.

    Its name has a hash of the version, the flags, and the size and time of each file.
    """
    states = []
    for path in _paths(options):
        if path == options.output:
            continue
        checkpoints = resumable_of(path)
        if checkpoints:  # a run stands for its newest checkpoint
            path = checkpoints[-1]
        for file in [path, *sorted(path.rglob("*"))]:
            if file.is_file():
                state = file.stat()
                states.append((str(file), state.st_size, state.st_mtime_ns))
    identity = repr((__version__, options, states))
    digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
    parts: Path = options.output.with_name(f".{options.output.name[:50]}.{digest}.parts")
    durable.check_ours(parts, directory=True)
    return parts


def _paths(value: Any) -> list[Path]:
    """Return the paths in options, in dataclasses, dictionaries and tuples of any depth."""
    if isinstance(value, Path):
        return [value]
    if is_dataclass(value):
        value = vars(value)
    if isinstance(value, dict):
        value = tuple(value.values())
    if not isinstance(value, tuple):
        return []
    paths = list[Path]()
    for entry in value:
        paths += _paths(entry)
    return paths
