"""Outputs for the validation set of runs: their scores, by groups, and examples that improve.

A group of sentences has references of about the same length. A group of words was seen about as
often in training.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt_cli import checkpoint
from nmt_cli.annexes.report.attention import sentence_of
from nmt_cli.annexes.report.runs import RESUME, RunFiles
from nmt_cli.data.corpus import Corpus
from nmt_cli.decoding.loading import load_translator
from nmt_cli.decoding.options import SearchOptions, TranslateOptions
from nmt_cli.decoding.translator import Translator
from nmt_cli.errors import CheckpointError, DataError, UsageError, shown
from nmt_cli.metrics.significance import paired_test
from nmt_cli.streams import say, warn
from nmt_cli.task import Task
from nmt_cli.training.run_directory import METRICS
from nmt_cli.training.start import open_data

LENGTHS = (10, 20, 30, 40, 60)
"""The longest references of the groups, in tokens; the last group has all others."""

FREQUENCIES = (0, 1, 4, 9, 99, 999)
"""The most frequent words of the groups, by their number in the training text; the last group has
all others.
"""

COUNTED = 100_000
"""Training sentences, at most, in which words are counted."""

STAGES = 6
"""Checkpoints, at most, whose outputs show how a run improved, if it recorded no examples (`nmt
train --show`).
"""


@dataclass(frozen=True)
class Validated:
    """The outputs of a run for the first sentences of its validation set."""

    run: RunFiles
    task: Task
    corpus: Corpus
    references: list[str]
    outputs: list[str]
    examples: list[dict[str, Any]]


@dataclass(frozen=True)
class Validation:
    """How the outputs of runs are made."""

    checkpoint: str | None  # below the run
    sentences: int
    examples: int
    search: SearchOptions
    device: str

    def of(self, run: RunFiles) -> Validated:
        """Return a run's outputs, and the examples with their attention.

        Raises:
            NmtError: its data have no validation set, or a file of the run or its data is missing
                or damaged.
        """
        data = run.config["data"]
        task, corpus, valid = open_data(data.get("paths", [data["path"]]), verify=False)
        if valid is None:
            raise UsageError("its data have no validation set")
        valid.verify()  # the page shows its lines: a link in a stranger's data may lead to any file
        sources, references = valid.raw_lines("source"), valid.raw_lines("target")
        if len(sources) != len(references):
            raise DataError(f"{data['path']}: the validation set is damaged; run nmt prepare again")
        translator = self.translator(run.path / self.checkpoint if self.checkpoint else run.path)
        say(
            f"translating {min(len(sources), self.sentences):,} sentences of the validation set "
            f"with {run.name}"
        )
        outputs = translator.translate(sources[: self.sentences])
        examples = recorded(run)[: self.examples]
        pairs = [pair for pair in zip(sources, references, strict=True) if pair[0].strip()]
        examples = examples or self.staged(run, evenly(pairs, self.examples))
        self.add_attention(run, translator, examples)
        return Validated(run, task, corpus, references[: len(outputs)], outputs, examples)

    def translator(self, place: Path) -> Translator:
        return load_translator([place], TranslateOptions(search=self.search), device=self.device)

    def staged(self, run: RunFiles, pairs: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        """Return sentences with the outputs of the run's checkpoints, and their steps."""
        examples: list[dict[str, Any]] = [
            {"source": source, "reference": reference, "stages": []} for source, reference in pairs
        ]
        for folder in evenly(checkpoint.checkpoints_of(run.path), STAGES) if examples else ():
            try:
                step = checkpoint.read_contents(folder).step
                outputs = self.translator(folder).translate([source for source, _ in pairs])
            except CheckpointError as error:  # damaged, or deleted by the run, which goes on
                warn(f"{run.name}: its examples are without {folder.name}: {error}")
                continue
            for each, output in zip(examples, outputs, strict=True):
                each["stages"].append((step, output))
        return examples

    def add_attention(
        self, run: RunFiles, translator: Translator, examples: Sequence[dict[str, Any]]
    ) -> None:
        """Add the last output of each example, and its attention if the model shows it."""
        (model,) = translator.engine.models
        translations = translator.translate_window([each["source"] for each in examples])
        for each, translation in zip(examples, translations, strict=True):
            each["stages"] = evenly(changes(each["stages"]), 2 * STAGES)
            each["output"] = translation.text
            if model.shows_attention:
                found = sentence_of(translator, model, translation, f"{run.name}: an example")
                each["attention"] = found and {**found, "model": run.name}


def recorded(run: RunFiles) -> list[dict[str, Any]]:
    """Return the examples of a run's validations (`nmt train --show`), each with its outputs and
    their steps.

    Raises:
        DataError: the metrics are damaged.
    """
    found: dict[str, dict[str, Any]] = {}
    try:
        for line in run.metrics:
            for each in filter(lambda each: each["source"].strip(), line.get("examples", ())):
                example = {
                    "source": each["source"],
                    "reference": str(each["reference"]),
                    "stages": [],
                }
                found.setdefault(each["source"], example)["stages"].append(
                    (int(line["step"]), str(each["output"]))
                )
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise DataError(f"{run.path / METRICS}: damaged: {shown(error)}. {RESUME}") from error
    return list(found.values())


def changes(stages: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    """Return the stages whose output is another than the one before."""
    return [
        *stages[:1],
        *(stage for before, stage in itertools.pairwise(stages) if stage[1] != before[1]),
    ]


def evenly(items: Sequence[Any], most: int) -> list[Any]:
    """Return at most so many items at equal distances, with the first and the last one."""
    count = min(most, len(items))
    return [items[round(i * (len(items) - 1) / max(count - 1, 1))] for i in range(count)]


def comparison(found: Sequence[Validated]) -> dict[str, Any]:
    """Return the scores of outputs for the same references, in all, and by groups.

    All measures are the task's. Translations also have sacreBLEU's paired bootstrap: p of a
    difference from the first run this large, if both are equally good.
    """
    first = found[0]
    task, references = first.task, first.references
    outputs = [validated.outputs for validated in found]
    result = {
        "runs": [validated.run.name for validated in found],
        "scores": [dict(task.evaluate(lines, references)) for lines in outputs],
        "sentences": len(references),
        "measure": task.measures[0],
        "lengths": by_length(task, outputs, references),
    }
    if "bleu" in task.measures:
        result["p"] = significance(found)
        # lower-cased as the text.
        known = [task.decode_target(task.encode_target(line), "") for line in references]
        result["frequencies"] = by_frequency(outputs, known, training_words(first))
        result["counted"] = len(counted_sentences(first.corpus))
    return result


def significance(found: Sequence[Validated]) -> list[float | None]:
    """Return p for the BLEU of each run but the first."""
    if len(found) < 2:
        return [None]
    systems = [(str(number), each.outputs) for number, each in enumerate(found)]
    metric = f"sacrebleu-{found[0].task.tokenization}"
    if getattr(getattr(found[0].task, "config", None), "lowercase", False):
        metric += "-lc"
    compared = paired_test(
        systems, [("validation set", found[0].references)], "paired-bootstrap", [metric]
    )
    return [each.p_value for each in compared]


def by_length(
    task: Task, outputs: Sequence[Sequence[str]], references: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the task's first measure by the number of tokens of the reference."""
    groups: dict[int, list[int]] = {}
    for line, reference in enumerate(references):
        groups.setdefault(bisect_left(LENGTHS, len(task.encode_target(reference))), []).append(line)
    rows = []
    for group, lines in sorted(groups.items()):
        expected = [references[i] for i in lines]
        values = [
            task.evaluate([each[i] for i in lines], expected)[task.measures[0]] for each in outputs
        ]
        rows.append({"group": label(group, LENGTHS, 1), "count": len(lines), "values": values})
    return rows


def by_frequency(
    outputs: Sequence[Sequence[str]], references: Sequence[str], training: Mapping[str, int]
) -> list[dict[str, Any]]:
    """Return F1 in percent of the words of each frequency. A word is right as often as the
    reference has it.
    """

    def grouped(lines: Iterable[Counter[str]]) -> Counter[int]:
        """Return the number of words in each group."""
        return Counter(
            bisect_left(FREQUENCIES, training.get(word, 0))
            for words in lines
            for word in words.elements()
        )

    expected = [Counter(words) for words in words_of(references)]
    wanted = grouped(expected)
    columns = []
    for lines in outputs:
        written = [Counter(words) for words in words_of(lines)]
        right = grouped(words & gold for words, gold in zip(written, expected, strict=True))
        all_written = grouped(written)
        columns.append(
            {group: 200 * right[group] / (wanted[group] + all_written[group]) for group in wanted}
        )
    return [
        {
            "group": label(group, FREQUENCIES, 0),
            "count": wanted[group],
            "values": [each[group] for each in columns],
        }
        for group in sorted(wanted)
    ]


def training_words(validated: Validated) -> Counter[str]:
    """Count the words of training targets, decoded from their ids."""
    corpus, task = validated.corpus, validated.task
    lines = (task.decode_target(corpus.target(i).tolist(), "") for i in counted_sentences(corpus))
    return Counter(word for words in words_of(lines) for word in words)


def counted_sentences(corpus: Corpus) -> range:
    return range(0, len(corpus), max(1, -(-len(corpus) // COUNTED)))


def words_of(lines: Iterable[str]) -> Iterable[list[str]]:
    """Return the words of lines, as sacreBLEU's tokenization 13a splits them."""
    from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

    split: Callable[[str], str] = Tokenizer13a()  # type: ignore[no-untyped-call]
    return (split(line).split() for line in lines)


def label(group: int, bounds: Sequence[int], lowest: int) -> str:
    """Return the range of a group: `1 to 10`, `4`, `more than 60`."""
    if group == len(bounds):
        return f"more than {bounds[-1]:,}"
    first = bounds[group - 1] + 1 if group else lowest
    return f"{first:,}" if first == bounds[group] else f"{first:,} to {bounds[group]:,}"
