"""The files of runs, as reports show them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tiny_run import run as tiny_run

from nmt_cli.errors import UsageError
from nmt_cli.report.runs import read_run


@pytest.fixture(scope="module")
def trained(tiny_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trained") / "run"
    tiny_run(tiny_data, out, validate_every=4)
    return out


@pytest.fixture
def copy(trained: Path, tmp_path: Path) -> Path:
    shutil.copytree(trained, tmp_path / "run", symlinks=True)
    return tmp_path / "run"


def test_figures_are_the_summary_s(trained: Path) -> None:
    summary: dict[str, Any] = json.loads((trained / "summary.json").read_text())
    figures = read_run(trained).figures()
    assert figures["updates"] == "12"
    assert figures["parameters"] == f"{summary['parameters']:,}"
    assert figures["FLOPs, counted"] == f"{summary['flops']:.4g}"
    assert figures["FLOPs, as Table 2 estimates them"] == f"{summary['flops_as_table2']:.4g}"
    assert figures["best validation loss"].endswith(f"at update {summary['best_step']}")
    assert figures["devices"].startswith("1 x ")
    assert {"nmt", "torch", "Python"} <= figures.keys()


def test_a_run_that_has_not_ended_has_the_figures_of_its_last_line(copy: Path) -> None:
    (copy / "summary.json").unlink()
    figures = read_run(copy).figures()
    assert figures["updates"] == "12"
    assert figures["training time"].endswith("not ended")


def test_curves_have_a_value_or_none_for_each_line(trained: Path) -> None:
    found = read_run(trained)
    curves = found.curves()
    assert curves["step"] == [line["step"] for line in found.metrics]
    assert {len(column) for column in curves.values()} == {len(found.metrics)}
    for line, loss in zip(found.metrics, curves["validation_loss"], strict=True):
        expected = line.get("validation_loss")
        assert loss == (expected if expected is None else pytest.approx(expected, rel=1e-4))
    assert None in curves["validation_loss"]


def test_dropped_sentences_are_prepare_s(trained: Path, tiny_data: Path) -> None:
    manifest = json.loads((tiny_data / "manifest.json").read_text())["splits"]["train"]
    about = read_run(trained).prepared()[f"{tiny_data}, train"]
    assert (about["read"], about["dropped"], about["kept"]) == (
        manifest["read"],
        manifest["dropped"],
        manifest["sentences"],
    )


def test_data_that_are_missing_have_no_counts(copy: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    config["data"]["paths"] = ["/nonexistent"]
    (copy / "config.json").write_text(json.dumps(config))
    assert read_run(copy).prepared() == {}


def test_settings_are_named_as_flags(trained: Path) -> None:
    settings = read_run(trained).settings()
    assert settings["model.d_ff"] == "32"
    assert settings["training.validate_every"] == "4"


def test_the_last_line_of_a_run_that_goes_on_may_be_incomplete(copy: Path) -> None:
    before = read_run(copy).metrics
    with (copy / "metrics.jsonl").open("a") as file:
        file.write('{"step": 1')
    assert read_run(copy).metrics == before


def test_numbers_that_json_lacks_are_left_out(copy: Path) -> None:
    with (copy / "metrics.jsonl").open("a") as file:
        file.write(
            '{"step": 13, "training_seconds": 1, "target_tokens": 9, "validation_loss": NaN, "loss": Infinity}\n'
        )
    found = read_run(copy)
    assert found.curves()["validation_loss"][-1] is None
    json.dumps([found.figures(), found.curves()], allow_nan=False)


def test_a_run_that_goes_on_after_its_end_has_the_figures_of_its_last_line(copy: Path) -> None:
    with (copy / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5000, "training_seconds": 1, "target_tokens": 9, "loss": 1.0}\n')
    figures = read_run(copy).figures()
    assert figures["updates"] == "5,000"
    assert figures["training time"].endswith("not ended")


def test_long_curves_are_thinned_and_keep_validations(copy: Path) -> None:
    line = {"step": 1, "training_seconds": 1.0, "target_tokens": 9, "loss": 1.0}
    lines = [line | {"step": step} | ({"validation_loss": 2.0} if step % 101 == 0 else {}) for step in range(9000)]
    (copy / "metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    curves = read_run(copy).curves()
    assert len(curves["step"]) < 2200
    assert curves["validation_loss"].count(2.0) == len(range(0, 9000, 101))


def test_a_damaged_manifest_has_no_counts(copy: Path, tiny_data: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_data, tmp_path / "data")
    manifest = json.loads((tiny_data / "manifest.json").read_text())
    del manifest["splits"]["train"]["read"]
    (tmp_path / "data" / "manifest.json").write_text(json.dumps(manifest))
    config = json.loads((copy / "config.json").read_text())
    config["data"]["paths"] = [str(tmp_path / "data")]
    (copy / "config.json").write_text(json.dumps(config))
    assert read_run(copy).prepared() == {}


@pytest.mark.parametrize("name", ["summary.json", "metrics.jsonl"])
@pytest.mark.parametrize("content", [b"{", b"\xff\n", b"1\n"])
def test_a_damaged_file_is_named(copy: Path, name: str, content: bytes) -> None:
    with (copy / name).open("wb") as file:
        file.write(content + b"\n")
    with pytest.raises(UsageError, match=name):
        read_run(copy)


@pytest.mark.parametrize(("content", "message"), [("", "logged nothing yet"), ("{\n", "damaged")])
def test_metrics_that_cannot_be_read_are_refused(copy: Path, content: str, message: str) -> None:
    (copy / "metrics.jsonl").write_text(content)
    with pytest.raises(UsageError, match=message):
        read_run(copy)


def test_a_directory_that_is_not_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a run"):
        read_run(tmp_path)
