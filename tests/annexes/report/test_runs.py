"""The files of runs, as reports show them."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from tiny_run import run as tiny_run

from nmt_cli.annexes.report.runs import read_run
from nmt_cli.errors import NmtError, UsageError


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
    figures = read_run(trained).readable_figures()
    assert figures["updates"] == "12"
    assert figures["parameters"] == f"{summary['parameters']:,}"
    assert figures["FLOPs, counted"] == f"{summary['flops']:.4g}"
    assert figures["FLOPs, as Table 2 estimates them"] == f"{summary['flops_as_table2']:.4g}"
    assert figures["best validation loss"].endswith(f"at update {summary['best_step']}")
    assert figures["devices"].startswith("1 x ")
    assert {"nmt", "torch", "Python"} <= figures.keys()


def test_a_run_that_has_not_ended_has_the_figures_of_its_last_line(copy: Path) -> None:
    (copy / "summary.json").unlink()
    figures = read_run(copy).readable_figures()
    assert figures["updates"] == "12"
    assert figures["training time"].endswith("not ended")


@pytest.mark.parametrize("best_by", ["loss", "perplexity"])
def test_a_run_that_has_not_ended_has_the_figures_of_the_summary(copy: Path, best_by: str) -> None:
    """All but where the device's rates come from.

    Of a measure other than the loss, the highest is the best.
    """
    summary = json.loads((copy / "summary.json").read_text())
    (copy / "summary.json").unlink()
    config = json.loads((copy / "config.json").read_text())
    config["training"]["best_by"] = best_by
    (copy / "config.json").write_text(json.dumps(config))
    values = read_run(copy).figures()
    assert not values["ended"]
    same = ["steps", "parameters", "target_tokens", "device_hours", "flops", "skipped_updates"]
    assert {name: values[name] for name in same} == {name: summary[name] for name in same}
    # The last step was logged.
    assert values["peak_learning_rate"] == pytest.approx(summary["peak_learning_rate"])
    validated = [line for line in read_run(copy).metrics if "validation_loss" in line]
    if best_by == "loss":
        assert values["best_validation_loss"] == summary["best_validation_loss"]
        assert values["best_step"] == summary["best_step"]
    else:
        assert values["best_validation_perplexity"] == max(
            line["validation_perplexity"] for line in validated
        )


def test_a_run_without_validation_has_no_best_one(copy: Path) -> None:
    lines = [json.loads(line) for line in (copy / "metrics.jsonl").read_text().splitlines()]
    plain = [{name: line[name] for name in line if "validation" not in name} for line in lines]
    (copy / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in plain))
    (copy / "summary.json").unlink()
    assert not any("best" in name for name in read_run(copy).readable_figures())


def test_other_programs_get_numbers(trained: Path) -> None:
    content = read_run(trained).as_object()
    summary: dict[str, Any] = json.loads((trained / "summary.json").read_text())
    assert content["name"] == str(trained)
    assert content["figures"]["ended"]
    assert content["figures"]["parameters"] == summary["parameters"]
    assert content["figures"]["best_validation_loss"] == summary["best_validation_loss"]
    assert content["settings"]["model.d_ff"] == 32


def test_a_figure_that_json_lacks_is_left_out(copy: Path) -> None:
    summary = json.loads((copy / "summary.json").read_text())
    (copy / "summary.json").write_text(json.dumps(summary | {"best_validation_loss": float("inf")}))
    assert "best_validation_loss" not in read_run(copy).as_object()["figures"]


def test_curves_have_a_value_or_none_for_each_line(trained: Path) -> None:
    run = read_run(trained)
    curves = run.curves()
    assert curves["step"] == [line["step"] for line in run.metrics]
    assert {len(column) for column in curves.values()} == {len(run.metrics)}
    for line, loss in zip(run.metrics, curves["validation_loss"], strict=True):
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
    assert settings["model.d_ff"] == 32
    assert settings["training.validate_every"] == 4


def test_the_last_line_of_a_run_that_goes_on_may_be_incomplete(copy: Path) -> None:
    before = read_run(copy).metrics
    with (copy / "metrics.jsonl").open("a") as file:
        file.write('{"step": 1')
    assert read_run(copy).metrics == before


def test_numbers_that_json_lacks_are_left_out(copy: Path) -> None:
    with (copy / "metrics.jsonl").open("a") as file:
        file.write(
            '{"step": 13, "training_seconds": 1, "target_tokens": 9, '
            '"validation_loss": NaN, "loss": Infinity}\n'
        )
    run = read_run(copy)
    assert run.curves()["validation_loss"][-1] is None
    json.dumps([run.readable_figures(), run.curves()], allow_nan=False)


def test_a_run_that_goes_on_after_its_end_has_the_figures_of_its_last_line(copy: Path) -> None:
    with (copy / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5000, "training_seconds": 1, "target_tokens": 9, "loss": 1.0}\n')
    figures = read_run(copy).readable_figures()
    assert figures["updates"] == "5,000"
    assert figures["training time"].endswith("not ended")


def test_long_curves_are_thinned_and_keep_validations(copy: Path) -> None:
    line = {"step": 1, "training_seconds": 1.0, "target_tokens": 9, "loss": 1.0}
    lines = [
        line | {"step": step} | ({"validation_loss": 2.0} if step % 101 == 0 else {})
        for step in range(9000)
    ]
    (copy / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in lines))
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


LINE = '{"step": 1, "training_seconds": 1.0, "target_tokens": 9}\n'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "logged nothing yet"),
        ("{\n", "damaged"),
        ("[" * 200_000 + "\n", "damaged"),
        ("1\n", "damaged"),
    ],
)
def test_metrics_that_cannot_be_read_are_refused(copy: Path, content: str, message: str) -> None:
    (copy / "metrics.jsonl").write_text(content)
    with pytest.raises(UsageError, match=message):
        read_run(copy)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("step", "1e999"),
        ("target_tokens", "-1e999"),
        ("training_seconds", "1" + "0" * 400),
        ("training_seconds", "NaN"),
        ("training_seconds", "[1]"),
        ("step", "[1]"),
    ],
)
def test_what_is_not_a_number_in_the_metrics_is_refused(copy: Path, name: str, value: str) -> None:
    (copy / "metrics.jsonl").write_text(re.sub(rf'("{name}": )[^,}}]+', rf"\g<1>{value}", LINE))
    with pytest.raises(UsageError, match="damaged"):
        read_run(copy).for_page()


def test_numbers_that_json_lacks_are_no_error_in_a_step(copy: Path) -> None:
    (copy / "metrics.jsonl").write_text(LINE.replace('"step": 1', '"step": NaN'))
    content = read_run(copy).for_page()
    json.dumps(content, allow_nan=False)
    assert content["curves"]["step"] == [None]
    assert "updates" not in content["figures"]


def test_a_manifest_with_numbers_that_json_lacks_is_refused(
    copy: Path, tiny_data: Path, tmp_path: Path
) -> None:
    shutil.copytree(tiny_data, tmp_path / "data")
    manifest = json.loads((tiny_data / "manifest.json").read_text())
    manifest["splits"]["train"]["read"] = float("nan")
    (tmp_path / "data" / "manifest.json").write_text(json.dumps(manifest))
    config = json.loads((copy / "config.json").read_text())
    config["data"]["paths"] = [str(tmp_path / "data")]
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(UsageError, match="damaged"):
        read_run(copy).for_page()


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_metrics_that_are_no_file_are_refused(copy: Path, kind: str) -> None:
    (copy / "metrics.jsonl").unlink()
    if kind == "pipe":
        os.mkfifo(copy / "metrics.jsonl")
    else:
        (copy / "metrics.jsonl").symlink_to("/dev/zero")
    with pytest.raises(NmtError, match=r"metrics\.jsonl: .*a pipe"):
        read_run(copy)


def test_as_many_curves_as_a_page_can_show(copy: Path) -> None:
    """A file with another name in each line would need the square of its size."""
    line = json.loads(LINE)
    lines = [line | {f"validation_{number}": 1.0} for number in range(1000)]
    (copy / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in lines))
    assert len(read_run(copy).curves()) == 3 + 20


def test_a_directory_that_is_not_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a run"):
        read_run(tmp_path)
