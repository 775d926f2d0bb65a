"""Outputs for the validation set of runs: their scores, by groups, and examples that improve.

A group of sentences has references of about the same length. A group of words was seen about as
often in training.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from nmt_cli import checkpoint
from nmt_cli.annexes.report.attention import sentence_of
from nmt_cli.annexes.report.runs import RESUME, RunFiles
from nmt_cli.annexes.report.settings import ReportOptions
from nmt_cli.data.corpus import Corpus
from nmt_cli.decoding.loading import load_translator
from nmt_cli.decoding.options import TranslateOptions
from nmt_cli.decoding.translator import Translator
from nmt_cli.errors import CheckpointError, DataError, UsageError, shown
from nmt_cli.metrics.significance import paired_test
from nmt_cli.streams import say, warn
from nmt_cli.task import Task
from nmt_cli.training.run_directory import METRICS
from nmt_cli.training.start import open_data

LENGTHS = (10, 20, 30, 40, 60)
"""The longest references of the groups, in tokens. A last group has all others."""

FREQUENCIES = (0, 1, 4, 9, 99, 999)
"""How often a group's most frequent words are in the training text. A last group has all others."""

COUNTED = 100_000
"""Training sentences, at most, in which words are counted."""

STAGES = 6
"""Checkpoints, at most, whose outputs show how a run improved without `nmt train --show`."""


class Stage(NamedTuple):
    """An output during training."""

    step: int
    output: str


@dataclass
class Example:
    """A sentence whose outputs show how a run improved."""

    source: str
    reference: str
    stages: list[Stage] = field(default_factory=list)
    output: str = ""  # the last one
    attention: dict[str, Any] | None = None


@dataclass(frozen=True)
class Validated:
    """The outputs of a run for the first sentences of its validation set."""

    run: RunFiles
    task: Task
    corpus: Corpus
    references: list[str]
    outputs: list[str]
    examples: list[Example]


def validate(run: RunFiles, options: ReportOptions) -> Validated:
    """Return a run's outputs, and the examples with their attention.

    Raises:
        NmtError: as `validation_text`, or a file of the run is missing or damaged.
    """
    task, corpus, sources, references = validation_text(run)
    translator = translator_of(run.path / (options.checkpoint or ""), options)
    translated = sources[: options.sentences]
    say(f"translating {len(translated):,} sentences of the validation set with {run.name}")
    outputs = translator.translate(translated)
    examples = recorded(run)[: options.examples]
    if not examples:
        pairs = [pair for pair in zip(sources, references, strict=True) if pair[0].strip()]
        examples = [Example(*pair) for pair in evenly(pairs, options.examples)]
        add_stages(run, examples, options)
    add_outputs(run, translator, examples)
    return Validated(run, task, corpus, references[: len(outputs)], outputs, examples)


def validation_text(run: RunFiles) -> tuple[Task, Corpus, list[str], list[str]]:
    """Return a run's task and training text, and the lines of its validation set.

    Raises:
        NmtError: its data have no validation set, or a file of them is missing or damaged.
    """
    data = run.config["data"]
    task, corpus, valid = open_data(data.get("paths", [data["path"]]), verify=False)
    if valid is None:
        raise UsageError("its data have no validation set")
    valid.verify()  # the page shows its lines: a link in a stranger's data may lead to any file
    sources, references = valid.raw_lines("source"), valid.raw_lines("target")
    if len(sources) != len(references):
        raise DataError(f"{data['path']}: the validation set is damaged; run nmt prepare again")
    return task, corpus, sources, references


def translator_of(place: Path, options: ReportOptions) -> Translator:
    return load_translator([place], TranslateOptions(search=options.search), device=options.device)


def add_stages(run: RunFiles, examples: Sequence[Example], options: ReportOptions) -> None:
    """Add the outputs of the run's checkpoints to the examples."""
    if not examples:
        return
    sources = [example.source for example in examples]
    for folder in evenly(checkpoint.checkpoints_of(run.path), STAGES):
        try:
            step = checkpoint.read_contents(folder).step
            outputs = translator_of(folder, options).translate(sources)
        except CheckpointError as error:  # damaged, or deleted by the run, which goes on
            warn(f"{run.name}: its examples are without {folder.name}: {error}")
            continue
        for example, output in zip(examples, outputs, strict=True):
            example.stages.append(Stage(step, output))


def add_outputs(run: RunFiles, translator: Translator, examples: Sequence[Example]) -> None:
    """Add the last output of each example, and its attention if the model shows it."""
    (model,) = translator.engine.models
    translations = translator.translate_window([example.source for example in examples])
    for example, translation in zip(examples, translations, strict=True):
        example.stages = evenly(changes(example.stages), 2 * STAGES)
        example.output = translation.text
        if not model.shows_attention:
            continue
        sentence = sentence_of(translator, model, translation, f"{run.name}: an example")
        if sentence is not None:
            example.attention = {**sentence, "model": run.name}


def recorded(run: RunFiles) -> list[Example]:
    """Return the examples that a run recorded at its validations (`nmt train --show`).

    Raises:
        DataError: the metrics are damaged.
    """
    examples: dict[str, Example] = {}  # by source
    try:
        for line in run.metrics:
            for entry in line.get("examples", ()):
                source = entry["source"]
                if not source.strip():
                    continue
                if source not in examples:
                    examples[source] = Example(source, str(entry["reference"]))
                stage = Stage(int(line["step"]), str(entry["output"]))
                examples[source].stages.append(stage)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise DataError(f"{run.path / METRICS}: damaged: {shown(error)}. {RESUME}") from error
    return list(examples.values())


def changes(stages: Sequence[Stage]) -> list[Stage]:
    """Return the stages whose output is another than the one before."""
    changed = list(stages[:1])
    for before, stage in itertools.pairwise(stages):
        if stage.output != before.output:
            changed.append(stage)
    return changed


def evenly(items: Sequence[Any], most: int) -> list[Any]:
    """Return up to `most` items at equal distances, with the first and the last one."""
    count = min(most, len(items))
    last = len(items) - 1
    return [items[round(i * last / max(count - 1, 1))] for i in range(count)]


def comparison(systems: Sequence[Validated]) -> dict[str, Any]:
    """Return the scores of outputs for the same references, in all, and by groups.

    All measures are the task's. Translations also have sacreBLEU's paired bootstrap: p of a
    difference from the first run this large, if both are equally good.
    """
    first = systems[0]
    task, references = first.task, first.references
    outputs = [system.outputs for system in systems]
    result = {
        "runs": [system.run.name for system in systems],
        "scores": [dict(task.evaluate(lines, references)) for lines in outputs],
        "sentences": len(references),
        "measure": task.measures[0],
        "lengths": by_length(task, outputs, references),
    }
    if "bleu" in task.measures:
        result["p"] = significance(systems)
        # Through the vocabulary, as the outputs: lower-cased if the text is.
        decoded = [task.decode_target(task.encode_target(line), "") for line in references]
        result["frequencies"] = by_frequency(outputs, decoded, training_words(first))
        result["counted"] = len(counted_sentences(first.corpus))
    return result


def significance(systems: Sequence[Validated]) -> list[float | None]:
    """Return p for the BLEU of each run. It is None for the first one."""
    if len(systems) < 2:
        return [None]
    first = systems[0]
    # The same BLEU as the task's `evaluate`, so that p belongs to the scores on the page.
    metric = f"sacrebleu-{first.task.tokenization}"
    if getattr(getattr(first.task, "config", None), "lowercase", False):
        metric += "-lc"
    named = [(str(number), system.outputs) for number, system in enumerate(systems)]
    references = [("validation set", first.references)]
    comparisons = paired_test(named, references, "paired-bootstrap", [metric])
    return [comparison.p_value for comparison in comparisons]


def by_length(
    task: Task, outputs: Sequence[Sequence[str]], references: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the task's first measure by the number of tokens of the reference."""
    groups: dict[int, list[int]] = {}
    for line, reference in enumerate(references):
        group = bisect_left(LENGTHS, len(task.encode_target(reference)))
        groups.setdefault(group, []).append(line)
    rows = []
    for group, lines in sorted(groups.items()):
        expected = [references[i] for i in lines]
        values = []
        for system in outputs:
            scores = task.evaluate([system[i] for i in lines], expected)
            values.append(scores[task.measures[0]])
        rows.append({"group": label(group, LENGTHS, 1), "count": len(lines), "values": values})
    return rows


def by_frequency(
    outputs: Sequence[Sequence[str]], references: Sequence[str], training: Mapping[str, int]
) -> list[dict[str, Any]]:
    """Return F1 in percent of the words of each frequency in training.

    A word of an output is right as often as the reference has it.
    """

    def grouped(lines: Iterable[Counter[str]]) -> Counter[int]:
        """Return the number of words in each group."""
        groups: Counter[int] = Counter()
        for words in lines:
            for word, count in words.items():
                groups[bisect_left(FREQUENCIES, training.get(word, 0))] += count
        return groups

    expected = [Counter(words) for words in tokenized(references)]
    wanted = grouped(expected)
    f1: dict[int, list[float]] = {group: [] for group in sorted(wanted)}  # a value for each system
    for lines in outputs:
        written = [Counter(words) for words in tokenized(lines)]
        right = grouped(words & gold for words, gold in zip(written, expected, strict=True))
        all_written = grouped(written)
        for group, values in f1.items():
            values.append(200 * right[group] / (wanted[group] + all_written[group]))
    rows = []
    for group, values in f1.items():
        name = label(group, FREQUENCIES, 0)
        rows.append({"group": name, "count": wanted[group], "values": values})
    return rows


def training_words(validated: Validated) -> Counter[str]:
    """Count the words of training targets, decoded from their ids."""
    corpus, task = validated.corpus, validated.task
    lines = (task.decode_target(corpus.target(i).tolist(), "") for i in counted_sentences(corpus))
    counts: Counter[str] = Counter()
    for words in tokenized(lines):
        counts.update(words)
    return counts


def counted_sentences(corpus: Corpus) -> range:
    distance = -(-len(corpus) // COUNTED)
    return range(0, len(corpus), max(1, distance))


def tokenized(lines: Iterable[str]) -> Iterable[list[str]]:
    """Return the words of lines, as sacreBLEU's tokenization 13a splits them."""
    from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

    split: Callable[[str], str] = Tokenizer13a()  # type: ignore[no-untyped-call]
    return (split(line).split() for line in lines)


def label(group: int, bounds: Sequence[int], lowest: int) -> str:
    """Return the range of a group: `1 to 10`, `4`, `more than 60`."""
    if group == len(bounds):
        return f"more than {bounds[-1]:,}"
    first = lowest if group == 0 else bounds[group - 1] + 1
    last = bounds[group]
    if first == last:
        return f"{last:,}"
    return f"{first:,} to {last:,}"
