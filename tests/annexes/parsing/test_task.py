"""The parsing task: treebanks to ids, and any ids to a tree over the words of the sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from toy_trees import treebank

from nmt_cli.annexes.parsing.constraint import Grammar
from nmt_cli.annexes.parsing.task import GrammarConfig, ParsingConfig, ParsingTask
from nmt_cli.annexes.parsing.trees import line_tree, retagged
from nmt_cli.decoding.engine import Request
from nmt_cli.decoding.options import SearchSettings
from nmt_cli.errors import DataError
from nmt_cli.interfaces import EOS, UNK, Constraint
from nmt_cli.task import Example

TREES = treebank(60, 20, 0)
KINDS = [
    ParsingConfig(linearisation=form, subwords=kind, vocab_size=49, joint_vocabulary=joint)
    for form, kind, joint in [
        ("vinyals", "bpe", False),
        ("authors", "wordpiece", True),
        ("authors", "none", False),
        ("vinyals", "unigram", True),
    ]
]


def learned(config: ParsingConfig) -> ParsingTask:
    task = ParsingTask(config)
    task.learn([task.normalise(example(line)) for line in TREES["train"]])
    return task


def example(line: str) -> Example:
    return Example(" ".join(line_tree(line).words), line, "here")


TASKS = [learned(config) for config in KINDS]
EVERY_TASK = pytest.mark.parametrize(
    "task", TASKS, ids=lambda task: f"{task.config.linearisation}-{task.config.subwords}"
)


@EVERY_TASK
def test_trees_round_trip_through_ids(task: ParsingTask) -> None:
    for line in TREES["dev"]:
        source = example(line).source
        ids = task.encode_target(line)
        text, repairs = task.repaired(ids, source)
        assert not repairs
        assert text == task.decode_target(ids, source)
        assert retagged(text, line) == line
        assert text == line or task.config.linearisation == "vinyals"


def test_repairs_are_counted_by_kind() -> None:
    task = TASKS[0]
    ids = task.vocabularies()[1].encode("(S (NP XX )NP")
    text, repairs = task.repaired(ids, "the cat")
    assert repairs == {"unclosed": 1, "missing words": 1}
    assert text == "(TOP (S (NP (XX the)) (XX cat)))"
    assert task.repaired([], "the cat") == ("(TOP (S (XX the) (XX cat)))", {"flat": 1})


def test_a_saved_task_repairs_by_the_tags_of_words(tmp_path: Path) -> None:
    TASKS[1].save(tmp_path)
    task = ParsingTask.load(tmp_path)
    line = "(TOP (S (NP (DT the) (NN bird)) (VP (VBZ sees) (NP (DT the) (NN dog))) (. .)))"
    without_bird = task.encode_target(line.replace(" (NN bird)", ""))
    text, repairs = task.repaired(without_bird, example(line).source)
    assert text == line.replace("(NN bird)", "(XX bird)")
    assert repairs == {"missing words": 1}


def test_round_brackets_in_a_sentence_become_lrb_and_rrb() -> None:
    task = TASKS[0]
    assert task.encode_source("a (b)") == task.encode_source("a  -LRB-b-RRB- ")
    assert "(XX -LRB-b-RRB-)" in task.decode_target([], "a (b)")


def allowed(task: ParsingTask, constraint: Constraint, rows: int) -> torch.Tensor:
    """[N, V], true where the symbol may follow."""
    scores = torch.zeros(rows, task.target_vocabulary_size)
    constraint.restrict(scores)
    return scores == 0


def grammar(task: ParsingTask, lines: list[str], limits: list[int]) -> Constraint:
    requests = [Request([], limit, line=line) for line, limit in zip(lines, limits, strict=True)]
    rule = Grammar(GrammarConfig(constrained=True), task=task)
    return rule.constraint(requests, SearchSettings(), torch.device("cpu"))


@EVERY_TASK
def test_the_constraint_allows_the_treebank_and_only_trees(task: ParsingTask) -> None:
    lines = TREES["dev"][:5]
    sources = [example(line).source for line in lines]
    constraint = grammar(task, sources, [80] * len(lines))
    targets = [task.encode_target(line) for line in lines]
    for position in range(max(map(len, targets)) + 1):
        mask = allowed(task, constraint, len(lines))
        assert not mask[:, [0, UNK, 2]].any()
        wanted = [ids[position] if position < len(ids) else EOS for ids in targets]
        for row, ids, token in zip(mask, targets, wanted, strict=True):
            assert row[token] or position > len(ids)
            assert bool(row[EOS]) == (position == len(ids))
        constraint = constraint.advance(torch.arange(len(lines)), torch.tensor(wanted))


def test_a_sentence_with_more_words_than_its_limit_allows_nothing() -> None:
    constraint = grammar(TASKS[0], ["a b c", "a b c"], [2, 3])
    assert allowed(TASKS[0], constraint, 2).any(dim=1).tolist() == [False, True]


def test_a_whole_treebank_of_files(tmp_path: Path) -> None:
    for name, content in (
        ("wsj/02/b.mrg", "( (S (NP-SBJ (NN b))))"),
        ("wsj/02/a.mrg", "( (NP (NN a)\n (-NONE- *)))\n"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    seen: list[int] = []
    trees = list(ParsingTask(ParsingConfig()).read(str(tmp_path / "wsj"), seen.append))
    assert [(e.source, e.target) for e in trees] == [
        ("a", "(TOP (NP (NN a)))"),
        ("b", "(TOP (S (NP (NN b))))"),
    ]
    assert trees[1].place == f"{tmp_path}/wsj/02/b.mrg:1"
    assert sum(seen) == sum(path.stat().st_size for path in tmp_path.rglob("*.mrg"))


def test_long_sentences_are_rejected() -> None:
    task = ParsingTask(ParsingConfig(max_words=3))
    assert [task.rejection(Example(source, "", "")) for source in ("a b c", "a b c d", "a\0b")] == [
        None,
        "too long",
        "NUL byte",
    ]
    assert ParsingTask(ParsingConfig(max_words=0)).rejection(Example("a " * 999, "", "")) is None


def test_evaluation_is_strict_evalb_with_gold_tags() -> None:
    gold = "(TOP (S (NP (NN cats)) (VP (VBP run)) (. .)))"
    bare = gold.replace("NN", "XX").replace("VBP", "XX").replace("(. .)", "(XX .)")
    scores = TASKS[0].evaluate([bare, gold.replace("VP", "NP")], [gold, gold])
    assert next(iter(scores)) == "f1"
    assert scores["precision"] == pytest.approx(100 * 5 / 6)
    assert scores["complete_match"] == 50
    assert TASKS[0].evaluate([""] * 30, [gold] * 30)["f1"] == 0


DAMAGED_TREES = {**TASKS[0].trees.to_json(), "words_by_tag": {"NN": 1}}


@pytest.mark.parametrize(
    "damage", [{"trees": {}}, {"trees": None}, {"words": {}}, {"trees": DAMAGED_TREES}]
)
def test_damaged_symbols_are_an_error(damage: dict[str, Any], tmp_path: Path) -> None:
    TASKS[0].save(tmp_path)
    path = tmp_path / "task.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **damage}))
    with pytest.raises(DataError, match=str(path)):
        ParsingTask.load(tmp_path)
