"""Constituency parsing (section 6.3): sentences to ids, ids to trees over exactly the sentence's words."""

from __future__ import annotations

import dataclasses
import hashlib
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from nmt_cli.config import restored, with_settings_of
from nmt_cli.data import subwords
from nmt_cli.data.cleaning import NUL, TOO_LONG
from nmt_cli.data.subwords import LearningOptions, Vocabulary
from nmt_cli.data.task_file import TASK_FILE, task_file, write_task_file
from nmt_cli.data.versions import changed, versions
from nmt_cli.files.text import Example, nobody
from nmt_cli.interfaces import SPECIAL_SYMBOLS
from nmt_cli.parsing.evalb import score_brackets
from nmt_cli.parsing.evalb_parameters import COLLINS
from nmt_cli.parsing.symbols import LINEARISATIONS, TreeSymbols, line_tree
from nmt_cli.parsing.treebank import treebank_files
from nmt_cli.parsing.trees import line_words, read_clean_trees, sentence_line, tree_line, with_tags_of
from nmt_cli.registry import option, register

if TYPE_CHECKING:
    import torch

    from nmt_cli.parsing.constraint import TreeConstraint

_TEXT_FIELDS = ("linearisation", "subwords", "vocab_size", "byte_fallback", "joint_vocabulary")
"""What decides which ids a text gets: taken over with a vocabulary that is reused."""
_PROBE = "Mr. Vinken , 61 years old -LRB- and naïve -RRB- , won't join the non-executive board Nov. 29 ."
"""A line whose ids are remembered, so that a library that has changed its mind is noticed when a model is loaded."""


@dataclass(frozen=True)
class ParsingConfig:
    """Settings of `nmt prepare --task parsing`."""

    linearisation: str = option("vinyals", "how trees are written: (NP XX )NP or NP NN /NP", choices=LINEARISATIONS)
    subwords: str = option("bpe", "kind of the words' vocabulary; none: whole words", choices=subwords.KINDS)
    vocab_size: int = option(16000, "entries of the words' vocabulary, 4 special symbols included", minimum=5)
    joint_vocabulary: bool = option(False, "parsing: one vocabulary, and one embedding, for words and tree symbols")
    byte_fallback: bool = option(False, "spell unknown characters as their UTF-8 bytes (takes 256 entries)")
    character_coverage: float = option(
        1.0, "share of the text's characters that the vocabulary must know", minimum=0.9, maximum=1.0
    )
    sample_pairs: int = option(1_000_000, "at most so many pairs, evenly spaced, to learn subwords from", minimum=1)
    max_words: int = option(250, "drop training pairs with more words on a side (0: no limit)", minimum=0)


@register("task", "parsing", ParsingConfig)
class ParsingTask:
    """Sentences, words between spaces, to trees in brackets, one a line.

    Its first methods are the hooks of `nmt prepare` (`data/hooks.py`), in the order in which they are used; the others
    serve models, decoders and `nmt translate`.
    """

    name: ClassVar[str] = "parsing"
    search_defaults: ClassVar[Mapping[str, float]] = {"beam": 21, "alpha": 0.3}
    """Section 6.3."""

    def __init__(self, config: ParsingConfig) -> None:
        self.config = config
        self._words: Vocabulary | None = None
        self._trees: TreeSymbols | None = None

    # Hooks of `nmt prepare`, in the order of their use.

    def files(self, prefix: str) -> list[Path]:
        """PREFIX itself, plain or .gz, or the files of trees in the folder PREFIX.

        Raises:
            DataError: there are none.
        """
        return treebank_files(prefix)

    def read(self, prefix: str, consumed: Callable[[int], None] = nobody) -> Iterator[Example]:
        """Each tree's words and the cleaned tree, on one line each.

        Raises:
            DataError: a file cannot be read, is not balanced, or holds a tree without words.
        """
        for path in self.files(prefix):
            for tree, place in read_clean_trees(path, consumed):
                yield Example(sentence_line(tree), tree_line(tree), place)

    def rejection(self, example: Example) -> str | None:
        """Why the tree is unfit to learn from, or None."""
        if "\0" in example.source:
            return NUL
        longest = self.config.max_words
        return TOO_LONG if longest and len(line_words(example.source)) > longest else None

    @property
    def sample_pairs(self) -> int:
        """How many trees `learn` reads at most."""
        return self.config.sample_pairs

    def normalise(self, example: Example) -> tuple[str, str]:
        """The sentence as the vocabulary sees it, and the tree."""
        return self._sentence(example.source), example.target

    def learn(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Learns the words' vocabulary, and collects the trees' symbols.

        Raises:
            UsageError: the vocabulary's size does not fit the text.
        """
        c = self.config
        learning = LearningOptions(c.subwords, c.vocab_size, c.byte_fallback, c.character_coverage)
        self._words = subwords.learn((words for words, _ in pairs), learning)
        self._trees = TreeSymbols.of((line_tree(tree) for _, tree in pairs), c.linearisation)

    def adopt(self, saved: ParsingTask, chosen: Collection[str] = ()) -> None:
        """Takes over the vocabularies of `saved`, and the settings that belong to them.

        Args:
            chosen: the settings that the user gave, by field name.

        Raises:
            UsageError: one of these contradicts them.
        """
        self.config = with_settings_of(self.config, saved.config, _TEXT_FIELDS, chosen, "--subwords-from")
        self._words, self._trees = saved.words, saved.trees
        self._forget()

    def describe(self) -> dict[str, Any]:
        """Settings, library versions and the vocabularies' fingerprints, for the manifest."""
        return {
            "name": self.name,
            "config": dataclasses.asdict(self.config),
            "libraries": self._libraries(),
            "vocabularies": {
                side: {"size": len(vocabulary), "sha256": hashlib.sha256(vocabulary.serialise()).hexdigest()}
                for side, vocabulary in (("source", self.words), ("target", self.trees.vocabulary()))
            },
            "limits": dataclasses.asdict(self.trees.limits),
        }

    # What models, decoders and `nmt translate` use.

    @property
    def words(self) -> Vocabulary:
        """The vocabulary of the sentences."""
        if self._words is None:
            raise RuntimeError("the task has no vocabulary yet: learn, adopt or load one first")
        return self._words

    @property
    def trees(self) -> TreeSymbols:
        """What the trees are written with."""
        if self._trees is None:
            raise RuntimeError("the task has no symbols yet: learn, adopt or load them first")
        return self._trees

    @property
    def source_vocabulary_size(self) -> int:
        return len(self._pieces) if self.shared_vocabulary else len(self.words)

    @property
    def target_vocabulary_size(self) -> int:
        return len(self._pieces)

    @property
    def shared_vocabulary(self) -> bool:
        """Whether words and symbols have their ids out of one vocabulary, the words first."""
        return self.config.joint_vocabulary

    def encode_source(self, line: str) -> list[int]:
        """Ids of a sentence, without EOS; round brackets are read as -LRB- and -RRB-."""
        return self.words.encode(self._sentence(line))

    def encode_target(self, line: str) -> list[int]:
        """Ids of a cleaned tree's line, without EOS."""
        ids = self._symbols.encode(" ".join(self.trees.write(line_tree(line))))
        return [i + self._offset if i >= len(SPECIAL_SYMBOLS) else i for i in ids]

    def source_tokens(self, ids: Sequence[int]) -> list[str]:
        """The pieces of words of `ids`."""
        return self.target_tokens(ids) if self.shared_vocabulary else self.words.pieces(ids)

    def target_tokens(self, ids: Sequence[int]) -> list[str]:
        """The symbols of `ids`."""
        return [self._pieces[i] for i in ids]

    def decode_target(self, ids: Sequence[int], source: str) -> str:
        """A tree over exactly the words of the line `source`, in brackets, whatever the ids are."""
        return self.repaired(ids, source)[0]

    def repaired(self, ids: Sequence[int], source: str) -> tuple[str, Mapping[str, int]]:
        """The same, and how many repairs of each kind it took: none where the ids are a well-formed tree.

        A line without words has no tree: it gives an empty line.
        """
        words = line_words(source)
        if not words:
            return "", {}
        symbols = [self._pieces[i] for i in ids if i >= len(SPECIAL_SYMBOLS)]
        tree, repairs = self.trees.read(symbols, words)
        counts = {name.replace("_", " "): count for name, count in dataclasses.asdict(repairs).items() if count}
        return tree_line(tree), counts

    def constraint(self, sources: Sequence[str], limits: Sequence[int], device: torch.device) -> TreeConstraint:
        """Allows exactly the sequences that are trees over the words of the lines `sources`.

        A sentence with more words than its limit has symbols gets a constraint that allows nothing.

        Args:
            limits: the most symbols, EOS not counted, that each output may have.
        """
        from nmt_cli.parsing.constraint import SymbolMasks, TreeConstraint
        from nmt_cli.parsing.grammar import GrammarState

        meanings = self.trees.meanings(self._pieces[len(SPECIAL_SYMBOLS) + self._offset :])
        masks = SymbolMasks.of([None] * (len(self._pieces) - len(meanings)) + meanings, device)
        words = [len(line_words(line)) for line in sources]
        return TreeConstraint(
            masks,
            [
                GrammarState.start(count, limit, self.trees.limits) if count <= limit else None
                for count, limit in zip(words, limits, strict=True)
            ],
        )

    def drawing(self, text: str) -> Any:
        """A tree's line, drawn for a terminal (something that rich can print)."""
        from nmt_cli.parsing.drawing import drawn

        return drawn(line_tree(text))

    def max_length(self, source_length: int) -> int:
        """Section 6.3: input length + 300."""
        return source_length + 300

    def evaluate(self, hypotheses: Sequence[str], references: Sequence[str]) -> Mapping[str, float]:
        """Labelled bracketing under COLLINS.prm, gold tags over the words; F1 first.

        These are the strict scores: a sentence that EVALB would leave out counts as entirely wrong.
        """
        parameters = dataclasses.replace(COLLINS, max_error=len(references))
        scores = score_brackets(map(with_tags_of, hypotheses, references), references, parameters).strict
        return {
            "f1": scores.f1,
            "precision": scores.precision,
            "recall": scores.recall,
            "complete_match": scores.complete_match,
        }

    def save(self, folder: Path) -> None:
        """Writes `task.json` and the words' vocabulary to `folder`, which must exist."""
        content = {
            "name": self.name,
            "config": dataclasses.asdict(self.config),
            "libraries": self._libraries(),
            "words": subwords.save(self.words, folder, "words"),
            "trees": self.trees.to_json(),
            "probe": self.words.encode(_PROBE),
        }
        write_task_file(folder, content)

    @classmethod
    def load(cls, folder: Path) -> ParsingTask:
        """The task that `save` wrote to `folder`.

        Raises:
            DataError: a file is missing or damaged, or of a schema that this version does not know.
        """
        with task_file(folder) as content:
            task = cls(restored(ParsingConfig, content["config"], str(folder / TASK_FILE)))
            task._words = subwords.load(folder, content["words"])
            task._trees = TreeSymbols.from_json(content["trees"])
            libraries, probe = dict(content["libraries"]), list(content["probe"])
        if task.words.encode(_PROBE) != probe:
            warnings.warn(changed(libraries, task._libraries()), stacklevel=2)
        return task

    # Inside.

    @cached_property
    def _symbols(self) -> subwords.WholeTokens:
        return self.trees.vocabulary()

    @property
    def _offset(self) -> int:
        """By how much the symbols' ids are moved: past the words, where both share one vocabulary."""
        return len(self.words) - len(SPECIAL_SYMBOLS) if self.shared_vocabulary else 0

    @cached_property
    def _pieces(self) -> list[str]:
        """What each id of the target says."""
        symbols = self._symbols.pieces(range(len(self._symbols)))
        if not self.shared_vocabulary:
            return symbols
        return [*self.words.pieces(range(len(self.words))), *symbols[len(SPECIAL_SYMBOLS) :]]

    def _forget(self) -> None:
        """What was derived from former vocabularies no longer holds."""
        for name in ("_symbols", "_pieces"):
            self.__dict__.pop(name, None)

    def _sentence(self, line: str) -> str:
        return " ".join(line_words(line))

    def _libraries(self) -> dict[str, str]:
        return versions(() if self.config.subwords == "none" else ("sentencepiece",))
