"""Outputs that begin with a given text.

Letters: N live hypotheses, V vocabulary.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import NamedTuple

import torch
from torch import Tensor

from nmt_cli.annexes.search.settings import PrefixConfig
from nmt_cli.data.vocabulary import SPACE, Vocabulary
from nmt_cli.decoding.constraints import AllOf, Rule, rules_of
from nmt_cli.decoding.encoding import CHARACTERS_PER_TOKEN
from nmt_cli.decoding.engine import Request
from nmt_cli.decoding.options import SearchSettings, TranslateOptions
from nmt_cli.errors import DataError
from nmt_cli.interfaces import UNK, Constraint
from nmt_cli.task import Task
from nmt_cli.tasks.translation import TranslationTask

_LONGEST_OPEN_TEXT = 32


class Prefix(NamedTuple):
    """The required beginning of an output: `ids`, and then a text that begins with `rest`."""

    ids: list[int]
    rest: str  # "" if any token may follow the ids


FREE = Prefix([], "")  # the prefix of an output that may begin with anything


class Prefixes(Rule):
    """Outputs begin with the prefixes of their lines. The other rules hold after these."""

    def __init__(self, config: PrefixConfig, *, task: Task, options: TranslateOptions) -> None:
        self.task, self.limit = task, options.max_source_length
        self.others = rules_of(task, options)

    def prepared(self, request: Request) -> Request:
        """See `Rule`. The text that is left open needs a token a letter at most.

        Raises:
            DataError: the prefix is too long, or the task cannot read it.
        """
        for rule in self.others:
            request = rule.prepared(request)
        prefix = self._prefix(request)
        return request._replace(limit=max(request.limit, len(prefix.ids) + len(prefix.rest)))

    def constraint(
        self, requests: Sequence[Request], search: SearchSettings, device: torch.device
    ) -> Constraint:
        """See `Rule`."""
        after = AllOf([rule.constraint(requests, search, device) for rule in self.others])
        prefixes = [self._prefix(request) for request in requests]
        continuations = partial(continuations_of, self.task)
        return BeginsWith(prefixes, continuations, after, search.unknown)

    def _prefix(self, request: Request) -> Prefix:
        if not request.prefix:
            return FREE
        name = f"the prefix of line {request.number}"
        too_long = f"{name} has more than {self.limit} tokens (--max-source-length); shorten it"
        if len(request.prefix) > self.limit * CHARACTERS_PER_TOKEN:
            raise DataError(too_long)
        try:
            prefix = encode_prefix(self.task, request.prefix)
        except DataError as error:
            raise DataError(f"{name}: {error}") from error
        first_symbol = self.task.target_vocabulary_size - self.task.never_generated
        if any(i >= first_symbol for i in prefix.ids):
            raise DataError(f"{name} has a symbol, which outputs do not have; leave it out")
        if len(prefix.ids) > self.limit:
            raise DataError(too_long)
        return prefix


def encode_prefix(task: Task, line: str) -> Prefix:
    """Return the prefix of an output that must begin with `line`.

    A space at its end ends its last word. An output of a task without words begins with all ids of
    the line.
    """
    if not isinstance(task, TranslationTask):
        return Prefix(task.encode_target(line), "")
    (text,) = task.normalised([line], 1)
    text = text.lstrip()
    if text and line[-1:].isspace() and not text[-1].isspace():  # normalisation strips lines
        text += " "
    return encode_text(task.vocabularies()[1], text)


def encode_text(vocabulary: Vocabulary, text: str) -> Prefix:
    """Return the prefix of a line that begins with `text`, which does not begin with a space.

    The words before the last space are encoded. What follows it may be the beginning of a word. Its
    pieces are left open, because `Ha` is often not the first piece of `Haus`. Of a long or unknown
    word, only the last letters are left open.
    """
    if vocabulary.spaces_follow:  # the last word is whole
        return Prefix(vocabulary.encode(text), "")
    words, _, beginning = text.rpartition(" ")
    rest = SPACE + beginning
    if len(rest) <= _LONGEST_OPEN_TEXT and continuations(vocabulary).of(rest):
        return Prefix(vocabulary.encode(words), rest)
    ids = vocabulary.encode(text)
    rest = ""
    while ids:
        piece = vocabulary.texts[ids[-1]]
        if not piece or len(piece + rest) > _LONGEST_OPEN_TEXT:
            break
        rest = piece + rest
        ids = ids[:-1]
    return Prefix(ids, rest)


def continuations_of(task: Task, rest: str) -> Mapping[int, str]:
    """Return the target ids that may come next, each with what then is left of `rest`."""
    if not isinstance(task, TranslationTask):
        return {}
    _, vocabulary = task.vocabularies()
    return continuations(vocabulary).of(rest)


@lru_cache(maxsize=4)
def continuations(vocabulary: Vocabulary) -> Continuations:
    return Continuations(vocabulary.texts)


@dataclass(frozen=True)
class BeginsWith:
    """Each output begins with its prefix.

    The constraint `then` holds after the prefix, and knows its tokens.
    """

    prefixes: Sequence[Prefix]  # what is left of the prefix of each row
    continuations: Callable[[str], Mapping[int, str]]  # as `continuations_of`
    then: Constraint
    unknown: bool = True  # the unknown word may follow, too

    def restrict(self, scores: Tensor) -> None:
        """Set `scores` [N, V] to -inf for tokens that do not continue the prefix.

        After the prefix, do as `then` does.
        """
        # `then` does not hold inside of a prefix, so the scores there are saved from it.
        saved = [(place, scores[place]) for place in self._places(scores.device)]
        self.then.restrict(scores)
        if not self.unknown:
            scores[:, UNK] = -torch.inf
        inside = [row for row, prefix in enumerate(self.prefixes) if prefix != FREE]
        scores[torch.tensor(inside, dtype=torch.long, device=scores.device)] = -torch.inf
        for place, values in saved:
            scores[place] = values

    def advance(self, rows: Tensor, tokens: Tensor) -> BeginsWith:
        """See `Constraint`."""
        prefixes = []
        for row, token in zip(rows.tolist(), tokens.tolist(), strict=True):
            prefixes.append(self._after(row, token))
        return replace(self, prefixes=prefixes, then=self.then.advance(rows, tokens))

    def _places(self, device: torch.device) -> list[tuple[Tensor, Tensor]]:
        """Return the rows and columns of scores that continue prefixes. They broadcast."""
        rows_of = defaultdict[str, list[int]](list)  # by the text that must follow
        forced_rows = list[int]()
        forced_ids = list[int]()
        for row, prefix in enumerate(self.prefixes):
            if prefix.ids:
                forced_rows.append(row)
                forced_ids.append(prefix.ids[0])
            elif prefix.rest:
                rows_of[prefix.rest].append(row)
        places = []
        for rest, rows in rows_of.items():
            columns = torch.tensor(list(self.continuations(rest)), device=device)
            places.append((torch.tensor(rows, device=device).unsqueeze(1), columns))
        if forced_rows:
            columns = torch.tensor(forced_ids, device=device)
            places.append((torch.tensor(forced_rows, device=device), columns))
        return places

    def _after(self, row: int, token: int) -> Prefix:
        """Return what is left of a row's prefix after `token`."""
        ids, rest = self.prefixes[row]
        if ids:
            return Prefix(ids[1:], rest)
        if not rest:
            return FREE
        # A token that is not allowed has a score of -inf. What follows it does not matter.
        return Prefix([], self.continuations(rest).get(token, ""))


class Continuations:
    """Finds the pieces with which a line can go on where the next letters are given.

    Args:
        texts: of all ids.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._ids = {text: i for i, text in enumerate(texts) if text}
        self._sorted = sorted(self._ids)
        self._longest = max(map(len, self._sorted), default=0)
        self.of = lru_cache(1024)(self._of)

    def _of(self, rest: str) -> Mapping[int, str]:
        """Return the ids that may come next, each with what then is left of `rest`.

        A piece that is only the beginning of `rest` is left out if no pieces spell what is left.
        """
        spelled = self._spelled(rest)
        left = {}
        for size, i in self._beginnings(rest):
            if spelled[size]:
                left[i] = rest[size:]
        for text in self._starting_with(rest):
            left[self._ids[text]] = ""
        return left

    def _spelled(self, rest: str) -> list[bool]:
        """Return for each position of `rest` whether pieces can spell what begins there.

        The last piece may go on beyond it.
        """
        spelled = [True] * (len(rest) + 1)
        for start in reversed(range(len(rest))):
            tail = rest[start:]
            goes_beyond = next(self._starting_with(tail), None) is not None
            spelled[start] = goes_beyond or any(
                spelled[start + size] for size, _ in self._beginnings(tail)
            )
        return spelled

    def _beginnings(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the length and id of each piece that `text` begins with."""
        for size in range(1, min(len(text), self._longest) + 1):
            i = self._ids.get(text[:size])
            if i is not None:
                yield size, i

    def _starting_with(self, text: str) -> Iterator[str]:
        """Yield the pieces that begin with `text`."""
        for place in range(bisect_left(self._sorted, text), len(self._sorted)):
            if not self._sorted[place].startswith(text):
                return
            yield self._sorted[place]
