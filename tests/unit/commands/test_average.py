"""`nmt average`: the mean, and what it refuses."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from nmt_cli import checkpoint
from nmt_cli.cli import main

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def average(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `nmt average ARGUMENTS` here: exit code, stdout, stderr."""

    def run(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main(["average", *map(str, arguments)])
        out, err = capsys.readouterr()
        return int(end.value.code or 0), out, err

    return run


@pytest.fixture
def copy(tiny_checkpoint: Path) -> Callable[..., Path]:
    """Writes a checkpoint like the tiny one, with its weights times a factor."""

    def write(folder: Path, factor: float = 1.0, step: int = 1, run: str = "run") -> Path:
        contents = dataclasses.replace(checkpoint.read_contents(tiny_checkpoint), step=step, run=run)
        weights = {name: factor * tensor for name, tensor in checkpoint.load_weights(tiny_checkpoint).items()}
        checkpoint.save(folder, contents, weights, checkpoint.load_task(tiny_checkpoint / "task"))
        return folder

    return write


@pytest.fixture
def run(copy: Callable[..., Path], tmp_path: Path) -> Path:
    """Checkpoints of steps 10, 20, 30 and 50, each with its step as the factor."""
    for step in (10, 20, 30, 50):
        copy(tmp_path / "run" / "checkpoints" / f"step-{step:08d}", float(step), step)
    return tmp_path / "run"


def times(folder: Path, original: Path) -> float:
    """The factor between two checkpoints' weights, the same for all of them."""
    ours, theirs = checkpoint.load_weights(folder), checkpoint.load_weights(original)
    assert ours.keys() == theirs.keys()
    factor = (ours["target_embedding.weight"][5, 0] / theirs["target_embedding.weight"][5, 0]).item()
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, factor * theirs[name])
    return factor


def test_the_last_of_a_run(average: Run, run: Path, tiny_checkpoint: Path) -> None:
    code, out, err = average(run, "--last", 3, "--out", run / "averaged")
    assert (code, out) == (0, "")
    assert "averaged 3 checkpoints, steps 20 to 50, 10 or 20 apart" in err
    assert times(run / "averaged", tiny_checkpoint) == pytest.approx((20 + 30 + 50) / 3)
    contents = checkpoint.read_contents(run / "averaged")
    assert (contents.step, contents.run) == (50, "run")
    checkpoint.load_model(run / "averaged")


def test_named_checkpoints(average: Run, run: Path, tiny_checkpoint: Path) -> None:
    chosen = [run / "checkpoints" / f"step-000000{step}" for step in (10, 50)]
    assert average(*chosen, "--out", run / "averaged")[0] == 0
    assert times(run / "averaged", tiny_checkpoint) == pytest.approx(30)


def test_the_mean_of_equals_is_the_same_bits(average: Run, copy: Callable[..., Path], tmp_path: Path) -> None:
    """Sums in float64: three times a float32 number, divided by three, is that number."""
    same = [copy(tmp_path / name, 1 / 3, step) for step, name in enumerate("abc", start=1)]
    average(*same, "--out", tmp_path / "averaged")
    ours, theirs = checkpoint.load_weights(tmp_path / "averaged"), checkpoint.load_weights(same[0])
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_run_stands_for_its_newest_checkpoint(average: Run, run: Path, tiny_checkpoint: Path) -> None:
    assert average(run, run / "checkpoints" / "step-00000010", "--out", run / "averaged")[0] == 0
    assert times(run / "averaged", tiny_checkpoint) == pytest.approx(30)


def test_different_runs_are_refused_unless_forced(average: Run, copy: Callable[..., Path], tmp_path: Path) -> None:
    one, other = copy(tmp_path / "one", run="a"), copy(tmp_path / "other", 3.0, run="b")
    code, _, err = average(one, other, "--out", tmp_path / "averaged")
    assert code == 1
    assert f"{other}: belongs to another run than {one}" in err
    assert "--force" in err
    assert not (tmp_path / "averaged").exists()
    assert average(one, other, "--force", "--out", tmp_path / "averaged")[0] == 0
    assert times(tmp_path / "averaged", one) == pytest.approx(2)


def test_different_models_are_refused_even_so(
    average: Run, copy: Callable[..., Path], make_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    one, other = copy(tmp_path / "one"), make_checkpoint(tmp_path / "other", letters="abcdefghij")
    code, _, err = average(one, other, "--force", "--out", tmp_path / "averaged")
    assert code == 1
    assert f"{other}: target_embedding.weight is not the same tensor as in {one}" in err
    assert not (tmp_path / "averaged").exists()


@pytest.mark.parametrize("fewer_first", [True, False])
def test_models_of_different_depth(
    average: Run, copy: Callable[..., Path], tiny_checkpoint: Path, tmp_path: Path, fewer_first: bool
) -> None:
    deep = tmp_path / "deep"
    weights = checkpoint.load_weights(tiny_checkpoint)
    more = {**weights, "encoder.1.extra": torch.ones(2)}
    task = checkpoint.load_task(tiny_checkpoint / "task")
    checkpoint.save(deep, checkpoint.read_contents(tiny_checkpoint), more, task)
    pair = [copy(tmp_path / "shallow"), deep][:: 1 if fewer_first else -1]
    code, _, err = average(*pair, "--out", tmp_path / "averaged")
    assert code == 1
    assert "encoder.1.extra is not the same tensor" in err


def test_near_duplicates_are_pointed_out(average: Run, copy: Callable[..., Path], tmp_path: Path) -> None:
    pair = [copy(tmp_path / name, step=7) for name in "ab"]
    code, _, err = average(*pair, "--out", tmp_path / "averaged")
    assert code == 0
    assert "warning: some of them are of the same step" in err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["{run}", "--last", "5"], 2, "has 4 checkpoints, not 5; give --last 4"),
        (["{run}"], 2, "give --last N with the run"),
        (["{run}", "{run}", "--last", "2"], 2, "--last N takes exactly one RUN"),
        (["{tmp}/absent", "--last", "2"], 2, "absent: not the folder of a run"),
        (["{run}/checkpoints/step-00000010", "--last", "1"], 2, "step-00000010: not the folder of a run"),
        (["{tmp}/absent", "{run}"], 1, "absent: no such checkpoint folder"),
        (["{run}", "--last", "0"], 2, "--last"),
    ],
)
def test_refusals(average: Run, run: Path, tmp_path: Path, arguments: list[str], code: int, message: str) -> None:
    given = [part.format(run=run, tmp=tmp_path) for part in arguments]
    found, out, err = average(*given, "--out", tmp_path / "averaged")
    assert (found, out) == (code, "")
    assert message in " ".join(err.split())
    assert not (tmp_path / "averaged").exists()


def test_a_damaged_checkpoint_is_named(average: Run, run: Path, tmp_path: Path) -> None:
    weights = run / "checkpoints" / "step-00000030" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    code, _, err = average(run, "--last", 3, "--out", tmp_path / "averaged")
    assert code == 1
    assert f"{weights}: damaged" in err
    assert not (tmp_path / "averaged").exists()


def test_what_is_there_is_replaced_only_when_asked_for(average: Run, run: Path, tiny_checkpoint: Path) -> None:
    out = run / "averaged"
    assert average(run, "--last", 1, "--out", out)[0] == 0
    code, _, err = average(run, "--last", 2, "--out", out)
    assert code == 2
    assert f"{out}: exists already" in err
    assert times(out, tiny_checkpoint) == pytest.approx(50)
    assert average(run, "--last", 2, "--out", out, "--overwrite")[0] == 0
    assert times(out, tiny_checkpoint) == pytest.approx(40)


def test_what_is_no_checkpoint_is_never_replaced(average: Run, run: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1").write_text("years of work")
    code, _, err = average(run, "--last", 2, "--out", tmp_path / "thesis", "--overwrite")
    assert code == 2
    assert "will not replace it" in err
    assert (tmp_path / "thesis" / "chapter1").read_text() == "years of work"


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def give_training(folder: Path) -> Path:
    """The checkpoint's `training.json`, which makes it one from which training goes on."""
    (folder / "training.json").write_text("{}")
    return folder


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("{run}", "is no checkpoint, so"),
        ("{run}/checkpoints", "is no checkpoint, so"),
        ("{tmp}", "is no checkpoint, so"),
        ("{run}/checkpoints/step-00000050", "lies among what training wrote"),
        ("{run}/checkpoints/step-00000010", "lies among what training wrote"),
        ("{run}/checkpoints/step-00000060", "lies among what training wrote"),
        ("{run}/checkpoints/averaged", "lies among what training wrote"),
        ("{run}/best", "holds training.json besides averaged weights"),
        ("{run}/mine", "holds notes.txt besides averaged weights"),
        ("{run}/file", "is no folder"),
        ("{run}/loop", "leads in a circle"),
        (".", "is no checkpoint, so"),
    ],
)
def test_nothing_but_an_averaged_checkpoint_is_ever_replaced(
    average: Run,
    run: Path,
    copy: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    out: str,
    message: str,
) -> None:
    """Least of all the run itself, a checkpoint from which training goes on, or what a link leads to."""
    (run / "config.json").write_text("{}")
    (run / "file").write_text("x")
    (run / "loop").symlink_to("loop")
    give_training(copy(run / "checkpoints" / "best-00000030"))
    (run / "best").symlink_to("checkpoints/best-00000030")
    (copy(run / "mine") / "notes.txt").write_text("mine")
    monkeypatch.chdir(run)
    before = everything(tmp_path)
    code, _, err = average(run, "--last", 2, "--out", out.format(run=run, tmp=tmp_path), "--overwrite")
    assert code in (1, 2)
    assert message in err
    assert everything(tmp_path) == before


def test_a_run_that_lies_in_the_output_is_refused(average: Run, run: Path, copy: Callable[..., Path]) -> None:
    """Whatever the output's own files look like."""
    out = copy(run.parent / "averaged")
    inside = copy(out / "task" / "one", step=3)
    before = everything(run.parent)
    code, _, err = average(inside, run, "--out", out, "--overwrite")
    assert code == 2
    assert f"{out}: is or holds {inside}" in err
    code, _, err = average(out, run, "--out", out / "task" / "two")
    assert code == 2
    assert "lies among what training wrote" in err
    assert everything(run.parent) == before


def test_a_link_to_an_averaged_checkpoint_is_followed(average: Run, run: Path, tiny_checkpoint: Path) -> None:
    assert average(run, "--last", 1, "--out", run / "one")[0] == 0
    (run / "link").symlink_to("one")
    assert average(run, "--last", 2, "--out", run / "link", "--overwrite")[0] == 0
    assert (run / "link").is_symlink()
    assert times(run / "one", tiny_checkpoint) == pytest.approx(40)
    assert sorted(path.name for path in run.iterdir()) == ["checkpoints", "link", "one"]


def test_the_folder_one_stands_in_is_replaced(
    average: Run, run: Path, tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert average(run, "--last", 1, "--out", run / "averaged")[0] == 0
    monkeypatch.chdir(run / "averaged")
    assert average(run, "--last", 2, "--out", ".", "--overwrite")[0] == 0
    assert times(run / "averaged", tiny_checkpoint) == pytest.approx(40)
