"""Translation: sentences to ids and back."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from nmt_cli.config import restored, with_settings_of
from nmt_cli.data import subwords
from nmt_cli.data.cleaning import Limits, rejection
from nmt_cli.data.moses import Moses
from nmt_cli.data.subwords import LearningOptions, Vocabulary
from nmt_cli.data.task_file import TASK_FILE, task_file, write_task_file
from nmt_cli.data.versions import changed, versions
from nmt_cli.errors import UsageError
from nmt_cli.files.text import Example, find_file, nobody, read_parallel
from nmt_cli.registry import option, register

_TEXT_FIELDS = (
    *("moses", "moses_escape", "lowercase"),
    *("subwords", "vocab_size", "byte_fallback", "separate_vocabularies"),
)
"""What decides which ids a text gets: taken over with a vocabulary that is reused."""
_PROBES = (
    "Hello, world! It's 3.5 % of U.S. GDP (approx.), isn't it?",
    "„Äußerst schöne Größe“, sagte er – z. B. 1.234,5 € …",
    "L'été n'est-il pas « fini » ? aujourd'hui & <b> | [x]",
)
"""Lines whose ids are remembered, so that a library that has changed its mind is noticed when a model is loaded."""


@dataclass(frozen=True)
class TranslationConfig:
    """Settings of `nmt prepare --task translation`."""

    source_lang: str = option("", "language of the source: the ending of its files, and the rules for --moses")
    target_lang: str = option("", "language of the target")
    subwords: str = option("bpe", "kind of vocabulary; none: whole tokens between spaces", choices=subwords.KINDS)
    vocab_size: int = option(10000, "entries of the vocabulary, 4 special symbols included", minimum=5)
    separate_vocabularies: bool = option(False, "one vocabulary each for source and target instead of a joint one")
    byte_fallback: bool = option(False, "spell unknown characters as their UTF-8 bytes (takes 256 entries)")
    character_coverage: float = option(
        1.0, "share of the text's characters that the vocabulary must know", minimum=0.9, maximum=1.0
    )
    sample_pairs: int = option(1_000_000, "at most so many pairs, evenly spaced, to learn subwords from", minimum=1)
    moses: bool = option(False, "normalise punctuation and tokenise by Moses' rules; the output is detokenised")
    moses_escape: bool = option(False, "with --moses: write &apos; and the like, as Moses' own scripts do")
    lowercase: bool = option(False, "lower-case source and target")
    max_words: int = option(250, "drop training pairs with more words on a side (0: no limit)", minimum=0)
    max_characters: int = option(2500, "drop training pairs with more characters on a side (0: no limit)", minimum=0)
    max_ratio: float = option(
        5.0, "drop training pairs whose longer side is more than so many times the shorter (0: no limit)", minimum=0
    )
    ratio_unit: str = option("characters", "what --max-ratio counts", choices=("characters", "words"))
    drop_identical: bool = option(False, "drop training pairs whose source equals the target")


@register("task", "translation", TranslationConfig)
class TranslationTask:
    """Sentences in one language to sentences in another.

    Its first methods are the hooks of `nmt prepare` (`data/hooks.py`), in the order in which they are used; the others
    serve models, decoders and `nmt translate`.
    """

    name: ClassVar[str] = "translation"

    def __init__(self, config: TranslationConfig) -> None:
        self.config = config
        self._vocabularies: tuple[Vocabulary, Vocabulary] | None = None

    # Hooks of `nmt prepare`, in the order of their use.

    def files(self, prefix: str) -> list[Path]:
        """PREFIX.SOURCE and PREFIX.TARGET, each plain or .gz.

        Raises:
            UsageError: a language is not set, or both are the same.
            DataError: a file is missing.
        """
        for field, language in (("--source-lang", self.config.source_lang), ("--target-lang", self.config.target_lang)):
            if not language:
                raise UsageError(f"{field} is needed: the ending of the text files, as de in train.de")
        if self.config.source_lang == self.config.target_lang:
            raise UsageError(
                f"--source-lang and --target-lang are both {self.config.source_lang!r}: they name the same file"
            )
        return [find_file(prefix, self.config.source_lang), find_file(prefix, self.config.target_lang)]

    def read(self, prefix: str, consumed: Callable[[int], None] = nobody) -> Iterator[Example]:
        """The raw pairs of a prefix; `consumed` is told of bytes read.

        Raises:
            DataError: a file cannot be read, or one is longer than the other.
        """
        source, target = self.files(prefix)
        return read_parallel(source, target, consumed)

    def rejection(self, example: Example) -> str | None:
        """Why the pair is unfit to learn from, or None."""
        return rejection(example.source, example.target, self._limits)

    @property
    def sample_pairs(self) -> int:
        """How many pairs `learn` reads at most."""
        return self.config.sample_pairs

    def normalise(self, example: Example) -> tuple[str, str]:
        """The pair after lower-casing and Moses, as the vocabularies see it."""
        return self._normalise_source(example.source), self._normalise_target(example.target)

    def learn(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Learns one joint vocabulary from both sides of `pairs`, or one from each side.

        Raises:
            UsageError: the vocabulary's size does not fit the text.
        """
        if self.config.separate_vocabularies:
            self._vocabularies = (
                subwords.learn((source for source, _ in pairs), self._learning),
                subwords.learn((target for _, target in pairs), self._learning),
            )
        else:
            joint = subwords.learn((line for pair in pairs for line in pair), self._learning)
            self._vocabularies = (joint, joint)

    def adopt(self, saved: TranslationTask, chosen: Collection[str] = ()) -> None:
        """Takes over the vocabularies of `saved`, and the settings that belong to them.

        Args:
            chosen: the settings that the user gave, by field name.

        Raises:
            UsageError: one of these contradicts them.
        """
        self.config = with_settings_of(self.config, saved.config, _TEXT_FIELDS, chosen, "--subwords-from")
        self.__dict__.pop("_tokenisers", None)
        self._vocabularies = saved._both

    def describe(self) -> dict[str, Any]:
        """Settings and library versions, and the vocabularies' fingerprints, for the manifest."""
        return {
            "name": self.name,
            "config": dataclasses.asdict(self.config),
            "libraries": _libraries(self.config),
            "vocabularies": {
                side: {"size": len(v), "sha256": hashlib.sha256(v.serialise()).hexdigest()}
                for side, v in zip(("source", "target"), self._vocabularies or (), strict=False)
            },
        }

    # What models, decoders and `nmt translate` use.

    @property
    def source_vocabulary_size(self) -> int:
        return len(self._both[0])

    @property
    def target_vocabulary_size(self) -> int:
        return len(self._both[1])

    @property
    def shared_vocabulary(self) -> bool:
        """Whether source and target ids mean the same (section 3.4: the embeddings can be one matrix)."""
        return self._both[0] is self._both[1]

    def encode_source(self, line: str) -> list[int]:
        """Ids of a raw source line, without EOS."""
        return self._both[0].encode(self._normalise_source(line))

    def encode_target(self, line: str) -> list[int]:
        """Ids of a raw target line, without EOS."""
        return self._both[1].encode(self._normalise_target(line))

    def source_tokens(self, ids: Sequence[int]) -> list[str]:
        """The pieces of `ids`."""
        return self._both[0].pieces(ids)

    def target_tokens(self, ids: Sequence[int]) -> list[str]:
        """The pieces of `ids`."""
        return self._both[1].pieces(ids)

    def decode_target(self, ids: Sequence[int], source: str) -> str:
        """The output line: pieces joined and, with --moses, detokenised. Lower-case stays."""
        text = self._both[1].decode(ids)
        if self.config.moses:
            text = self._tokenisers[1].detokenise(text)
        # One line out for each line in, whatever the vocabulary holds.
        return text.replace("\n", " ").replace("\r", " ")

    def max_length(self, source_length: int) -> int:
        """Section 6.1: input length + 50."""
        return source_length + 50

    def evaluate(self, hypotheses: Sequence[str], references: Sequence[str]) -> Mapping[str, float]:
        """sacreBLEU's BLEU (13a) of detokenised lines; without case if the task lower-cases."""
        from sacrebleu.metrics.bleu import BLEU

        bleu = BLEU(lowercase=self.config.lowercase)
        return {"bleu": float(bleu.corpus_score(list(hypotheses), [list(references)]).score)}

    def save(self, folder: Path) -> None:
        """Writes `task.json` and the vocabularies to `folder`, which must exist."""
        source, target = self._both
        if self.shared_vocabulary:
            described = subwords.save(source, folder, "joint")
            vocabularies = {"source": described, "target": described}
        else:
            vocabularies = {
                side: subwords.save(v, folder, side) for side, v in (("source", source), ("target", target))
            }
        content = {
            "name": self.name,
            "config": dataclasses.asdict(self.config),
            "libraries": _libraries(self.config),
            "vocabularies": vocabularies,
            "probe": self._probe(),
        }
        write_task_file(folder, content)

    @classmethod
    def load(cls, folder: Path) -> TranslationTask:
        """The task that `save` wrote to `folder`.

        Raises:
            DataError: a file is missing or damaged, or of a schema that this version does not know.
        """
        with task_file(folder) as content:
            task = cls(restored(TranslationConfig, content["config"], str(folder / TASK_FILE)))
            source, target = content["vocabularies"]["source"], content["vocabularies"]["target"]
            first = subwords.load(folder, source)
            task._vocabularies = (first, first if target == source else subwords.load(folder, target))
            libraries, probe = dict(content["libraries"]), str(content["probe"])
        if task._probe() != probe:
            warnings.warn(changed(libraries, _libraries(task.config)), stacklevel=2)
        return task

    # Inside.

    @property
    def _both(self) -> tuple[Vocabulary, Vocabulary]:
        if self._vocabularies is None:
            raise RuntimeError("the task has no vocabulary yet: learn, adopt or load one first")
        return self._vocabularies

    @property
    def _limits(self) -> Limits:
        c = self.config
        return Limits(c.max_words, c.max_characters, c.max_ratio, c.ratio_unit == "words", not c.drop_identical)

    @property
    def _learning(self) -> LearningOptions:
        c = self.config
        return LearningOptions(c.subwords, c.vocab_size, c.byte_fallback, c.character_coverage)

    @cached_property
    def _tokenisers(self) -> tuple[Moses, Moses]:
        c = self.config
        return Moses(c.source_lang, c.moses_escape), Moses(c.target_lang, c.moses_escape)

    def _normalise_source(self, line: str) -> str:
        return self._normalised(line, 0)

    def _normalise_target(self, line: str) -> str:
        return self._normalised(line, 1)

    def _normalised(self, line: str, side: int) -> str:
        text = self._tokenisers[side].tokenise(line) if self.config.moses else line
        return text.lower() if self.config.lowercase else text

    def _probe(self) -> str:
        ids = [(self.encode_source(line), self.encode_target(line)) for line in _PROBES]
        return hashlib.sha256(json.dumps(ids).encode()).hexdigest()


def _libraries(config: TranslationConfig) -> dict[str, str]:
    """Versions of what decides the ids."""
    used = (["sentencepiece"] if config.subwords != "none" else []) + (["sacremoses"] if config.moses else [])
    return versions(used)
