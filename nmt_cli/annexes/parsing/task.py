"""Constituency parsing (section 6.3): sentences to ids, and ids to trees over their words."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt_cli.annexes.parsing.evalb import score_brackets
from nmt_cli.annexes.parsing.evalb_parameters import COLLINS
from nmt_cli.annexes.parsing.linearisation import repair
from nmt_cli.annexes.parsing.symbols import LINEARISATIONS, TreeSymbols
from nmt_cli.annexes.parsing.trees import (
    Event,
    line_tree,
    line_words,
    read_clean_trees,
    retagged,
    tree_line,
    treebank_files,
)
from nmt_cli.data import subwords
from nmt_cli.data.cleaning import NUL, TOO_LONG
from nmt_cli.data.subwords import LARGEST
from nmt_cli.data.vocabulary import Vocabulary
from nmt_cli.interfaces import SPECIAL_SYMBOLS, UNK
from nmt_cli.registry import configures, option, register
from nmt_cli.task import Example
from nmt_cli.tasks.base import VocabularyTask

_PROBE = (
    "Mr. Vinken , 61 years old -LRB- and naïve -RRB- , won't join the non-executive board Nov. 29 ."
)


@dataclass(frozen=True)
class ParsingConfig:
    """Settings of `nmt prepare --task parsing`."""

    linearisation: str = option(
        "vinyals", "Form of the trees: (NP XX )NP or NP NN /NP.", choices=LINEARISATIONS
    )
    subwords: str = option(
        "bpe", "Kind of vocabulary of the words (none: whole words).", choices=subwords.KINDS
    )
    vocab_size: int = option(
        16000,
        "Size of the words' vocabulary, the 4 special symbols included.",
        minimum=5,
        maximum=LARGEST,
    )
    joint_vocabulary: bool = option(
        False, "One vocabulary, and one embedding, for words and tree symbols."
    )
    byte_fallback: bool = option(
        False, "Spell unknown characters as UTF-8 bytes (takes 256 entries)."
    )
    character_coverage: float = option(
        1.0,
        "Share of the text's characters that the vocabulary must cover.",
        minimum=0.9,
        maximum=1.0,
    )
    sample_pairs: int = option(
        1_000_000, "Maximum number of pairs to learn subwords from, evenly spaced.", minimum=1
    )
    max_words: int = option(
        250, "Drop training pairs with more words on a side (0: no limit).", minimum=0
    )


@configures("constraint", "grammar", "nmt_cli.annexes.parsing.constraint:Grammar")
@dataclass(frozen=True)
class GrammarConfig:
    constrained: bool = option(False, "Allow only well-formed outputs, for tasks that define them.")


@register("task", "parsing", ParsingConfig)
class ParsingTask(VocabularyTask):
    """Sentences, with spaces between the words, to trees in brackets, one a line."""

    name = "parsing"
    config_type = ParsingConfig
    presets = ("parsing_wsj", "parsing_small")
    measures = ("f1",)
    vocabulary_settings = (
        "linearisation",
        "subwords",
        "vocab_size",
        "byte_fallback",
        "joint_vocabulary",
    )
    default_beam = 21  # section 6.3
    default_alpha = 0.3
    default_exact_stopping = True  # a long tree may be better than the ones that end first

    words: Vocabulary  # of the sentences
    trees: TreeSymbols

    def files(self, prefix: str) -> list[Path]:
        return treebank_files(prefix)

    def read(self, prefix: str, consumed: Callable[[int], None] | None = None) -> Iterator[Example]:
        """Yield the words and the cleaned tree of each tree, on one line each."""
        for path in self.files(prefix):
            for tree, place in read_clean_trees(path, consumed):
                yield Example(" ".join(tree.words), tree_line(tree), place)

    def rejection(self, example: Example) -> str | None:
        if "\0" in example.source:
            return NUL
        limit = self.config.max_words
        if limit > 0 and len(line_words(example.source)) > limit:
            return TOO_LONG
        return None

    def normalise(self, example: Example) -> tuple[str, str]:
        return _sentence(example.source), example.target

    def learn(self, pairs: Iterable[tuple[str, str]]) -> None:
        words = self.learned(sentence for sentence, _ in pairs)
        trees = (line_tree(tree) for _, tree in pairs)
        self._set(words, TreeSymbols.of(trees, self.config.linearisation))

    def adopt_vocabularies(self, saved: ParsingTask) -> None:
        self._set(saved.words, saved.trees)

    def save_vocabularies(self, folder: Path) -> dict[str, Any]:
        return {"words": subwords.save(self.words, folder, "words"), "trees": self.trees.to_json()}

    def load_vocabularies(self, folder: Path, content: Mapping[str, Any]) -> None:
        words = subwords.load(folder, content["words"])
        self._set(words, TreeSymbols.from_json(content["trees"]))

    def vocabularies(self) -> tuple[Vocabulary, Vocabulary]:
        return self.words, subwords.WholeTokens([*SPECIAL_SYMBOLS, *self.trees.symbols])

    def probe(self) -> list[int]:
        return self.words.encode(_PROBE)

    @property
    def source_vocabulary_size(self) -> int:
        return len(self._pieces) if self.shared_vocabulary else len(self.words)

    @property
    def target_vocabulary_size(self) -> int:
        return len(self._pieces)

    @property
    def shared_vocabulary(self) -> bool:
        return bool(self.config.joint_vocabulary)

    def encode_source(self, line: str) -> list[int]:
        return self.words.encode(_sentence(line))

    def encode_target(self, line: str) -> list[int]:
        symbols = self.trees.linearisation.symbols(line_tree(line))
        return [self._ids.get(symbol, UNK) for symbol in symbols]

    def source_tokens(self, ids: Sequence[int]) -> list[str]:
        return self.target_tokens(ids) if self.shared_vocabulary else self.words.pieces(ids)

    def target_tokens(self, ids: Sequence[int]) -> list[str]:
        return [self._pieces[i] for i in ids]

    def decode_target(self, ids: Sequence[int], source: str) -> str:
        return self.repaired(ids, source)[0]

    def repaired(self, ids: Sequence[int], source: str) -> tuple[str, Mapping[str, int]]:
        """Return a tree over exactly the words of the line `source`, and its repairs."""
        words = line_words(source)
        if not words:
            return "", {}
        symbols = [self._pieces[i] for i in ids if i >= len(SPECIAL_SYMBOLS)]
        tags = self.trees.likely_tags(words)
        tree, repairs = repair(symbols, words, self.trees.linearisation, tags)
        return tree_line(tree), repairs

    def meanings(self) -> list[Event | None]:
        """Return what each target id stands for in a tree."""
        meanings = [self.trees.linearisation.meaning(symbol) for symbol in self.trees.symbols]
        others = len(self._pieces) - len(meanings)  # special symbols, or words
        return [None] * others + meanings

    def drawing(self, text: str) -> Any:
        from nmt_cli.annexes.parsing.drawing import drawn

        return drawn(line_tree(text))

    def max_length(self, source_length: int) -> int:
        """Section 6.3: input length + 300."""
        return source_length + 300

    def evaluate(self, hypotheses: Sequence[str], references: Sequence[str]) -> Mapping[str, float]:
        """Return labelled bracketing under COLLINS.prm with gold tags.

        Sentences that EVALB excludes count as wrong.
        """
        parameters = dataclasses.replace(COLLINS, max_error=len(references))
        pairs = zip(hypotheses, references, strict=True)
        tagged = (retagged(test, gold) or test for test, gold in pairs)
        scores = score_brackets(tagged, references, parameters).strict
        return {name: scores[name] for name in ("f1", "precision", "recall", "complete_match")}

    def _set(self, words: Vocabulary, trees: TreeSymbols) -> None:
        self.words = words
        self.trees = trees
        before: Sequence[str] = SPECIAL_SYMBOLS
        if self.shared_vocabulary:
            before = words.pieces(range(len(words)))
        self._pieces = [*before, *trees.symbols]  # the written form of each target id
        self._ids = {symbol: i for i, symbol in enumerate(trees.symbols, len(before))}


def _sentence(line: str) -> str:
    return " ".join(line_words(line))
