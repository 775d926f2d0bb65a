"""A translator of another program's model: what it asks for, and what it makes of the answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

import nmt_cli
from nmt_cli.checkpoint import load_task
from nmt_cli.cores import Sizes
from nmt_cli.decoding import engine
from nmt_cli.decoding.engine import Loading, Request
from nmt_cli.decoding.options import SearchSettings, TranslateOptions
from nmt_cli.decoding.translator import Translator
from nmt_cli.errors import UsageError
from nmt_cli.interfaces import Hypothesis
from nmt_cli.model import Model
from nmt_cli.task import Task

SIZES = Sizes(batch_tokens=4096, hypotheses=128, logit_rows=1024)


@dataclass
class Echo:
    """Returns each source, once for each of the `nbest`."""

    task: Task
    seen: list[list[Request]] = field(default_factory=list)
    sizes: Sizes = SIZES
    models: Sequence[Model] = ()
    parallel: int = 1

    def check(self, options: TranslateOptions) -> None:
        if options.get("no_repeat_ngram"):
            raise UsageError("--no-repeat-ngram: an echo repeats")

    def search(
        self,
        batches: Sequence[Sequence[Request]],
        search: SearchSettings,
        options: TranslateOptions,
    ) -> Iterator[list[list[Hypothesis]]]:
        self.seen += map(list, batches)
        for batch in batches:
            yield [[Hypothesis(request.ids, -1.0, [])] * search.nbest for request in batch]


@pytest.fixture
def translator(tiny_checkpoint: Path) -> Translator:
    return Translator(Echo(load_task(tiny_checkpoint / "task")))


def test_lines_come_back_in_order(translator: Translator) -> None:
    lines = ["abc", "", "hgfedcba", "a"] * 30
    advanced: list[str] = []
    assert [t.text for t in translator.translate_window(lines, advanced.extend)] == lines
    assert sorted(advanced) == sorted(lines)
    assert isinstance(translator.engine, Echo)
    sizes = [len(batch) for batch in translator.engine.seen]
    assert len(sizes) > 1
    assert sum(sizes) == 90  # the empty ones are not asked for
    assert translator.translate(["abc"], nbest=2) == ["abc"]


def test_an_entry_point_is_an_engine(
    tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is loaded with all that was asked for."""
    asked: list[Loading] = []

    def load(loading: Loading) -> Echo:
        asked.append(loading)
        return Echo(load_task(loading.checkpoints[0] / "task"))

    listed = EntryPoints([EntryPoint("echo", "nothing:load", engine.GROUP)])
    monkeypatch.setattr(EntryPoint, "load", lambda entry: load)
    monkeypatch.setattr(engine, "entry_points", lambda group: listed)
    translator = nmt_cli.load(tiny_checkpoint, "cpu", "int8", engine="echo", beam=3)
    assert translator.translate(["abc"]) == ["abc"]
    (loading,) = asked
    assert (loading.dtype, loading.workers, loading.options.search.beam) == ("int8", None, 3)
    with pytest.raises(UsageError, match=r"eco.* echo"):
        nmt_cli.load(tiny_checkpoint, engine="eco")


def test_each_sentence_has_its_limit(translator: Translator) -> None:
    for options in ({"max_length_offset": 2}, {}):
        translator.translate(["abcd", "a"], **options)
    assert isinstance(translator.engine, Echo)
    limits = [
        request.limit - len(request.ids) for batch in translator.engine.seen for request in batch
    ]
    assert limits == [2, 2, 50, 50]


def test_options_are_checked_at_the_start_and_in_each_call(translator: Translator) -> None:
    with pytest.raises(UsageError, match="an echo repeats"):
        translator.translate(["a"], no_repeat_ngram=2)
    with pytest.raises(UsageError, match="an echo repeats"):
        Translator(Echo(translator.task), TranslateOptions(no_repeat_ngram=2))


def test_it_has_no_scoring(translator: Translator) -> None:
    with pytest.raises(UsageError, match="own engine"):
        translator.score_targets(["a"], ["b"])
