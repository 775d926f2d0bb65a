"""`nmt import`: a checkpoint like any other, here of a checkpoint that was exported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import nmt_cli
from nmt_cli import checkpoint
from nmt_cli.weights import load_model, load_weights

Run = Callable[..., tuple[int, str, str]]
LINES = ["abc", "hgfedcba", "a", "bad ace"]


@pytest.fixture(scope="module")
def marian(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A MarianMTModel."""
    from nmt_cli.annexes.exchange.marian import writing

    folder = tmp_path_factory.mktemp("marian")
    writing.export(*load_model(tiny_checkpoint), ["abc"], folder)
    return folder


def translations(folder: Path) -> list[str]:
    return list(nmt_cli.load(folder, device="cpu").translate(LINES, max_length=12))


def test_it_translates_as_before(
    nmt: Run, marian: Path, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    code, out, err = nmt("import", marian, "--out", tmp_path / "model")
    assert (code, out) == (0, "")
    assert f"imported {marian} into {tmp_path / 'model'}: en to de" in err
    assert translations(tmp_path / "model") == translations(tiny_checkpoint)


def test_an_earlier_one_is_replaced_only_if_asked_to(
    nmt: Run, marian: Path, tmp_path: Path
) -> None:
    command = ("import", marian, "--out", tmp_path / "model")
    assert nmt(*command)[0] == 0
    code, _, err = nmt(*command, "--source-lang", "eng")
    assert code == 2
    assert "--overwrite" in err
    assert nmt(*command, "--source-lang", "eng", "--overwrite")[0] == 0
    assert checkpoint.load_task(tmp_path / "model" / "task").languages == ("eng", "de")  # type: ignore[attr-defined]
    (tmp_path / "model" / "notes.txt").write_text("mine")
    code, _, err = nmt(*command, "--overwrite")
    assert code == 2
    assert "notes.txt" in err


def test_a_wrong_folder_leaves_nothing(nmt: Run, tiny_checkpoint: Path, tmp_path: Path) -> None:
    code, _, err = nmt("import", tiny_checkpoint, "--out", tmp_path / "model")
    assert code == 1
    assert f"{tiny_checkpoint}: cannot be imported" in err
    assert list(tmp_path.iterdir()) == []


def test_it_is_fine_tuned_on_data_prepared_with_its_vocabulary(
    nmt: Run, marian: Path, tmp_path: Path
) -> None:
    model, data, run = (tmp_path / name for name in ("model", "data", "run"))
    assert nmt("import", marian, "--out", model)[0] == 0
    for split, count in (("train", 40), ("valid", 4)):
        for language, letters in (("en", "abcdefgh"), ("de", "hgfedcba")):
            lines = "".join(f"{letters[n % 7 :]} {letters[: 1 + n % 5]}\n" for n in range(count))
            (tmp_path / f"{split}.{language}").write_text(lines, encoding="utf-8")
    languages = ("--source-lang", "en", "--target-lang", "de", "--keep-duplicates", "--workers", 1)
    texts = ("--train", tmp_path / "train", "--valid", tmp_path / "valid")
    code, _, err = nmt("prepare", *languages, *texts, "--subwords", "marian", "--out", data)
    assert code == 2
    assert "--subwords marian cannot be learned from text: give --subwords-from" in err
    code, _, err = nmt("prepare", *languages, *texts, "--subwords-from", model, "--out", data)
    assert code == 0, err
    limits = ("--max-steps", 2, "--batch-tokens", 100, "--device", "cpu")
    code, _, err = nmt("train", data, "--init-from", model, "--out", run, *limits)
    assert code == 0, err
    trained = checkpoint.locate(run)
    sections = checkpoint.read_contents(trained).sections["model"]
    assert sections["attention_biases"] is sections["output_bias"] is True
    before, after = load_weights(model), load_weights(trained)
    assert before.keys() == after.keys()
    assert not before["output_bias"].equal(after["output_bias"])


def test_the_text_of_a_folder_has_settings_of_its_own(
    nmt: Run, marian: Path, tmp_path: Path
) -> None:
    code, _, err = nmt("import", marian, "--out", tmp_path / "model", "--moses")
    assert code == 2
    assert "--moses cannot be used" in err
    assert list(tmp_path.iterdir()) == []
