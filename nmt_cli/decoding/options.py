"""The options of translation: flags of `nmt translate` and keywords of the Python API."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nmt_cli.config import check_values, flag
from nmt_cli.data import parallel
from nmt_cli.errors import UsageError, nearest
from nmt_cli.flags import IMPORTS_HELP
from nmt_cli.registry import argument, option

DTYPES = ("auto", "float32", "bfloat16", "int8")
ENGINES = ("nmt", "ctranslate2")  # the programs that search: this one, and `export/ctranslate2_engine.py`


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Arguments and flags of the commands that translate: which model, and where it computes."""

    checkpoints: tuple[Path, ...] = argument(
        "CHECKPOINT...", "A checkpoint, or a run (its newest checkpoint). Several are an ensemble."
    )
    device: str = option("auto", "Device to use: auto, cpu, cuda or cuda:N.")
    dtype: str = option(
        "auto",
        "Arithmetic of matrix products; auto is float32. int8 and, on CPUs that have it, bfloat16 are faster, and "
        "change some outputs.",
        choices=DTYPES,
    )
    workers: int | None = option(
        None,
        "Processes on a CPU; outputs do not depend on it. [default: number of cores, or OMP_NUM_THREADS]",
        minimum=1,
        maximum=parallel.MOST,
    )
    dictionary: Path | None = option(
        None, "With --replace-unknown: translations of source words, a line each: word, tab, translation."
    )
    engine: str = option(
        "nmt",
        "Program that searches. ctranslate2 uses an export of the checkpoint, written once and kept beside it.",
        choices=ENGINES,
    )
    imports: tuple[str, ...] = option((), IMPORTS_HELP, metavar="MODULE", names=("--import",))
    chosen: Mapping[str, Any] = field(default_factory=dict)  # fields of the dataclasses below

    def check_dictionary(self) -> None:
        """Raise UsageError if there is a dictionary that is not used."""
        if self.dictionary and not self.chosen.get("replace_unknown"):
            raise UsageError("--dictionary is for unknown words: add --replace-unknown, or leave it out")


@dataclass(frozen=True)
class SearchOptions:
    """Options of beam search; the defaults are the paper's (section 6.1)."""

    beam: int = option(4, "Beam size; 1 means greedy search.", minimum=1, maximum=10_000)
    alpha: float = option(0.6, "Exponent of the length penalty.", minimum=0.0)
    nbest: int = option(1, "Outputs for each line, best first, in --format tsv if no other is given.", minimum=1)
    min_length: int = option(0, "Minimum number of output tokens.", minimum=0)
    unknown: bool = False  # allow the unknown word in outputs
    early_termination: bool = True  # stop a search early; results do not change

    def __post_init__(self) -> None:
        check_values(self)


@dataclass(frozen=True)
class SamplingOptions:
    """Options of sampling."""

    sample: bool = option(False, "Draw outputs at random, by their probability; --nbest N draws N for each line.")
    temperature: float | None = option(None, "Divide log-probabilities by X. [default: 1]", minimum=0.001)
    top_k: int | None = option(None, "Draw each token from the N most probable ones.", minimum=1)
    top_p: float | None = option(
        None, "Draw each token from the fewest whose probabilities sum to X.", minimum=0.001, maximum=1.0
    )
    seed: int | None = option(None, "Seed of the random numbers. [default: 1]", minimum=0)

    def __post_init__(self) -> None:
        check_values(self)
        for name in ("temperature", "top_k", "top_p", "seed"):
            if getattr(self, name) is not None and not self.sample:
                raise UsageError(f"{flag(name)} is an option of sampling: add --sample, or leave it out")


@dataclass(frozen=True)
class TranslateOptions:
    """Options of translation."""

    search: SearchOptions = field(default_factory=SearchOptions)
    sampling: SamplingOptions = field(default_factory=SamplingOptions)
    batch_tokens: int = option(4096, "Source tokens in a batch, padding included.", minimum=1)
    read_ahead: int = option(1024, "Lines read and sorted by length at once.", minimum=1)
    max_source_length: int = option(1024, "Source tokens translated of a line; the rest is left out.", minimum=1)
    max_length_offset: int | None = option(
        None, "Maximum output length: source tokens plus N. [default: the task's own]", minimum=0
    )
    max_length: int | None = option(None, "Maximum output length, where --max-length-offset allows more.", minimum=1)
    no_repeat_ngram: int | None = option(None, "Never repeat a sequence of N tokens within an output.", minimum=1)
    replace_unknown: bool = option(
        False, "Allow unknown words, and replace each by the source word that it attends to most."
    )
    constrained: bool = option(False, "Allow only well-formed outputs, for tasks that define them.")
    split_sentences: bool = option(
        False, "Translate a line of several sentences one by one, and join the outputs (needs nmt-cli[sentences])."
    )
    sentence_language: str | None = option(
        None, "With --split-sentences: ISO 639 code of the input. [default: the checkpoint's source language]"
    )

    def __post_init__(self) -> None:
        check_values(self)
        search = self.search
        if search.nbest > search.beam and not self.sampling.sample:
            raise UsageError(f"--nbest {search.nbest} needs a beam of at least {search.nbest}, not {search.beam}")
        if self.max_length is not None and search.min_length > self.max_length:
            raise UsageError(f"--min-length {search.min_length} is more than --max-length {self.max_length}")
        if self.sentence_language is not None and not self.split_sentences:
            raise UsageError("--sentence-language is an option of --split-sentences: add that, or leave it out")
        if self.split_sentences and (search.nbest > 1 or self.sampling.sample):
            which = "--sample" if self.sampling.sample else "--nbest"
            raise UsageError(f"--split-sentences joins the best outputs of a line's sentences: leave out {which}")


def with_options(defaults: TranslateOptions, chosen: Mapping[str, Any]) -> TranslateOptions:
    """Return `defaults` with the options `chosen` by name, of any of the classes above.

    Raises:
        UsageError: an option is unknown, its value is out of range, or it does not fit another one.
    """
    parts: dict[str, Any] = {"search": defaults.search, "sampling": defaults.sampling}
    fields = {name: {field.name for field in dataclasses.fields(part)} for name, part in parts.items()}
    known = {field.name for field in dataclasses.fields(TranslateOptions)}.union(*fields.values()) - parts.keys()
    if unknown := sorted(chosen.keys() - known):
        raise UsageError(f"unknown option {unknown[0]!r}. {nearest(unknown[0], known)}")
    changed = {
        name: dataclasses.replace(part, **{key: chosen[key] for key in fields[name] & chosen.keys()})
        for name, part in parts.items()
    }
    rest = {key: chosen[key] for key in chosen.keys() - set().union(*fields.values())}
    options = dataclasses.replace(defaults, **changed, **rest)
    if options.sampling.sample and "beam" in chosen:
        raise UsageError("--sample draws outputs and --beam searches for them: leave out one of them")
    return options
