"""Translation: sentences to ids and back."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from nmt_cli.data import subwords, unicode
from nmt_cli.data.cleaning import EMPTY, IDENTICAL, NUL, RATIO, TOO_LONG
from nmt_cli.data.subwords import LARGEST
from nmt_cli.data.vocabulary import Vocabulary
from nmt_cli.errors import UsageError
from nmt_cli.files.parallel_text import ParallelLines, columns_of, read_parallel, read_table
from nmt_cli.files.text import check_prefix, existing_file, find_file, without_compression
from nmt_cli.metrics.preparation import tokenization_of
from nmt_cli.registry import option, register
from nmt_cli.task import Example
from nmt_cli.tasks.base import VocabularyTask

if TYPE_CHECKING:
    from nmt_cli.data.moses import Moses
    from nmt_cli.interfaces import Ragged

SOURCE, TARGET = 0, 1  # the sides of a pair
SMALLEST = 5  # ids of a vocabulary: the special symbols and one more
# Lines with what tokenisers change between versions: contractions, abbreviations, numbers, quotes.
_PROBES = (
    "Hello, world! It's 3.5 % of U.S. GDP (approx.), isn't it?",
    "„Äußerst schöne Größe“, sagte er – z. B. 1.234,5 € …",
    "L'été n'est-il pas « fini » ? aujourd'hui & <b> | [x]",
)


@dataclass(frozen=True)
class TranslationConfig:
    """Settings of `nmt prepare --task translation`."""

    source_lang: str = option(
        "", "Source language: the ending of its files, and the rules for --moses.", metavar="LANG"
    )
    target_lang: str = option("", "Target language.", metavar="LANG")
    subwords: str = option(
        "bpe", "Kind of vocabulary (none: whole tokens between spaces).", choices=subwords.kinds()
    )
    vocab_size: int = option(
        10000, "Vocabulary size, the 4 special symbols included.", minimum=SMALLEST, maximum=LARGEST
    )
    separate_vocabularies: bool = option(
        False, "One vocabulary for each language instead of a joint one."
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
    normalization: str = option(
        "nmt_nfkc",
        "Unicode normalisation of source and target, in training and translation. nmt_nfkc is "
        "SentencePiece's default.",
        choices=unicode.RULES,
    )
    # No flag: new tasks have the newest version, and tasks of before keep theirs.
    normalization_version: int = field(
        default=unicode.VERSION, metadata={"minimum": 1, "maximum": unicode.VERSION}
    )
    moses: bool = option(
        False, "Normalise punctuation and tokenise as Moses does. Outputs are detokenised."
    )
    moses_escape: bool = option(
        False, "With --moses: escape characters (&apos;) as Moses' own scripts do."
    )
    lowercase: bool = option(False, "Lower-case source and target.")
    max_words: int = option(
        250, "Drop training pairs with more words on a side (0: no limit).", minimum=0
    )
    max_characters: int = option(
        2500, "Drop training pairs with more characters on a side (0: no limit).", minimum=0
    )
    max_ratio: float = option(
        5.0,
        "Drop training pairs if one side is more than X times as long as the other (0: no limit).",
        minimum=0,
    )
    ratio_unit: str = option("characters", "Unit of --max-ratio.", choices=("characters", "words"))
    drop_identical: bool = option(False, "Drop training pairs with equal source and target.")
    columns: str = option(
        "source=1,target=2",
        "Columns of tables, which are files whose names end in .tsv.",
        metavar="source=N,target=N",
    )


@register("task", "translation", TranslationConfig)
class TranslationTask(VocabularyTask):
    """Sentences in one language to sentences in another."""

    name = "translation"
    config_type = TranslationConfig
    presets = ("transformer_base", "pairs_100k", "multi30k", "quickstart")
    measures = ("bleu", "exact")
    text_settings = ("normalization", "normalization_version", "moses", "moses_escape", "lowercase")
    vocabulary_settings = (
        *text_settings,
        *"subwords vocab_size byte_fallback separate_vocabularies".split(),
    )
    settings_before: ClassVar[Mapping[str, Any]] = {
        "normalization": unicode.NONE,
        "normalization_version": 1,
    }

    words: tuple[Vocabulary, Vocabulary]
    """The vocabularies of source and target text, once learned, adopted or loaded."""

    def __init__(self, config: TranslationConfig) -> None:
        super().__init__(config)
        self._columns = columns_of(config.columns)  # here, because a wrong value is found at once
        self.target_language = config.target_lang
        self.tokenization = tokenization_of(config.target_lang)

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target language."""
        return self.config.source_lang, self.config.target_lang

    def files(self, prefix: str) -> list[Path]:
        """Return PREFIX.SOURCE and PREFIX.TARGET, plain or compressed.

        `prefix` may also be the name of a table, or two names with a tab between.
        """
        if "\t" in prefix or without_compression(prefix).lower().endswith(".tsv"):
            return [existing_file(name) for name in prefix.split("\t")]
        check_prefix(prefix, self.languages)
        source, target = self.languages
        for flag, language in (("--source-lang", source), ("--target-lang", target)):
            if not language:
                raise UsageError(
                    f"{flag} is needed: the ending of the text files, as de in train.de"
                )
        if source == target:
            raise UsageError(
                f"--source-lang and --target-lang are both {source!r}: they name the same file. "
                "Give a table, or --train-source and --train-target"
            )
        return [find_file(prefix, source), find_file(prefix, target)]

    def read(self, prefix: str, consumed: Callable[[int], None] | None = None) -> Iterator[Example]:
        for block in self.blocks(prefix, consumed):
            yield from self.examples(block)

    def blocks(
        self, prefix: str, consumed: Callable[[int], None] | None = None
    ) -> Iterator[ParallelLines]:
        first, *second = self.files(prefix)
        if second:
            return read_parallel(first, second[0], consumed)
        return read_table(first, self._columns, consumed)

    def examples(self, block: ParallelLines) -> list[Example]:
        return list(map(Example._make, block.lines()))

    def rejection(self, example: Example) -> str | None:
        source, target, _ = example
        c = self.config
        if "\0" in source or "\0" in target:
            return NUL
        source_text = source.strip()
        target_text = target.strip()
        if not source_text or not target_text:
            return EMPTY
        # Of the raw lines: a line with a megabyte of spaces is too long, too.
        if c.max_characters and max(len(source), len(target)) > c.max_characters:
            return TOO_LONG
        lengths = (len(source_text), len(target_text))
        # A line of n words has at least 2 n - 1 characters, so most lines need not be split.
        if c.ratio_unit == "words" or 0 < 2 * c.max_words < max(lengths):
            words = (len(source.split()), len(target.split()))
            if c.max_words and max(words) > c.max_words:
                return TOO_LONG
            if c.ratio_unit == "words":
                lengths = words
        if c.max_ratio and max(lengths) > c.max_ratio * min(lengths):
            return RATIO
        if c.drop_identical and source_text == target_text:
            return IDENTICAL
        return None

    def normalise(self, example: Example) -> tuple[str, str]:
        (source,) = self.normalised([example.source], SOURCE)
        (target,) = self.normalised([example.target], TARGET)
        return source, target

    def learn(self, pairs: Iterable[tuple[str, str]]) -> None:
        if self.config.separate_vocabularies:
            source = self.learned(source for source, _ in pairs)
            target = self.learned(target for _, target in pairs)
            self.set_vocabularies(source, target)
        else:
            joint = self.learned(line for pair in pairs for line in pair)
            self.set_vocabularies(joint, joint)

    def set_vocabularies(self, source: Vocabulary, target: Vocabulary) -> None:
        """Use these vocabularies. Without `separate_vocabularies`, they must be the same."""
        self.words = source, target

    def adopt_vocabularies(self, saved: TranslationTask) -> None:
        if not any(self.languages):  # tables and named files need none
            source_lang, target_lang = saved.languages
            self.config = replace(self.config, source_lang=source_lang, target_lang=target_lang)
        source, target = saved.words
        if any(saved.languages) and saved.languages != self.languages:
            if sorted(saved.languages) != sorted(self.languages):
                raise UsageError(
                    f"--subwords-from has vocabularies for {' and '.join(saved.languages)}, "
                    f"not for {' and '.join(self.languages)}"
                )
            source, target = target, source  # the other direction of the same languages
        self.set_vocabularies(source, target)
        self.__dict__.pop("_tokenisers", None)  # of the languages before

    def save_vocabularies(self, folder: Path) -> dict[str, Any]:
        source, target = self.words
        if source is target:
            joint = subwords.save(source, folder, "joint")
            return {"vocabularies": {"source": joint, "target": joint}}
        source_entry = subwords.save(source, folder, "source")
        target_entry = subwords.save(target, folder, "target")
        return {"vocabularies": {"source": source_entry, "target": target_entry}}

    def load_vocabularies(self, folder: Path, content: Mapping[str, Any]) -> None:
        entries = content["vocabularies"]
        source = subwords.load(folder, entries["source"])
        # A joint vocabulary stays one object, so that it is saved in one file again.
        if entries["target"] == entries["source"]:
            self.set_vocabularies(source, source)
        else:
            self.set_vocabularies(source, subwords.load(folder, entries["target"]))

    def vocabularies(self) -> tuple[Vocabulary, Vocabulary]:
        return self.words

    def libraries(self) -> list[str]:
        c = self.config
        names = []
        if c.subwords != "none" or c.normalization not in (unicode.NONE, "nfc", "nfd"):
            names.append("sentencepiece")
        if c.moses:
            names.append("sacremoses")
        return names

    def probe(self) -> str:
        ids = [(self.encode_source(line), self.encode_target(line)) for line in _PROBES]
        return hashlib.sha256(json.dumps(ids).encode()).hexdigest()

    @property
    def source_vocabulary_size(self) -> int:
        return len(self.vocabularies()[SOURCE])

    @property
    def target_vocabulary_size(self) -> int:
        return len(self.vocabularies()[TARGET])

    @property
    def shared_vocabulary(self) -> bool:
        return not self.config.separate_vocabularies

    def encode_source(self, line: str) -> list[int]:
        (text,) = self.normalised([line], SOURCE)
        return self.vocabularies()[SOURCE].encode(text)

    def encode_target(self, line: str) -> list[int]:
        (text,) = self.normalised([line], TARGET)
        return self.vocabularies()[TARGET].encode(text)

    def encode_sources(self, lines: Sequence[str]) -> Ragged:
        return self.vocabularies()[SOURCE].encode_lines(self.normalised(lines, SOURCE))

    def encode_targets(self, lines: Sequence[str]) -> Ragged:
        return self.vocabularies()[TARGET].encode_lines(self.normalised(lines, TARGET))

    def source_tokens(self, ids: Sequence[int]) -> list[str]:
        return self.vocabularies()[SOURCE].pieces(ids)

    def target_tokens(self, ids: Sequence[int]) -> list[str]:
        return self.vocabularies()[TARGET].pieces(ids)

    def decode_target(self, ids: Sequence[int], source: str) -> str:
        """Return the output line, detokenised with --moses. Lower-cased text stays lower-cased."""
        return self.finished(self.vocabularies()[TARGET].decode(ids))

    def finished(self, text: str) -> str:
        """Return an output line for text of the target vocabulary."""
        if self.config.moses:
            text = self._tokenisers[TARGET].detokenise(text)
        # Readers expect NFC. SentencePiece's rules give it already.
        if self.config.normalization == "nfd":
            text = unicodedata.normalize("NFC", text)
        return text.replace("\n", " ").replace("\r", " ")  # one output line for each input line

    def evaluate(self, hypotheses: Sequence[str], references: Sequence[str]) -> Mapping[str, float]:
        """Return BLEU and `exact` of nmt score, without regard to case if the task lower-cases."""
        from sacrebleu.metrics.bleu import BLEU

        if self.config.lowercase:
            hypotheses = [line.lower() for line in hypotheses]
            references = [line.lower() for line in references]
        bleu = BLEU(tokenize=self.tokenization).corpus_score(hypotheses, [references])
        pairs = zip(hypotheses, references, strict=True)
        exact = sum(
            unicode.comparable(line) == unicode.comparable(reference) for line, reference in pairs
        )
        return {"bleu": float(bleu.score), "exact": 100 * exact / max(len(references), 1)}

    @cached_property
    def _tokenisers(self) -> tuple[Moses, Moses]:
        from nmt_cli.data.moses import Moses  # imports sacremoses

        source, target = self.languages
        return Moses(source, self.config.moses_escape), Moses(target, self.config.moses_escape)

    def normalised(self, lines: Sequence[str], side: int) -> Sequence[str]:
        """Return lines of a side, `SOURCE` or `TARGET`, as the vocabularies see them."""
        # Not self.tokenised: a subclass with symbols has already taken them out of the lines.
        texts = TranslationTask.tokenised(self, lines, side)
        if self.config.lowercase:
            return [text.lower() for text in texts]
        return texts

    def tokenised(self, lines: Sequence[str], side: int) -> Sequence[str]:
        """Return lines of a side as `normalised`, but with upper-case letters."""
        c = self.config
        texts = unicode.normalised(lines, c.normalization, c.normalization_version)
        if c.moses:
            tokeniser = self._tokenisers[side]
            return [tokeniser.tokenise(text) for text in texts]
        return texts
