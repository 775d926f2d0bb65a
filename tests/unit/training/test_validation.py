"""The measure by which the best checkpoint is chosen and a run stopped."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import tiny_run
import torch

from nmt_cli import checkpoint
from nmt_cli.annexes.doctor.resume import contents
from nmt_cli.commands.prepare import PrepareOptions, prepare
from nmt_cli.data.batching import load_batch
from nmt_cli.data.corpus import Corpus
from nmt_cli.distributed import World
from nmt_cli.errors import TrainingError, UsageError
from nmt_cli.interfaces import PAD, Batch, Loss
from nmt_cli.metrics.bleu import score
from nmt_cli.tasks import translation
from nmt_cli.tasks.translation import TranslationTask
from nmt_cli.training import validation
from nmt_cli.training.gradients import Objective
from nmt_cli.training.messages import is_far_worse
from nmt_cli.training.state import RunState
from nmt_cli.training.validation import validation_loss

Nmt = Callable[..., tuple[int, str, str]]
run = partial(tiny_run.run, max_steps=10, save_every=2)


def validations(run: Path, name: str) -> dict[int, float]:
    lines = tiny_run.metrics(run)
    return {
        line["step"]: line[f"validation_{name}"] for line in lines if f"validation_{name}" in line
    }


def best_of(run: Path) -> int:
    return checkpoint.read_contents(run / "best").step


@pytest.fixture
def scores(monkeypatch: pytest.MonkeyPatch) -> dict[int, float]:
    """BLEU by step, in place of the model's. A validation of another step would fail."""
    given = {2: 10.0, 4: 30.0, 6: 20.0, 8: 30.0, 10: 25.0}
    left = iter(given.values())
    monkeypatch.setattr(validation, "translation_scores", lambda *_: {"bleu": next(left)})
    return given


def test_the_largest_bleu_is_the_best(
    scores: dict[int, float], tiny_data: Path, tmp_path: Path
) -> None:
    """The first of equal ones, although the loss falls all the time.

    `--validation-bleu` is not needed.
    """
    run(tiny_data, tmp_path / "run", best_by="bleu")
    assert validations(tmp_path / "run", "bleu") == scores
    losses = validations(tmp_path / "run", "loss")
    assert (best_of(tmp_path / "run"), min(losses, key=lambda step: losses[step])) == (4, 10)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["best_validation_bleu"], summary["best_step"]) == (30.0, 4)


def test_the_largest_share_of_exact_outputs_is_the_best(
    tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = iter(
        [{"bleu": 9.0, "exact": 1.0}, {"bleu": 8.0, "exact": 2.0}, {"bleu": 10.0, "exact": 2.0}]
    )
    monkeypatch.setattr(TranslationTask, "evaluate", lambda *_: next(left))
    run(tiny_data, tmp_path / "run", best_by="exact", max_steps=6)
    assert validations(tmp_path / "run", "exact") == {2: 1.0, 4: 2.0, 6: 2.0}
    assert best_of(tmp_path / "run") == 4


def test_metrics_of_nmt_score(
    tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one selects, and of an error rate less is better. The others are shown."""
    outputs = iter(["eins zwei", "eins", "eins drei"])
    references = ["eins", *["zwei"] * 99]

    def greedy_outputs(model: Any, task: Any, lines: Sequence[str], world: Any) -> list[str]:
        return [next(outputs), *references[1:]]

    monkeypatch.setattr(validation, "greedy_outputs", greedy_outputs)
    monkeypatch.setattr(Corpus, "raw_lines", lambda *_: references)
    run(tiny_data, tmp_path / "run", best_by="wer,chrf,bleu", max_steps=6)
    assert validations(tmp_path / "run", "wer") == {2: 1.0, 4: 0.0, 6: 1.0}
    for step, line in {2: "eins zwei", 4: "eins", 6: "eins drei"}.items():
        (expected,) = score([line, *references[1:]], references, ["chrf"])
        assert validations(tmp_path / "run", "chrf")[step] == expected.score
    assert best_of(tmp_path / "run") == 4
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["best_validation_wer"], summary["best_validation_chrf"]) == (0.0, 100.0)


@pytest.mark.parametrize("name", ["chrf2", "paper", "bleu,", "no_such_module:f"])
def test_other_names_are_refused_at_the_start(name: str, tiny_data: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--best-by"):
        run(tiny_data, tmp_path / "run", best_by=name)
    assert not (tmp_path / "run").exists()


def test_it_is_that_of_the_saved_checkpoint(nmt: Nmt, tiny_data: Path, tmp_path: Path) -> None:
    """By `nmt translate` and the sacrebleu command.

    A stopped run goes on to the same files, bit for bit.
    """
    prefixes = {split: str(tiny_data.parent / split) for split in ("train", "valid")}
    data, translated = tmp_path / "data", tmp_path / "translated"
    options = PrepareOptions(
        out=data, train=(prefixes["train"],), valid=prefixes["valid"], workers=1
    )
    # English numbers have many words.
    prepare(options, {"source_lang": "de", "target_lang": "en", "vocab_size": 120})
    settings = {
        "d_model": 32,
        "micro_batches": 1,
        "save_every": 15,
        "max_steps": 30,
        "best_by": "bleu",
    }
    run(data, tmp_path / "run", **settings)
    source, reference = data / "valid.source.txt", data / "valid.target.txt"
    code, _, err = nmt(
        "translate",
        tmp_path / "run" / "best",
        "--beam",
        1,
        "--input",
        source,
        "--output",
        translated,
    )
    assert code == 0, err
    command = [
        sys.executable,
        "-m",
        "sacrebleu",
        str(reference),
        "-i",
        str(translated),
        "-b",
        "-w",
        "12",
    ]
    printed = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert printed > 0
    recorded = validations(tmp_path / "run", "bleu")
    assert recorded[best_of(tmp_path / "run")] == pytest.approx(printed, abs=1e-9)
    assert max(recorded.values()) == recorded[best_of(tmp_path / "run")]
    run(data, tmp_path / "parts", **settings | {"max_steps": 15})
    run(data, tmp_path / "parts", **settings)
    assert contents(tmp_path / "parts") == contents(tmp_path / "run")


def test_the_loss_is_a_mean_over_tokens(tiny_data: Path) -> None:
    """Not over batches, which have different numbers of tokens, and without dropout.

    The loss of a token is its id.
    """
    batches, network = [], torch.nn.Module()

    def criterion(model: Any, batch: Batch) -> Loss:
        assert not model.training
        ids = batch.target_out[batch.target_out != PAD].double()
        batches.append(ids)
        return Loss(2 * ids.sum(), ids.sum(), len(ids))

    world = World(0, 1, torch.device("cpu"))
    objective = Objective(network, criterion, "float32")  # type: ignore[arg-type]
    mean_loss = validation_loss(
        objective, Corpus.open(tiny_data, "train"), world, load_batch, tokens=4096
    )
    assert network.training
    mean = torch.cat(batches).mean().item()
    assert mean != pytest.approx(
        torch.stack([ids.mean() for ids in batches]).mean().item(), rel=1e-4
    )
    assert (mean_loss["loss"], mean_loss["nll"]) == pytest.approx((2 * mean, mean))
    assert mean_loss["perplexity"] == pytest.approx(math.exp(mean))


@pytest.fixture
def other_validation_data(tiny_data: Path, tmp_path: Path) -> Path:
    """A copy of `tiny_data` whose validation set is the test set."""
    data = tmp_path / "other"
    shutil.copytree(tiny_data, data)
    for path in data.glob("test.*"):
        path.rename(path.with_name(path.name.replace("test.", "valid.")))
    manifest = json.loads((data / "manifest.json").read_text())
    manifest["splits"]["valid"] = manifest["splits"].pop("test")
    (data / "manifest.json").write_text(json.dumps(manifest))
    return data


@pytest.fixture
def losses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses of steps 2, 4 and so on, in place of the model's: from step 6 on, of a harder set."""
    left = iter([1.0, 1.1, 5.0, 4.0, 4.5])
    monkeypatch.setattr(validation, "validation_loss", lambda *_: {"loss": next(left)})


@pytest.fixture
def as_in_version_1_0(monkeypatch: pytest.MonkeyPatch) -> None:
    """The states of runs that are resumed are as version 1.0 wrote them."""
    read = RunState.from_json
    newer = {"best_figures", "last", "validation_set", "tokenization"}

    def former(values: dict[str, Any], place: str) -> RunState:
        return read({name: value for name, value in values.items() if name not in newer}, place)

    monkeypatch.setattr(RunState, "from_json", former)


def test_another_validation_set_begins_the_best_anew(
    losses: None,
    tiny_data: Path,
    other_validation_data: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Once, also if it is stopped again. `--patience` counts from there."""
    run(tiny_data, tmp_path / "run", max_steps=4, patience=2)
    for steps in (6, 10):
        run(other_validation_data, tmp_path / "run", max_steps=steps, patience=2)
        assert ("warning: the validation set" in capfd.readouterr().err) is (steps == 6)
    assert validations(tmp_path / "run", "loss") == {2: 1.0, 4: 1.1, 6: 5.0, 8: 4.0, 10: 4.5}
    assert best_of(tmp_path / "run") == 8
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["best_validation_loss"], summary["best_step"]) == (4.0, 8)


def test_patience_begins_anew_with_another_validation_set(
    losses: None, tiny_data: Path, other_validation_data: Path, tmp_path: Path
) -> None:
    """A run that it has stopped goes on."""
    run(tiny_data, tmp_path / "run", patience=1)
    assert validations(tmp_path / "run", "loss") == {2: 1.0, 4: 1.1}
    run(other_validation_data, tmp_path / "run", patience=1)
    assert list(validations(tmp_path / "run", "loss")) == [2, 4, 6, 8, 10]


def test_a_run_of_version_1_0_did_not_record_its_validation_set(
    losses: None,
    as_in_version_1_0: None,
    tiny_data: Path,
    other_validation_data: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for data, steps in ((tiny_data, 4), (other_validation_data, 8)):
        run(data, tmp_path / "run", max_steps=steps)
    assert "validation set" not in capfd.readouterr().err
    assert best_of(tmp_path / "run") == 2


def test_another_tokenization_of_bleu_begins_the_best_anew(
    scores: dict[int, float],
    as_in_version_1_0: None,
    tiny_data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """As in a run of version 1.0 into Chinese, unless its best checkpoint is chosen otherwise."""
    run(tiny_data, tmp_path / "run", max_steps=4, best_by="bleu")
    monkeypatch.setattr(translation, "tokenization_of", lambda _: "zh")
    run(tiny_data, tmp_path / "run", max_steps=6, best_by="bleu")
    assert "warning: the tokenization of BLEU (zh)" in capfd.readouterr().err
    assert best_of(tmp_path / "run") == 6  # 20 BLEU, after 30 at step 4
    monkeypatch.undo()
    run(tiny_data, tmp_path / "by-loss", max_steps=2)
    monkeypatch.setattr(translation, "tokenization_of", lambda _: "zh")
    run(tiny_data, tmp_path / "by-loss", max_steps=4)
    assert "another one" not in capfd.readouterr().err


def test_the_best_checkpoint_stays_without_a_validation_set(
    tiny_data: Path, unvalidated_data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run(tiny_data, tmp_path / "run", max_steps=4)
    best = best_of(tmp_path / "run")
    run(unvalidated_data, tmp_path / "run", max_steps=6)
    assert "warning: the data have no validation" in capfd.readouterr().err
    assert best_of(tmp_path / "run") == best


def test_ranks_with_other_validation_sets_are_refused(
    tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        World, "gather", lambda _, value: [value, (*value[:-1], "another validation set")]
    )
    with pytest.raises(TrainingError, match="do not read the same files"):
        run(tiny_data, tmp_path / "run", kernels=False)


def test_all_figures_of_the_best_validation_are_in_the_summary(
    tiny_data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Not the largest BLEU. The last lines say that the loss became worse."""
    left = iter([(3.0, 7.5), (2.0, 8.5), (2.5, 9.5)])

    def validated(*_: Any) -> dict[str, float]:
        loss, bleu = next(left)
        return {"loss": loss, "bleu": bleu}

    monkeypatch.setattr(validation, "validation_loss", validated)
    monkeypatch.setattr(validation, "translation_scores", lambda *_: {})
    run(tiny_data, tmp_path / "run", max_steps=6, validation_bleu=True)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (
        summary["best_validation_loss"],
        summary["best_validation_bleu"],
        summary["best_step"],
    ) == (2.0, 8.5, 4)
    err = capfd.readouterr().err
    assert "tokenization 13a\n" in err
    assert "best validation loss 2.000, bleu 8.500 at step 4" in err
    assert "worse since step 4: 2.500" in err


@pytest.mark.parametrize(
    ("last", "best", "worse"),
    [
        (2.21, 2.0, True),
        (2.19, 2.0, False),
        (26.9, 30.0, True),
        (27.1, 30.0, False),
        (0.0, 0.0, False),
        (None, 2.0, False),
    ],
)
def test_far_worse_is_more_than_a_tenth(last: float | None, best: float, worse: bool) -> None:
    assert is_far_worse(last, best) is worse
