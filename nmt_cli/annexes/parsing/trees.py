"""Constituency trees in Penn-style brackets: finding, reading, cleaning and writing them.

A tree is stored flat, as the events of a depth-first walk, so that its depth is not limited by
recursion.

A word is any text without ASCII white space and round brackets. Treebanks write round brackets as
`-LRB-` and `-RRB-`. A leaf of several words, `(NN in vitro)`, becomes one word joined by no-break
spaces when it is cleaned. Only ASCII white space separates words: CRAFT has words that contain thin
spaces.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from nmt_cli.errors import DataError, shown
from nmt_cli.files.text import existing_file, read_lines, without_compression

# Endings of treebank files, compressed or not. Other files in a treebank's directories are ignored.
TREEBANK_ENDINGS = (".mrg", ".parse", ".ptb")

ROOT_LABEL = "TOP"  # the label of the root of every cleaned tree
# Labels of outermost constituents that are replaced by the root.
WRAPPERS = frozenset(("", "TOP", "ROOT", "S1"))

TRACE_TAG = "-NONE-"
_NO_BREAK_SPACE = "\u00a0"
_TOKEN = re.compile(r"[()]|[^\s()]+", re.ASCII)
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

    def with_tags(self, tags: Iterable[str]) -> Tree:
        """Return the tree with other tags, one for each word."""
        new_tags = iter(tags)
        events: list[Event] = []
        for event in self.events:
            if isinstance(event, Leaf):
                event = Leaf(next(new_tags), event.word)
            events.append(event)
        return Tree(tuple(events))


class PlacedTree(NamedTuple):
    """A tree and the place of its first bracket for messages, such as `wsj_0001.mrg:17`."""

    tree: Tree
    place: str


def treebank_files(name: str) -> list[Path]:
    """Return the file `name`, or all treebank files below the directory `name`, sorted by path.

    Files may be compressed.

    Raises:
        DataError: there is no such file or directory, or the directory has no treebank file.
    """
    folder = Path(name)
    if not folder.is_dir():
        return [existing_file(name)]
    files = []
    for path in folder.rglob("*"):
        if path.is_file() and without_compression(path.name).endswith(TREEBANK_ENDINGS):
            files.append(path)
    if not files:
        raise DataError(
            f"{folder}: no file in this directory or below ends in "
            f"{', '.join(TREEBANK_ENDINGS)}, compressed or not"
        )
    return sorted(files)


def parse_trees(lines: Iterable[str], name: str) -> Iterator[PlacedTree]:
    """Yield the trees in `lines` of the file `name`. A tree may span lines.

    Raises:
        DataError: unbalanced brackets, text outside brackets, a word without a tag, or an empty
            bracket. The message names the file and the line.
    """
    reader = _TreeReader()
    start = 0  # the line of the tree's first bracket
    beginning = ""  # the label or bracket after the tree's first bracket
    for number, line in enumerate(lines, start=1):
        tokens = _TOKEN.findall(line)
        # The outermost brackets of a treebank's trees begin alike, and are not indented.
        begins_tree = (
            line.startswith("(") and tokens[1:2] == [beginning] and beginning in {*WRAPPERS, "("}
        )
        if reader.inside and (begins_tree or not tokens):
            raise _not_closed(name, start, f"at line {number}")
        for position, token in enumerate(tokens):
            if not reader.inside:
                start = number
                beginning = "".join(tokens[position + 1 : position + 2])
            try:
                complete = reader.read(token)
            except ValueError as error:
                raise DataError(f"{name}:{number}: {error}") from error
            if complete:
                yield PlacedTree(Tree(tuple(reader.events)), f"{name}:{start}")
                reader.events.clear()
    if reader.inside:
        raise _not_closed(name, start, "at the end of the file")


def _not_closed(name: str, start: int, where: str) -> DataError:
    return DataError(
        f"{name}:{start}: unbalanced: closing brackets of the tree that begins here are missing "
        f"{where}"
    )


class _TreeReader:
    """Reads tokens of trees. Errors are ValueErrors."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.labels: list[str] = []  # of the open constituents
        # Tag and words of the innermost bracket, while it may be a leaf.
        self.texts: list[str] | None = None

    @property
    def inside(self) -> bool:
        """Whether a tree is open."""
        return self.texts is not None or bool(self.labels)

    def read(self, token: str) -> bool:
        """Read one token. Return whether it completes a tree."""
        if token == "(":
            self._open()
        elif token == ")":
            self._close()
            return not self.labels
        elif self.texts is not None:
            self.texts.append(token)
        elif self.labels:
            raise _untagged(token)
        else:
            raise ValueError(
                f"text outside all brackets: {shown(token)}; write trees as (S (NP (DT the) (NN "
                "cat)) ...)"
            )
        return False

    def _open(self) -> None:
        if self.texts is not None:
            label, *words = self.texts or [""]
            if words:
                raise _untagged(words[0])
            self.labels.append(label)
            self.events.append(Open(label))
        self.texts = []

    def _close(self) -> None:
        if self.texts is not None:
            if len(self.texts) < 2:
                raise ValueError(
                    f"the bracket ({''.join(self.texts)}) is empty; write leaves as (NN cat)"
                )
            self.events.append(Leaf(self.texts[0], " ".join(self.texts[1:])))
            self.texts = None
        elif self.labels:
            self.events.append(Close(self.labels.pop()))
        else:
            raise ValueError("unbalanced: a closing bracket without an opening one; remove it")


def _untagged(word: str) -> ValueError:
    return ValueError(f"the word {shown(word)} has no tag; write (NN {word})")


def line_tree(line: str) -> Tree:
    """Return the one tree of a line.

    Raises:
        DataError: as `parse_trees`, or the line has no tree or several.
    """
    trees = list(parse_trees([line], "tree"))
    if len(trees) != 1:
        raise DataError(f"expected one tree on the line, found {len(trees)}")
    return trees[0].tree


def clean(tree: Tree) -> Tree | None:
    """Return the tree, under the root TOP, with the constituents that EVALB compares.

    Traces, empty constituents, functional tags and indices are removed: NP-SBJ-1 and NP=2 become
    NP, PRT|ADVP becomes PRT. Part-of-speech tags are unchanged. Unlabelled constituents inside the
    tree are removed, and their children stay.

    Returns:
        None if no word is left.
    """
    events: list[Event] = [Open(ROOT_LABEL)]
    open_labels: list[str] = []  # "" for constituents that are removed
    for event in tree.events:
        match event:
            case Open(label):
                label = _FUNCTION.split(label, maxsplit=1)[0] or label  # -LRB- stays
                if label in WRAPPERS and not any(open_labels):
                    label = ""
                open_labels.append(label)
                if label:
                    events.append(Open(label))
            case Leaf(tag, word) if tag != TRACE_TAG:
                events.append(Leaf(tag, word.replace(" ", _NO_BREAK_SPACE)))
            case Close():
                label = open_labels.pop()
                if label and isinstance(events[-1], Open):
                    events.pop()  # it is empty
                elif label:
                    events.append(Close(label))
    if len(events) == 1:
        return None
    return Tree((*events, Close(ROOT_LABEL)))


def read_clean_trees(
    path: Path, consumed: Callable[[int], None] | None = None
) -> Iterator[PlacedTree]:
    """Yield the cleaned trees of a file, plain or compressed.

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
            case Close():
                parts.append(")")
    return "".join(parts).removeprefix(" ")


def line_words(line: str) -> list[str]:
    """Return the words of an input line, with round brackets as -LRB- and -RRB-."""
    return re.findall(r"[^ \t\n\v\f\r]+", line.replace("(", "-LRB-").replace(")", "-RRB-"))


def retagged(test: str, gold: str) -> str | None:
    """Return the tree in the line `test` with the tags of the tree in the line `gold`.

    Traces are ignored.

    Returns:
        None if one of the lines is not one well-formed tree, or the words differ.
    """
    try:
        tree = line_tree(test)
        gold_tree = line_tree(gold)
    except DataError:
        return None
    leaves = _without_traces(tree.leaves)
    gold_leaves = _without_traces(gold_tree.leaves)
    if [leaf.word for leaf in leaves] != [leaf.word for leaf in gold_leaves]:
        return None
    gold_tags = iter(leaf.tag for leaf in gold_leaves)
    tags = []
    for leaf in tree.leaves:
        tags.append(TRACE_TAG if leaf.tag == TRACE_TAG else next(gold_tags))
    return tree_line(tree.with_tags(tags))


def _without_traces(leaves: list[Leaf]) -> list[Leaf]:
    return [leaf for leaf in leaves if leaf.tag != TRACE_TAG]
