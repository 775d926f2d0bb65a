"""The settings of this annex and the place of each builder, without torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nmt_cli.criteria.settings import LabelSmoothingConfig
from nmt_cli.registry import configures, option


@configures("around", "placing", "nmt_cli.annexes.around.placing:placing")
@dataclass(frozen=True)
class PlacingConfig:
    markup: bool = option(
        False,
        "Translate text with inline tags, such as HTML: they stand around the same words in the "
        "output.",
    )
    protect: str | None = option(
        None, "Copy what matches this regular expression to the output.", metavar="REGEX"
    )
    glossary: Path | None = option(
        None, "Translate terms as this file says, a line each: term, tab, translation."
    )


@configures("around", "sentences", "nmt_cli.annexes.around.sentences:sentences")
@dataclass(frozen=True)
class SentencesConfig:
    split_sentences: bool | None = option(
        None,
        "Translate a line of several sentences one by one, and join the outputs (needs "
        "nmt-cli[sentences]).",
    )
    sentence_language: str | None = option(
        None,
        "With --split-sentences: ISO 639 code of the input. [default: the checkpoint's source "
        "language]",
    )


@configures("around", "unknown_words", "nmt_cli.annexes.around.unknown_words:unknown_words")
@dataclass(frozen=True)
class UnknownWordsConfig:
    replace_unknown: bool = option(
        False, "Allow unknown words, and replace each by the source word that it attends to most."
    )
    dictionary: Path | None = option(
        None,
        "With --replace-unknown: translations of source words, a line each: word, tab, "
        "translation.",
        needs="replace_unknown",
    )


@configures("around", "alignments", "nmt_cli.annexes.around.alignments:Alignments")
@dataclass(frozen=True)
class AlignmentsConfig:
    alignments: Path | None = option(
        None,
        "Also write this file, as --output: a line for each output, with the words of the input "
        "and of the output that belong together: 0-0 1-2.",
        written=True,
    )
    align: bool = False  # only `Output.alignment`, without a file


@configures(
    "criterion", "guided_alignment", "nmt_cli.annexes.around.guided_alignment:GuidedAlignment"
)
@dataclass(frozen=True)
class GuidedAlignmentConfig(LabelSmoothingConfig):
    alignment_file: str = option(
        "", "Source, target and links of words (0-0 1-2), with tabs between.", metavar="FILE"
    )
    alignment_weight: float = option(
        0.05, "Weight of the cross-entropy of attention with the links.", minimum=0.0
    )
