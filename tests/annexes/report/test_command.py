"""`nmt report` on real runs of a tiny model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_run import run as tiny_run

from nmt_cli.metrics.bleu import score

Nmt = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def runs(tiny_data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run that recorded examples, and a larger one that did not."""
    folder = tmp_path_factory.mktemp("runs")
    tiny_run(tiny_data, folder / "small", validate_every=4, show=2)
    tiny_run(tiny_data, folder / "large", d_model=32)
    return folder / "small", folder / "large"


def data_of(page: Path) -> dict[str, Any]:
    page_data: dict[str, Any] = json.loads(
        page.read_text("utf-8").split('id="data">')[1].split("</script>")[0]
    )
    return page_data


def test_scores_are_those_of_nmt_translate_and_nmt_score(
    nmt: Nmt, runs: tuple[Path, Path], tiny_data: Path, tmp_path: Path
) -> None:
    code, printed, messages = nmt(
        "report", *runs, "--beam", 1, "--out", tmp_path / "page.html", "--device", "cpu"
    )
    assert (code, printed) == (0, ""), messages
    outputs = data_of(tmp_path / "page.html")["outputs"]
    references = (tiny_data / "valid.target.txt").read_text().splitlines()
    for run, scores in zip(runs, outputs["scores"], strict=True):
        nmt(
            "translate",
            run,
            "--input",
            tiny_data / "valid.source.txt",
            "--beam",
            1,
            "--output",
            tmp_path / "lines",
        )
        expected = score((tmp_path / "lines").read_text().splitlines(), references, ["bleu"])[
            0
        ].score
        assert scores["bleu"] == pytest.approx(expected)
    assert outputs["runs"] == [str(run) for run in runs]
    assert outputs["p"][0] is None
    assert 0 <= outputs["p"][1] <= 1
    assert (
        sum(row["count"] for row in outputs["lengths"]) == len(references) == outputs["sentences"]
    )


def test_examples_improve_from_records_or_from_checkpoints(
    nmt: Nmt, runs: tuple[Path, Path], tmp_path: Path
) -> None:
    nmt(
        "report",
        *runs,
        "--examples",
        2,
        "--beam",
        1,
        "--out",
        tmp_path / "page.html",
        "--device",
        "cpu",
    )
    data = data_of(tmp_path / "page.html")
    recorded = [json.loads(line) for line in (runs[0] / "metrics.jsonl").read_text().splitlines()]
    first = next(line for line in recorded if "examples" in line)
    example = next(
        example
        for example in data["examples"]
        if example["source"] == first["examples"][0]["source"]
    )
    small = next(
        run_of_example
        for run_of_example in example["runs"]
        if run_of_example["run"] == str(runs[0])
    )
    assert small["stages"][0] == [first["step"], first["examples"][0]["output"]]
    large = [
        run_of_example
        for example in data["examples"]
        for run_of_example in example["runs"]
        if run_of_example["run"] == str(runs[1])
    ]
    assert len(large) == 2
    assert {run_of_example["stages"][0][0] for run_of_example in large} == {4}
    assert {step for run_of_example in large for step, _ in run_of_example["stages"]} <= {4, 8, 12}
    assert {sentence["model"] for sentence in data["sentences"]} == {str(run) for run in runs}


def test_without_sentences_nothing_is_translated(
    nmt: Nmt, runs: tuple[Path, Path], tmp_path: Path
) -> None:
    code, _, messages = nmt("report", runs[0], "--sentences", 0, "--out", tmp_path / "page.html")
    assert code == 0
    assert "translating" not in messages
    data = data_of(tmp_path / "page.html")
    assert (data["outputs"], data["examples"], data["sentences"]) == (None, [], None)
    assert data["runs"][0]["curves"]["step"]


def test_a_run_whose_data_are_missing_is_named_and_shown_without_outputs(
    nmt: Nmt, runs: tuple[Path, Path], tmp_path: Path
) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(runs[1], moved, symlinks=True)
    config = json.loads((moved / "config.json").read_text())
    config["data"]["paths"] = [str(tmp_path / "gone")]
    (moved / "config.json").write_text(json.dumps(config))
    code, _, messages = nmt(
        "report", moved, runs[1], "--beam", 1, "--out", tmp_path / "page.html", "--device", "cpu"
    )
    assert code == 0
    assert f"{moved}: the report has no outputs of it" in messages
    data = data_of(tmp_path / "page.html")
    assert [run["name"] for run in data["runs"]] == [str(moved), str(runs[1])]
    assert data["outputs"]["runs"] == [str(runs[1])]


def test_a_damaged_checkpoint_is_left_out_of_the_examples(
    nmt: Nmt, runs: tuple[Path, Path], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(runs[1], run, symlinks=True)
    (run / "checkpoints" / "step-00000004" / "model.safetensors").unlink()
    code, _, messages = nmt(
        "report", run, "--beam", 1, "--out", tmp_path / "page.html", "--device", "cpu"
    )
    assert code == 0
    assert "its examples are without step-00000004" in messages
    data = data_of(tmp_path / "page.html")
    assert {
        run_of_example["stages"][0][0]
        for example in data["examples"]
        for run_of_example in example["runs"]
    } == {8}
    assert data["outputs"]["sentences"] == 50


def test_a_damaged_validation_set_is_named(
    nmt: Nmt, runs: tuple[Path, Path], tiny_data: Path, tmp_path: Path
) -> None:
    run, data = tmp_path / "run", tmp_path / "data"
    shutil.copytree(runs[1], run, symlinks=True)
    shutil.copytree(tiny_data, data)
    text = (data / "valid.target.txt").read_text().splitlines(keepends=True)
    (data / "valid.target.txt").write_text("".join(text[:-3]))
    config = json.loads((run / "config.json").read_text())
    config["data"]["paths"] = [str(data)]
    (run / "config.json").write_text(json.dumps(config))
    code, _, messages = nmt("report", run, "--out", tmp_path / "page.html", "--device", "cpu")
    assert code == 0
    assert "no outputs of it" in messages


def test_a_stranger_s_data_do_not_show_other_files(
    nmt: Nmt, runs: tuple[Path, Path], tiny_data: Path, tmp_path: Path
) -> None:
    run, data, private = tmp_path / "run", tmp_path / "data", tmp_path / "private"
    shutil.copytree(runs[1], run, symlinks=True)
    shutil.copytree(tiny_data, data)
    private.write_text(
        "my secret\n" * len((tiny_data / "valid.source.txt").read_text().splitlines())
    )
    (data / "valid.source.txt").unlink()
    (data / "valid.source.txt").symlink_to(private)
    config = json.loads((run / "config.json").read_text())
    config["data"]["paths"] = [str(data)]
    (run / "config.json").write_text(json.dumps(config))
    code, _, messages = nmt("report", run, "--out", tmp_path / "page.html", "--device", "cpu")
    assert code == 0
    assert "valid.source.txt: has changed" in messages
    assert "secret" not in (tmp_path / "page.html").read_text("utf-8")


def test_json_is_for_other_programs(nmt: Nmt, runs: tuple[Path, Path], tmp_path: Path) -> None:
    code, printed, messages = nmt("report", *runs, "--json")
    assert (code, messages) == (0, "")
    contents = json.loads(printed)
    assert [content["name"] for content in contents] == [str(run) for run in runs]
    assert [content["settings"]["model.d_model"] for content in contents] == [16, 32]
    assert nmt("report", *runs, "--json", "--out", tmp_path / "runs.json")[:2] == (0, "")
    assert (tmp_path / "runs.json").read_text() == printed


def test_a_page_needs_a_name(nmt: Nmt, runs: tuple[Path, Path]) -> None:
    code, printed, messages = nmt("report", runs[0])
    assert (code, printed) == (2, "")
    assert "--out" in messages


def test_a_run_s_own_imports_are_not_run(
    nmt: Nmt, runs: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, left = tmp_path / "run", tmp_path / "left"
    shutil.copytree(runs[1], run, symlinks=True)
    (tmp_path / "stranger.py").write_text(f"open({str(left)!r}, 'w')")
    monkeypatch.syspath_prepend(tmp_path)
    config = json.loads((run / "config.json").read_text())
    config["imports"] = ["stranger"]
    (run / "config.json").write_text(json.dumps(config))
    assert (
        nmt("report", run, "--sentences", 2, "--out", tmp_path / "page.html", "--device", "cpu")[0]
        == 0
    )
    assert not left.exists()


def test_a_file_of_the_run_is_not_replaced(nmt: Nmt, runs: tuple[Path, Path]) -> None:
    before = (runs[0] / "metrics.jsonl").read_bytes()
    assert nmt("report", runs[0], "--sentences", 0, "--out", runs[0] / "metrics.jsonl")[0] == 2
    assert (runs[0] / "metrics.jsonl").read_bytes() == before


def test_users_mistakes_leave_no_page(nmt: Nmt, runs: tuple[Path, Path], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert nmt("report", tmp_path / "none", "--out", page)[0] == 2
    assert not page.exists()


def test_train_names_the_command(nmt: Nmt, runs: tuple[Path, Path]) -> None:
    code, _, messages = nmt("train", "--resume", runs[1])
    assert code == 0
    assert f"report: nmt report {runs[1]} --out {runs[1] / 'report.html'}" in messages
