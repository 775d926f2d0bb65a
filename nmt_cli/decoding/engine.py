"""Other programs that search for outputs in place of `beam_search.py`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from nmt_cli.decoding.options import TranslateOptions
from nmt_cli.interfaces import Hypothesis


class Request(NamedTuple):
    """A sentence to translate."""

    source: list[int]  # ids without EOS
    limit: int  # maximum number of tokens of an output, without EOS


@runtime_checkable
class Engine(Protocol):
    """A model in another program, which has its own search, and its own threads for the batches of a call."""

    @property
    def parallel(self) -> int:
        """The number of batches that it translates at a time."""

    def check(self, options: TranslateOptions) -> None:
        """Raise UsageError that names an option, if the program has none that means the same."""

    def search(
        self, batches: Sequence[Sequence[Request]], options: TranslateOptions
    ) -> Iterator[list[list[Hypothesis]]]:
        """Yield the `nbest` best outputs of each sentence of each batch, in order, as `beam_search` returns them."""
