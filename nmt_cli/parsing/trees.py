"""Constituency trees in Penn-style brackets: finding, reading, cleaning and writing them.

A tree is stored flat, as the events of a depth-first walk, so that its depth is not limited by recursion.

A word is any text without ASCII white space and round brackets. Treebanks write round brackets as `-LRB-` and `-RRB-`.
A leaf of several words, `(NN in vitro)`, becomes one word joined by no-break spaces when it is cleaned. Only ASCII
white space separates words: CRAFT has words that contain thin spaces.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from nmt_cli.errors import DataError
from nmt_cli.files.text import plain_or_compressed, read_lines, without_compression

TREEBANK_ENDINGS = (".mrg", ".parse", ".ptb")
"""Endings of treebank files, compressed or not; other files in a treebank's directories are ignored."""

ROOT_LABEL = "TOP"  # the label of the root of every cleaned tree
WRAPPERS = frozenset(("", "TOP", "ROOT", "S1"))  # labels of outermost constituents that are replaced by the root

TRACE_TAG = "-NONE-"
_NO_BREAK_SPACE = "\u00a0"
_TOKEN = re.compile(r"[()]|[^ \t\v\f\r()]+")
_FUNCTION = re.compile(r"[-=|]")


@dataclass(frozen=True, slots=True)
class Open:
    """The start of a constituent."""

    label: str


@dataclass(frozen=True, slots=True)
class Leaf:
    """A preterminal: a word and its part-of-speech tag."""

    tag: str
    word: str


@dataclass(frozen=True, slots=True)
class Close:
    """The end of the constituent that was opened last."""

    label: str


Event = Open | Leaf | Close


@dataclass(frozen=True, slots=True)
class Tree:
    """One tree: an `Open` and its `Close` around all other events, or a single `Leaf`."""

    events: tuple[Event, ...]

    @property
    def leaves(self) -> list[Leaf]:
        return [event for event in self.events if isinstance(event, Leaf)]

    @property
    def words(self) -> list[str]:
        return [leaf.word for leaf in self.leaves]

    @property
    def tags(self) -> list[str]:
        return [leaf.tag for leaf in self.leaves]

    def with_tags(self, tags: Iterable[str]) -> Tree:
        """Return the tree with other tags, one for each word."""
        pairs = zip(self.leaves, tags, strict=True)
        leaves = iter([Leaf(tag, leaf.word) for leaf, tag in pairs])
        return Tree(tuple(next(leaves) if isinstance(event, Leaf) else event for event in self.events))


class PlacedTree(NamedTuple):
    """A tree and the place of its first bracket for messages, such as `wsj_0001.mrg:17`."""

    tree: Tree
    place: str


def treebank_files(name: str) -> list[Path]:
    """Return the file `name`, plain or compressed, or all treebank files below the directory `name`, sorted by path.

    Raises:
        DataError: there is no such file or directory, or the directory has no treebank file.
    """
    path = Path(name)
    if path.is_dir():
        files = (p for p in path.rglob("*") if p.is_file())
        found = sorted(p for p in files if without_compression(p.name).endswith(TREEBANK_ENDINGS))
        if not found:
            raise DataError(
                f"{path}: no file in this directory or below ends in {', '.join(TREEBANK_ENDINGS)}, compressed or not"
            )
        return found
    if file := plain_or_compressed(path):
        return [file]
    raise DataError(f"{path}: there is no such file or directory of trees, nor a compressed file, as {path}.gz")


def parse_trees(lines: Iterable[str], name: str) -> Iterator[PlacedTree]:
    """Yield the trees in `lines` of the file `name`; a tree may span lines.

    Raises:
        DataError: unbalanced brackets, text outside brackets, a word without a tag, or an empty bracket. The message
            names the file and the line.
    """
    reader = _TreeReader(name)
    for number, line in enumerate(lines, start=1):
        yield from reader.read(line, number)
    if reader.stack:
        raise reader.not_closed("the end of the file")


def line_tree(line: str) -> Tree:
    """Return the one tree of a line that `tree_line` wrote.

    Raises:
        DataError: as `parse_trees`; or the line has no tree, or several.
    """
    placed = list(parse_trees([line], "tree"))
    if len(placed) != 1:
        raise DataError(f"expected one tree on the line, found {len(placed)}")
    return placed[0].tree


def clean(tree: Tree) -> Tree | None:
    """Return the tree without traces, empty constituents, functional tags and indices, under the root TOP.

    NP-SBJ-1 and NP=2 become NP, PRT|ADVP becomes PRT; part-of-speech tags are unchanged. Unlabelled constituents inside
    the tree are removed, their children kept. The result has the constituents that EVALB compares.

    Returns:
        None if no word is left.
    """
    kept: list[Event] = []
    open_labels: list[str] = []  # of all open constituents, "" for those that are removed
    depth = 0  # of those that are kept
    waiting: list[Open] = []  # opened, but still without a word
    for event in tree.events:
        if isinstance(event, Open):
            label = _FUNCTION.split(event.label, maxsplit=1)[0] or event.label  # -LRB- stays
            label = "" if depth == 0 and label in WRAPPERS else label
            open_labels.append(label)
            if label:
                depth += 1
                waiting.append(Open(label))
        elif isinstance(event, Leaf):
            if event.tag != TRACE_TAG:
                kept += waiting
                waiting.clear()
                kept.append(Leaf(event.tag, event.word.replace(" ", _NO_BREAK_SPACE)))
        elif label := open_labels.pop():
            depth -= 1
            if waiting:
                waiting.pop()
            else:
                kept.append(Close(label))
    return Tree((Open(ROOT_LABEL), *kept, Close(ROOT_LABEL))) if kept else None


def read_clean_trees(path: Path, consumed: Callable[[int], None] | None = None) -> Iterator[PlacedTree]:
    """Yield the cleaned trees of a file, plain or compressed.

    Args:
        consumed: as in `read_lines`.

    Raises:
        DataError: as `read_lines` and `parse_trees`, and for a tree that has only traces.
    """
    for tree, place in parse_trees(read_lines(path, consumed), str(path)):
        cleaned = clean(tree)
        if cleaned is None:
            raise DataError(f"{place}: a tree without words, only traces; remove it from the file")
        yield PlacedTree(cleaned, place)


def tree_line(tree: Tree) -> str:
    """Return the tree in brackets on one line: `(TOP (NP (DT the) (NN cat)))`."""
    parts = []
    for event in tree.events:
        match event:
            case Open(label):
                parts.append(f" ({label}")
            case Leaf(tag, word):
                parts.append(f" ({tag} {word})")
            case _:
                parts.append(")")
    return "".join(parts).removeprefix(" ")


def line_words(line: str) -> list[str]:
    """Return the words of an input line, separated by ASCII white space, with round brackets as -LRB- and -RRB-."""
    return re.findall(r"[^ \t\n\v\f\r]+", line.replace("(", "-LRB-").replace(")", "-RRB-"))


def retagged(test: str, gold: str) -> str | None:
    """Return the tree in the line `test` with the tags of the tree in the line `gold`; traces are ignored.

    Returns:
        None if one of the lines is not one well-formed tree, or the words differ.
    """
    try:
        tested, right = (line_tree(line) for line in (test, gold))
    except DataError:
        return None
    if tested.words == right.words:
        return tree_line(tested.with_tags(right.tags))
    leaves, gold_leaves = ([leaf for leaf in tree.leaves if leaf.tag != TRACE_TAG] for tree in (tested, right))
    if [leaf.word for leaf in leaves] != [leaf.word for leaf in gold_leaves]:
        return None
    tags = iter([leaf.tag for leaf in gold_leaves])
    return tree_line(tested.with_tags([TRACE_TAG if leaf.tag == TRACE_TAG else next(tags) for leaf in tested.leaves]))


@dataclass(slots=True)
class _Bracket:
    """An open bracket: a constituent if a bracket follows in it, a leaf if text follows the label."""

    label: str | None = None
    words: list[str] = field(default_factory=list)
    is_constituent: bool = False


class _TreeReader:
    """Reads tokens with an explicit stack of open brackets."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stack: list[_Bracket] = []
        self.events: list[Event] = []
        self.start = 0  # line of the tree's first bracket
        self.line = 0

    def read(self, line: str, number: int) -> Iterator[PlacedTree]:
        if self.stack:
            self._check_not_next_tree(line, number)
        self.line = number
        for token in _TOKEN.findall(line):
            if token == "(":
                self._open()
            elif token != ")":
                self._text(token)
            else:
                self._close()
                if not self.stack:
                    yield PlacedTree(Tree(tuple(self.events)), f"{self.name}:{self.start}")
                    self.events.clear()

    def not_closed(self, where: str) -> DataError:
        return DataError(
            f"{self.name}:{self.start}: unbalanced brackets: {len(self.stack)} brackets of the tree that begins here "
            f"are still open at {where}; add the missing closing brackets"
        )

    def _check_not_next_tree(self, line: str, number: int) -> None:
        """Raise if a tree is still open where the next one begins, which would become a part of it."""
        if not line.strip(" \t\v\f\r"):
            raise self.not_closed(f"the empty line {number}")
        first = _TOKEN.findall(line[:16])[:2]
        root = self.stack[0].label or ""
        label = first[1] if len(first) > 1 and first[1] not in "()" else ""
        if line.startswith("(") and root in WRAPPERS and label == root:
            raise self.not_closed(f"the next tree, which begins in line {number}")

    def _open(self) -> None:
        if not self.stack:
            self.start = self.line
        else:
            around = self.stack[-1]
            if around.words:
                raise self._untagged(around.words[0])
            if not around.is_constituent:
                around.is_constituent = True
                self.events.append(Open(around.label or ""))
        self.stack.append(_Bracket())

    def _text(self, token: str) -> None:
        if not self.stack:
            raise self._error(f"text outside all brackets: {token!r}; write trees as (S (NP (DT the) (NN cat)) ...)")
        around = self.stack[-1]
        if around.is_constituent:
            raise self._untagged(token)
        if around.label is None:
            around.label = token
        else:
            around.words.append(token)

    def _close(self) -> None:
        if not self.stack:
            raise self._error("unbalanced brackets: a closing bracket without an opening one; remove it")
        bracket = self.stack.pop()
        label = bracket.label or ""
        if bracket.is_constituent:
            self.events.append(Close(label))
        elif bracket.words:
            self.events.append(Leaf(label, " ".join(bracket.words)))
        elif self.stack:
            raise self._error(f"the bracket ({label}) is empty; write leaves as (NN cat)")
        else:
            raise self._error(f"a tree without words: ({label})")

    def _untagged(self, word: str) -> DataError:
        return self._error(f"the word {word!r} has no tag; write (NN {word})")

    def _error(self, message: str) -> DataError:
        return DataError(f"{self.name}:{self.line}: {message}")
