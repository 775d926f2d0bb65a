"""A translator of another program's model: what it asks for, and what it makes of the answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

from nmt_cli.checkpoint import load_task
from nmt_cli.decoding.engine import Request
from nmt_cli.decoding.options import TranslateOptions
from nmt_cli.decoding.translator import Translator
from nmt_cli.decoding.workers import translation_workers
from nmt_cli.errors import UsageError
from nmt_cli.interfaces import Hypothesis


@dataclass
class Echo:
    """Returns each source, once for each of the `nbest`."""

    seen: list[list[Request]] = field(default_factory=list)
    parallel: int = 1

    def check(self, options: TranslateOptions) -> None:
        if options.no_repeat_ngram:
            raise UsageError("--no-repeat-ngram: an echo repeats")

    def search(
        self, batches: Sequence[Sequence[Request]], options: TranslateOptions
    ) -> Iterator[list[list[Hypothesis]]]:
        self.seen += map(list, batches)
        for batch in batches:
            yield [[Hypothesis(request.source, -1.0, [])] * options.search.nbest for request in batch]


@pytest.fixture
def translator(tiny_checkpoint: Path) -> Translator:
    return Translator(load_task(tiny_checkpoint / "task"), Echo(), torch.device("cpu"))


def test_lines_come_back_in_order(translator: Translator) -> None:
    lines = ["abc", "", "hgfedcba", "a"] * 9
    advanced: list[str] = []
    assert [t.text for t in translator.translate_window(lines, advanced.extend)] == lines
    assert sorted(advanced) == sorted(lines)
    assert isinstance(translator.model, Echo)
    sizes = [len(batch) for batch in translator.model.seen]
    assert len(sizes) > 1
    assert sum(sizes) == 27  # the empty ones are not asked for
    assert translator.translate(["abc"], nbest=2) == ["abc"]


def test_each_sentence_has_its_limit(translator: Translator) -> None:
    translator.translate(["abcd", "a"], max_length_offset=2)
    assert isinstance(translator.model, Echo)
    assert [request.limit - len(request.source) for batch in translator.model.seen for request in batch] == [2, 2]


def test_options_are_checked_at_the_start_and_in_each_call(translator: Translator) -> None:
    with pytest.raises(UsageError, match="an echo repeats"):
        translator.translate(["a"], no_repeat_ngram=2)
    with pytest.raises(UsageError, match="an echo repeats"):
        Translator(translator.task, Echo(), torch.device("cpu"), TranslateOptions(no_repeat_ngram=2))


def test_it_has_no_prefixes_no_scoring_and_no_processes(translator: Translator) -> None:
    with pytest.raises(UsageError, match="own engine"):
        translator.score_targets(["a"], ["b"])
    with pytest.raises(UsageError, match="prefixes"):
        translator.translate(["a"], prefixes=["b"])
    with translation_workers(translator, 3) as workers:
        assert workers is None
