"""The seam for programs that search: nmt's own search (`own_engine.py`), or another program.

Another program is found by an entry point of the group `nmt.engines`. Its name is the value of
`--engine`, and it refers to a `Load`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from nmt_cli.cores import Sizes
from nmt_cli.decoding.options import SearchSettings, TranslateOptions
from nmt_cli.errors import UsageError, missing_package, nearest
from nmt_cli.interfaces import Hypothesis
from nmt_cli.registry import entry_points
from nmt_cli.task import Task

if TYPE_CHECKING:
    from nmt_cli.data.parallel import Workers
    from nmt_cli.model import Model

OWN = "nmt"
GROUP = "nmt.engines"


class Request(NamedTuple):
    """A line to translate, with all that its outputs depend on."""

    ids: list[int]  # without EOS
    limit: int  # maximum number of tokens of an output, without EOS
    prefix: str = ""  # the text that the outputs must begin with
    line: str = ""
    number: int = 1  # in the whole input, from 1
    truncated: bool = False  # `ids` are the beginning of the line


class Engine(Protocol):
    """A loaded model, its task, and the search that uses it."""

    @property
    def task(self) -> Task:
        """Makes ids of text, and text of ids."""

    @property
    def sizes(self) -> Sizes:
        """The bounds of the batches that suit the device."""

    @property
    def models(self) -> Sequence[Model]:
        """The members of the ensemble as they were trained, in evaluation mode.

        Another program has none.
        """

    @property
    def folders(self) -> Sequence[Path]:
        """The checkpoints of the models, if they were loaded."""

    @property
    def positions(self) -> int | None:
        """The number of positions that the models have learned, or None without a limit."""

    @property
    def parallel(self) -> int:
        """The number of batches that it searches at a time, in threads of this process."""

    def workers(self, translator: Any, count: int | None) -> AbstractContextManager[Workers | None]:
        """Return processes for `Translator.translate_window`, or None if this process is enough.

        Args:
            translator: of this engine.
            count: the number of processes. None leaves it to the engine.

        Raises:
            UsageError: the device is not for several processes.
        """

    def check(self, options: TranslateOptions) -> None:
        """Raise UsageError that names an option, if the engine has none that means the same."""

    def search(
        self,
        batches: Sequence[Sequence[Request]],
        search: SearchSettings,
        options: TranslateOptions,
    ) -> Iterator[list[list[Hypothesis]]]:
        """Yield what `beam_search` returns for each batch, in order.

        Raises:
            UsageError: a line has a prefix, and the engine cannot begin an output with one.
        """


@dataclass(frozen=True, kw_only=True)
class Loading:
    """What an engine loads, and what for."""

    checkpoints: Sequence[Path]  # at least one. A run stands for its newest checkpoint
    options: TranslateOptions
    device: str  # such as `auto` or `cuda:1`: see `gpu_called`
    dtype: str  # of the matrix products: one of `DTYPES`
    workers: int | None  # batches to search at a time, for an engine with threads of its own
    scores: bool  # whether the scores of outputs are needed
    say: Callable[[str], None]  # called with messages for the user


Load = Callable[[Loading], Engine]
"""Loads a checkpoint, or several as an ensemble.

Raises:
    UsageError: the engine lacks something that is asked for.
    CheckpointError: a checkpoint is missing or damaged, or does not fit the others.
    NmtError: it cannot be loaded.
"""


def names() -> list[str]:
    """Return the names of the engines that are installed, our own first."""
    return [OWN, *sorted(entry_points(GROUP).names)]


def find(name: str) -> Load:
    """Import another program's `Load`.

    Raises:
        UsageError: there is no such engine, or a package that it needs is not installed.
    """
    if name not in names():
        raise UsageError(f"there is no engine called {name!r}. {nearest(name, names())}")
    try:
        load: Load = entry_points(GROUP)[name].load()
    except ModuleNotFoundError as error:
        raise missing_package(f"--engine {name}", error) from error
    return load
