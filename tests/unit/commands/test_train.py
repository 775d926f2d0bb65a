"""`nmt train` up to its loop: what it shows, what it refuses, and what a checkpoint says."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt_cli import checkpoint, registry
from nmt_cli.cli import main
from nmt_cli.errors import UsageError
from nmt_cli.files.text import fingerprint
from nmt_cli.presets import PRESETS
from nmt_cli.training.start import check_shares
from nmt_cli.weights import load_weights

Run = Callable[..., tuple[int, str, str]]
TINY = (
    "--num-layers 1 --d-model 16 --d-ff 24 --num-heads 2 --batch-tokens 500 --max-steps 2 "
    "--log-every 1 --device cpu"
).split()


@pytest.fixture
def train(nmt: Run) -> Run:
    """Runs `nmt train ARGUMENTS` here."""
    return partial(nmt, "train")


def figures(train: Run, *arguments: object) -> dict[str, Any]:
    code, out, _ = train(*arguments, "--dry-run", "--json")
    assert code == 0
    report: dict[str, Any] = json.loads(out)
    return report


def test_presets_by_name(train: Run) -> None:
    code, out, err = train("--list-presets", "--json")
    assert (code, err) == (0, "")
    shown = json.loads(out)
    assert list(shown) == list(PRESETS)
    assert shown["table3_B_dk16"]["differs"] == {"d_k": 16, "d_v": 64}
    assert shown["transformer_base"]["differs"] == {}


def test_a_dry_run_without_data(train: Run) -> None:
    """Five fields by their names. The numbers by hand."""
    report = figures(train, "--vocab-size", 1000, "--preset", "transformer_base", "--num-layers", 1)
    assert report["preset"] == "transformer_base"
    attention, network = 4 * 512 * 512, 2 * 512 * 2048 + 2048 + 512
    assert report["parameters"] == 1000 * 512 + 3 * attention + 2 * network + 5 * 2 * 512
    assert (report["source_vocabulary_size"], report["shared_vocabulary"]) == (1000, True)
    assert report["config"]["model"]["num_layers"] == 1
    assert report["config"]["optimizer"] == {
        "name": "adam",
        "beta1": 0.9,
        "beta2": 0.98,
        "epsilon": 1e-9,
    }
    assert report["peak_learning_rate"] == pytest.approx(7.0e-4, rel=0.01)


def test_a_dry_run_with_data(train: Run, tiny_data: Path) -> None:
    """The plan covers the corpus and counts the model that would be trained. Nothing is written."""
    before = sorted(tiny_data.rglob("*"))
    report = figures(train, tiny_data, *TINY)
    assert report["sentences"] == 900
    assert (report["target_vocabulary_size"], report["shared_vocabulary"]) == (120, True)
    assert (
        report["parameters"]
        == 120 * 16 + 3 * 4 * 16 * 16 + 2 * (2 * 16 * 24 + 24 + 16) + 5 * 2 * 16
    )
    assert report["updates_per_epoch"] * report["epochs"] == pytest.approx(2)
    assert 250 < report["target_tokens_per_update"] <= 500
    assert sorted(tiny_data.rglob("*")) == before


def test_a_dry_run_to_read(train: Run) -> None:
    code, out, _ = train(
        "--dry-run", "--vocab-size", 1000, "--num-layers", 1, "--freeze", "[d-e]ecoder*"
    )
    assert code == 0
    assert "[d-e]ecoder*" in out
    assert "7,862,272" in out
    assert "model.d_model" in out
    assert not any(raw in out for raw in ("{", "None", "False", "True"))


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--out", "{tmp}/run"], 2, "DATA is missing"),
        (["{data}"], 2, "--out RUN is missing"),
        (["--dry-run"], 2, "--dry-run needs DATA, or --vocab-size"),
        (
            ["{data}", "--dry-run", "--vocab-size", "50"],
            2,
            "--vocab-size is for --dry-run without DATA",
        ),
        (
            ["{data}", "--out", "{tmp}/run", "--vocab-size", "50"],
            2,
            "--vocab-size is for --dry-run",
        ),
        (["{data}", "--out", "{tmp}/run", "--json"], 2, "--json is for --dry-run"),
        (
            ["{data}", "--out", "{tmp}/run", "--best-by", "f1"],
            2,
            "--best-by f1: the task 'translation' has loss, bleu",
        ),
        (
            ["{data}", "--dry-run", "--best-by", "f1"],
            2,
            "--best-by f1: the task 'translation' has loss, bleu, exact",
        ),
        (["{tmp}", "--out", "{tmp}/run"], 1, "not prepared data"),
        (["{tmp}/absent", "--out", "{tmp}/run"], 1, "absent: no such directory"),
        (["--resume", "{data}"], 2, "prepared data, not a run"),
        (
            ["{data}", "--out", "{tmp}/run", "--config", "{tmp}/absent.toml"],
            2,
            "absent.toml: cannot read",
        ),
        (
            ["{data}", "--out", "{tmp}/run", "--num-heads", "3", "--d-model", "16"],
            2,
            "--num-heads 3 does not divide",
        ),
        (["{data}", "--out", "{tmp}/run", "--device", "cuda:99"], 2, "--device cuda:99"),
        (
            ["{data}", "--out", "{tmp}/run", "--device", "tpu"],
            2,
            "--device must be auto, cpu, cuda or cuda:N",
        ),
        (["--dry-run", "--vocab-size", "50", "--device", "cuda:99"], 2, "--device cuda:99"),
        (
            ["{data}", "--out", "{tmp}/run", "--save-every", "0"],
            2,
            "--save-every takes a number of steps",
        ),
        (
            ["{data}", "--out", "{tmp}/run", "--beta1", "1"],
            2,
            "nmt: --beta1 must be below 1, not 1.0",
        ),
    ],
)
def test_refusals_leave_nothing_behind(
    train: Run, tiny_data: Path, tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    exit_code, out, err = train(*(part.format(tmp=tmp_path, data=tiny_data) for part in arguments))
    assert (exit_code, out) == (code, "")
    assert message in err
    assert "Traceback" not in err
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def run(tiny_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps."""
    folder = tmp_path_factory.mktemp("train") / "run"
    with pytest.raises(SystemExit) as end:
        main(["train", str(tiny_data), *TINY, "--preset", "table3_E", "--out", str(folder)])
    assert end.value.code in (0, None)
    return folder


def test_a_run_says_what_it_is(run: Path, tiny_data: Path) -> None:
    config = json.loads((run / "config.json").read_text())
    assert config["model"]["positions"] == "learned"
    assert config["training"]["max_steps"] == 2
    contents = checkpoint.read_contents(checkpoint.locate(run))
    assert contents.step == 2
    assert contents.sections["model"] == config["model"]
    assert contents.source_vocabulary_size == 120
    # The same model, however long it was trained.
    assert "max_steps" not in contents.sections["training"]


def test_a_run_refuses_other_settings_and_a_checkpoint_is_no_run(
    train: Run, run: Path, tiny_data: Path
) -> None:
    code, _, err = train(
        tiny_data, *TINY, "--preset", "table3_E", "--micro-batches", 2, "--out", run
    )
    assert (code, "settings: --training.micro-batches was not set, now 2. Resume" in err) == (
        2,
        True,
    ), err
    code, _, err = train("--resume", checkpoint.locate(run))
    assert (code, f"{checkpoint.locate(run)}: a checkpoint, not a run" in err) == (2, True), err


def test_its_config_makes_the_same_run_again(
    train: Run, run: Path, tiny_data: Path, tmp_path: Path
) -> None:
    """RUN/config.json is a configuration file: the weights come out the same, bit for bit."""
    code, out, _ = train(tiny_data, "--config", run / "config.json", "--out", tmp_path / "again")
    assert (code, out) == (0, "")
    first, second = (
        load_weights(checkpoint.locate(folder)) for folder in (run, tmp_path / "again")
    )
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    contents = [
        checkpoint.read_contents(checkpoint.locate(folder)) for folder in (run, tmp_path / "again")
    ]
    assert contents[0].run == contents[1].run


def test_other_data_are_refused_by_their_paths(
    run: Path, train: Run, tiny_data: Path, tmp_path: Path
) -> None:
    """A copy is the same data."""
    data = tmp_path / "data"
    shutil.copytree(tiny_data, data)
    given = (data, *TINY, "--preset", "table3_E", "--out", run)
    assert train(*given)[0] == 0
    ids, manifest = data / "train.source.ids", data / "manifest.json"
    before = fingerprint(ids)
    content = bytearray(ids.read_bytes())
    content[0] ^= 1
    ids.write_bytes(content)
    code, _, err = train(*given)
    assert code == 1
    assert f"{ids}: " in err
    manifest.write_text(manifest.read_text().replace(before, fingerprint(ids)))
    code, _, err = train(*given)
    assert code == 2
    assert f"started on {data}" in err  # the copy was the last data that the run was given
    assert train(tiny_data, *given[1:])[0] == 0
    code, _, err = train(*given)
    assert code == 2
    assert str(tiny_data) in err
    assert str(data) in err


def test_a_run_is_resumed_with_its_own_data_settings_and_imports(
    train: Run, tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_sgd.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(tmp_path)

    def forget_the_plugin() -> None:
        monkeypatch.setattr(
            registry, "_components", {kind: dict(known) for kind, known in components.items()}
        )
        sys.modules.pop("my_sgd", None)

    registry.discover()
    components = registry._components
    forget_the_plugin()
    plugin = ("--import", "my_sgd", "--optimizer", "my_sgd", "--push", 0.5)
    data, out = tmp_path / "data", tmp_path / "run"
    shutil.copytree(tiny_data, data)
    code, _, err = train(data, "--out", out, *TINY, *plugin)
    # There is only one checkpoint to average.
    assert (code, "next: nmt translate" in err) == (0, True), err
    forget_the_plugin()
    code, _, err = train("--resume", out, "--max-steps", 4)
    assert (code, "resuming from" in err) == (0, True), err
    assert train(tiny_data, "--out", tmp_path / "whole", *TINY, *plugin, "--max-steps", 4)[0] == 0
    first, second = (
        load_weights(checkpoint.locate(folder)) for folder in (out, tmp_path / "whole")
    )
    assert all(torch.equal(first[name], second[name]) for name in first)
    for more in (("--out", out), ("--preset", "quickstart"), ("--training.seed", 2)):
        code, _, err = train("--resume", out, *more)
        assert code == 2
        assert str(more[0]) in err
    data.rename(tmp_path / "moved")
    code, _, err = train("--resume", out, "--max-steps", 5)
    assert code == 2
    assert str(data) in err
    code, _, err = train(tmp_path / "absent", "--resume", out)
    assert (code, "absent: no such directory" in err) == (1, True)
    code, _, err = train(out, "--out", tmp_path / "other")
    assert (code, f"nmt train --resume {out}" in err) == (2, True)
    assert train(tmp_path / "moved", "--resume", out, "--max-steps", 5)[0] == 0
    assert train("--resume", out, "--max-steps", 6)[0] == 0
    assert train("--resume", tmp_path)[0] == 2


@pytest.fixture(scope="module")
def halves(tiny_data: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The training text of `tiny_data` in two directories with its vocabulary.

    The second has its validation set.
    """
    folder = tmp_path_factory.mktemp("halves")
    for language in ("en", "de"):
        lines = (tiny_data.parent / f"train.{language}").read_text().splitlines(keepends=True)
        for number, part in enumerate((lines[:300], lines[300:])):
            (folder / f"text-{number}.{language}").write_text("".join(part))
    for number, more in enumerate(([], ["--valid", tiny_data.parent / "valid"])):
        words = [
            "--source-lang=en",
            "--target-lang=de",
            "--train",
            folder / f"text-{number}",
            *more,
        ]
        with pytest.raises(SystemExit) as end:
            main(
                [
                    "prepare",
                    *map(str, words),
                    f"--subwords-from={tiny_data}",
                    f"--out={folder / f'data-{number}'}",
                ]
            )
        assert end.value.code in (0, None)
    return [folder / "data-0", folder / "data-1"]


def test_a_run_on_two_halves_is_the_run_on_the_whole(
    train: Run, tiny_data: Path, halves: list[Path], tmp_path: Path
) -> None:
    whole, run = tmp_path / "whole", tmp_path / "run"
    assert train(tiny_data, *TINY, "--max-steps", 4, "--out", whole)[0] == 0
    code, _, err = train(*halves, *TINY, "--out", run)
    assert (code, "900 sentence pairs" in err) == (0, True), err
    code, _, err = train("--resume", run, "--max-steps", 4)
    assert (code, f"resuming from {run}" in err) == (0, True), err
    first, second = (load_weights(checkpoint.locate(folder)) for folder in (whole, run))
    assert all(torch.equal(first[name], second[name]) for name in first)
    losses = [
        [
            json.loads(line).get("validation_loss")
            for line in (folder / "metrics.jsonl").read_text().splitlines()
        ][-1]
        for folder in (whole, run)
    ]
    assert losses[0] == losses[1] is not None
    for others in ([halves[1], halves[0]], [halves[0]], [halves[0], f"{halves[1]}*2"]):
        code, _, err = train(*others, *TINY, "--max-steps", 4, "--out", run)
        assert (code, f"started on {halves[0]} {halves[1]}, and" in err) == (2, True), err


def test_directories_with_weights(train: Run, halves: list[Path], tmp_path: Path) -> None:
    plain, weighted = (
        figures(train, *data, *TINY)["updates_per_epoch"]
        for data in (halves, [halves[0], f"{halves[1]}*3"])
    )
    assert weighted > 2 * plain
    run = tmp_path / "run"
    assert train(f"{halves[0]}*2", *TINY, "--out", run)[0] == 0
    assert json.loads((run / "config.json").read_text())["data"]["paths"] == [f"{halves[0]}*2"]
    assert train("--resume", run, "--max-steps", 3)[0] == 0
    halves[1].rename(tmp_path / "moved")
    try:
        assert train("--resume", run, "--max-steps", 4)[0] == 0
    finally:
        (tmp_path / "moved").rename(halves[1])


def test_directories_that_cannot_be_joined(
    train: Run, nmt: Run, tiny_data: Path, halves: list[Path], tmp_path: Path
) -> None:
    other = tmp_path / "other"
    text = ("--source-lang", "en", "--target-lang", "de", "--vocab-size", 100)
    assert nmt("prepare", "--train", tiny_data.parent / "train", *text, "--out", other)[0] == 0
    cases = {
        (tiny_data, other): "--subwords-from",
        (*halves, f"{tiny_data}*0"): f"{tiny_data}*0: the weight must be above 0",
        (f"{halves[0]}*1.5.2",): "the weight must be above 0 and at most 1000, not 1.5.2",
        (halves[0], tmp_path / "absent"): "absent: no such directory",
        (halves[0], tmp_path): "not prepared data",
    }  # fmt: skip
    for data, message in cases.items():
        code, _, err = train(*data, *TINY, "--out", tmp_path / "run")
        assert (code in (1, 2), message in err) == (True, True), err
        assert not (tmp_path / "run").exists()


PLUGIN = """
from dataclasses import dataclass
import torch
from nmt_cli.registry import option, register

@dataclass(frozen=True)
class Config:
    push: float = option(0.1, "rate")

@register("optimizer", "my_sgd", Config)
def build(config, *, parameters):
    return torch.optim.SGD(parameters, lr=config.push)
"""


def test_a_summary_of_an_earlier_end_is_written_again(
    train: Run, tiny_data: Path, tmp_path: Path
) -> None:
    """A kill came between the last checkpoint and the summary, or the summary is incomplete."""
    assert train(tiny_data, "--out", tmp_path / "run", *TINY)[0] == 0
    path = tmp_path / "run" / "summary.json"
    path.write_text('{"steps"')
    assert train(tiny_data, "--out", tmp_path / "run", *TINY)[0] == 0
    assert json.loads(path.read_text())["steps"] == 2


@pytest.mark.parametrize(
    ("steps", "following"),
    [(9, "translate {run}/best\n"), (10, "average {run} --last 2 --out {run}/")],
)
def test_the_next_command_averages_the_last_tenth_of_a_run(
    train: Run, tiny_data: Path, tmp_path: Path, steps: int, following: str
) -> None:
    run = tmp_path / "run"
    code, _, err = train(tiny_data, "--out", run, *TINY, "--save-every", 1, "--max-steps", steps)
    assert (code, f"next: nmt {following.format(run=run)}" in err) == (0, True), err


def test_validation_flags_without_a_validation_set(
    train: Run, unvalidated_data: Path, tmp_path: Path
) -> None:
    given = (unvalidated_data, "--out", tmp_path / "run", *TINY)
    for flags in (
        ("--patience", 3),
        ("--validation-bleu",),
        ("--best-by", "bleu"),
        ("--validate-every", 5),
    ):
        code, _, err = train(*given, *flags)
        assert code == 2
        assert f"{flags[0]}: " in err
    assert not (tmp_path / "run").exists()


def test_processes_without_micro_batches_are_refused() -> None:
    check_shares(8, 8)
    with pytest.raises(UsageError, match=r"16 processes .*--micro-batches 16"):
        check_shares(8, 16)
