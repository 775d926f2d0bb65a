"""`nmt prepare --hold-out`: validation and test text from training text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from prepare_command import run

from nmt_cli.data.corpus import Corpus
from nmt_cli.files import parallel_text
from nmt_cli.tasks.translation import TranslationTask


def write(prefix: Path, pairs: list[tuple[str, str]]) -> None:
    for side, language in enumerate(("en", "de")):
        content = "".join(f"{pair[side]}\n" for pair in pairs).encode()
        prefix.with_name(f"{prefix.name}.{language}").write_bytes(content)


def held_out_of(folder: Path, *more: str, out: str) -> dict[str, list[tuple[str, str]]]:
    """Prepare `all` with `--hold-out 20`, and return the pairs of each split."""
    words = [
        *"prepare --source-lang en --target-lang de --vocab-size 60".split(),
        *"--workers 1".split(),
    ]
    assert (
        run(
            [
                *words,
                "--train",
                str(folder / "all"),
                "--hold-out",
                "20",
                "--out",
                str(folder / out),
                *more,
            ]
        )
        == 0
    )
    task = TranslationTask.load(folder / out / "task")
    pairs = {}
    for split in ("train", "valid", "test"):
        corpus = Corpus.open(folder / out, split)
        corpus.verify()
        ids = ((corpus.source(i), corpus.target(i)) for i in range(len(corpus)))
        pairs[split] = [
            (task.decode_target(source, ""), task.decode_target(target, ""))
            for source, target in ids
        ]
        if split != "train":
            assert (
                list(zip(corpus.raw_lines("source"), corpus.raw_lines("target"), strict=True))
                == pairs[split]
            )
    return pairs


def test_hold_out_takes_clean_pairs_and_leaves_none_of_their_sides(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel_text, "BLOCK", 7)
    # Each side twice, no pair twice.
    clean = [(f"the dog {n // 2}", f"der Hund {n % 150}") for n in range(300)]
    dirty = [("empty", ""), ("same", "same"), *clean[:50], ("a" * 99, "b")]
    write(tmp_path / "all", [*dirty, *clean])
    splits = held_out_of(tmp_path, "--drop-identical", out="one")
    assert "warning" not in capfd.readouterr().err
    assert len(splits["valid"]) == len(splits["test"]) == 20
    held = splits["valid"] + splits["test"]
    assert len({source for source, _ in held}) == 40
    assert set(held) < set(clean)
    sources, targets = ({pair[side] for pair in held} for side in (0, 1))
    left = [pair for pair in clean if pair[0] not in sources and pair[1] not in targets]
    assert sorted(splits["train"]) == sorted(left)
    manifest = json.loads((tmp_path / "one" / "manifest.json").read_text())
    train, valid = manifest["splits"]["train"], manifest["splits"]["valid"]
    assert train["dropped"]["held out"] == 300 - len(left)
    assert train["read"] == 353 == len(left) + sum(train["dropped"].values())
    assert (valid["read"], valid["dropped"], manifest["settings"]["hold_out"]) == (20, {}, 20)

    write(tmp_path / "all", clean[::-1])
    again = held_out_of(tmp_path, "--keep-duplicates", out="two")
    chosen = [{source for source, _ in splits[split]} for split in ("valid", "test")]
    assert [{source for source, _ in again[split]} for split in ("valid", "test")] == chosen


def test_hold_out_leaves_no_pair_that_is_the_same_to_a_model(tmp_path: Path) -> None:
    letters = [f"{first}{second}" for first in "abcdefgh" for second in "abcdefgh"]
    write(
        tmp_path / "all",
        [(f"{word} {odd}dog", f"Hund {word}") for word in letters for odd in ("", " ", "\u200b")],
    )
    splits = held_out_of(tmp_path, out="one")
    assert len(splits["train"]) == 3 * (64 - 40)
    for side in (0, 1):
        held = {pair[side] for pair in splits["valid"] + splits["test"]}
        assert len(held) == 40
        assert held.isdisjoint(pair[side] for pair in splits["train"])


def test_hold_out_that_cannot_be(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "a", [(f"dog {n}", f"Hund {n}") for n in range(9)])
    words = [*"prepare --source-lang en --target-lang de --train".split(), str(tmp_path / "a")]
    words += ["--out", str(tmp_path / "data")]
    assert run([*words, "--hold-out", "2", "--test", str(tmp_path / "a")]) == 2
    assert "--hold-out takes validation" in capfd.readouterr().err
    assert run([*words, "--hold-out", "5"]) != 0
    assert "dropped: held out 9" in capfd.readouterr().err
