"""`nmt prepare`: its output, and its errors."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prepare_command import run

from nmt_cli.commands.prepare import PrepareOptions, prepare
from nmt_cli.data.corpus import Corpus
from nmt_cli.errors import DataError
from nmt_cli.files import parallel_text
from nmt_cli.tasks.translation import TranslationTask

WORDS = "the a small big old dog cat man runs sleeps sees in on under house park tree".split()
WORTE = (
    "der ein kleiner grosser alter Hund Katze Mann rennt schläft sieht in auf unter Haus Park Baum"
).split()
FLAGS = {"source_lang": "en", "target_lang": "de", "vocab_size": 100}


def sentences(count: int, seed: int = 0) -> tuple[list[str], list[str]]:
    """Pairs of random sentences, all different: the last word is the pair's number."""
    chosen = np.random.default_rng(seed).integers(0, len(WORDS), (count, 6))
    source = [" ".join(WORDS[i] for i in row) + f" {number}" for number, row in enumerate(chosen)]
    target = [" ".join(WORTE[i] for i in row) + f" {number}" for number, row in enumerate(chosen)]
    return source, target


def write(folder: Path, name: str, source: list[str], target: list[str], ending: str = "") -> str:
    for language, lines in (("en", source), ("de", target)):
        content = "".join(f"{line}\n" for line in lines).encode()
        path = folder / f"{name}.{language}{ending}"
        path.write_bytes(gzip.compress(content) if ending else content)
    return str(folder / name)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    write(tmp_path, "train", *sentences(300))
    write(tmp_path, "valid", *sentences(20, seed=1), ending=".gz")
    return tmp_path


def arguments(folder: Path, *more: str, out: str = "data") -> list[str]:
    return [
        *(
            *"prepare --source-lang en --target-lang de --vocab-size 100".split(),
            *"--workers 1".split(),
        ),
        *(
            "--train",
            str(folder / "train"),
            "--valid",
            str(folder / "valid"),
            "--out",
            str(folder / out),
            *more,
        ),
    ]


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def manifest_of(folder: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    return manifest


def test_ids_are_those_of_the_text(text: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(arguments(text)) == 0
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "encoding train: done" in captured.err
    task = TranslationTask.load(text / "data" / "task")
    for split, (source, target) in {
        "train": sentences(300),
        "valid": sentences(20, seed=1),
    }.items():
        corpus = Corpus.open(text / "data", split)
        corpus.verify()
        assert [task.decode_target(corpus.source(i), "") for i in range(len(corpus))] == source
        assert [task.decode_target(corpus.target(i), "") for i in range(len(corpus))] == target
    assert Corpus.open(text / "data", "valid").raw_lines("target") == sentences(20, seed=1)[1]
    assert not list(text.glob(".*"))


def test_the_table_and_the_manifest_count_every_pair(
    text: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source, target = sentences(300)
    source += ["", "x" * 3000, "one", "so", "a\0b", source[0], source[0]]
    target += ["leer", "y", "o" * 99, "so", "c", target[0], target[1]]
    write(text, "train", source, target)
    assert run(arguments(text, "--drop-identical", "--byte-fallback", "--vocab-size", "400")) == 0
    expected = {
        "NUL byte": 1,
        "duplicate": 1,
        "empty": 1,
        "length ratio": 1,
        "source equals target": 1,
        "too long": 1,
    }
    train = manifest_of(text / "data")["splits"]["train"]
    assert (train["read"], train["dropped"], train["sentences"]) == (307, expected, 301)
    assert train["source"]["tokens"] == int(
        (Corpus.open(text / "data", "train").source_lengths[:] - 1).sum()
    )
    table = capfd.readouterr().err
    assert "unknown tokens" not in table
    assert table.endswith(f"next: nmt train {text / 'data'} --preset quickstart --out RUN\n")
    for reason, count in expected.items():
        assert [row.split()[-2:] for row in table.splitlines() if reason in row] == [
            [str(count), "0"]
        ]


def test_same_bytes_for_any_number_of_workers(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_text, "BLOCK", 7)
    more = ("--moses", "--subwords", "unigram", "--vocab-size", "60", "--separate-vocabularies")
    assert run(arguments(text, *more, out="one")) == 0
    assert run(arguments(text, *more, "--workers", "3", out="three")) == 0
    assert contents(text / "one") == contents(text / "three")


def test_several_files_line_ends_byte_order_marks_and_gzip_change_nothing(text: Path) -> None:
    source, target = sentences(300)
    first = write(text, "a", source[:100], target[:100])
    second = write(text, "b", source[100:], target[100:])
    for path in text.glob("b.*"):
        path.write_bytes(gzip.compress(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n")))
    assert run(arguments(text, out="whole")) == 0
    parts = arguments(text, "--train", second, out="parts")
    parts[parts.index("--train") + 1] = first
    assert run(parts) == 0
    whole, joined = contents(text / "whole"), contents(text / "parts")
    assert {name for name in whole if whole[name] != joined[name]} == {"manifest.json"}


def test_parts_have_their_weights_and_are_stored_once(text: Path) -> None:
    source, target = sentences(300)
    source[250] = source[10]
    target[250] = target[10]
    write(text, "a", source[:100], target[:100])
    write(text, "b*2", source[100:], target[100:])
    flags = arguments(text, "--train", f"{text}/b*2*1")
    flags[flags.index("--train") + 1] = f"{text}/a*3"
    assert run(flags) == 0
    parts = [
        {"prefix": f"{text}/a", "sentences": 100, "weight": 3},
        {"prefix": f"{text}/b*2", "sentences": 199, "weight": 1},
    ]
    assert manifest_of(text / "data")["splits"]["train"]["parts"] == parts
    corpus = Corpus.open(text / "data", "train")
    assert [part[:3] for part in corpus.parts] == [(0, 100, 3), (100, 299, 1)]
    task = TranslationTask.load(text / "data" / "task")
    assert task.decode_target(corpus.target(100), "") == target[100]


def test_validation_lines_all_stay(text: Path) -> None:
    source = ["", "same\x85line\u2028here", "same\x85line\u2028here", "dog " * 300, "Жук dog"]
    target = ["leer", "x", "x", "", "Hund"]
    write(text, "valid", source, target)
    assert run(arguments(text)) == 0
    corpus = Corpus.open(text / "data", "valid")
    assert (corpus.raw_lines("source"), corpus.raw_lines("target")) == (source, target)
    assert len(corpus.source(0)) == 0
    valid = manifest_of(text / "data")["splits"]["valid"]
    assert valid["dropped"] == {}
    assert valid["source"]["unknown"] == 2 + 1  # U+0085, and a run of letters


@pytest.mark.timeout(300)  # long lines must not be tokenised
def test_pairs_empty_after_tokenisation_and_very_long_lines_are_dropped(text: Path) -> None:
    source, target = sentences(300)
    long = ["w" * 1_000_000, "word " * 200_000]
    write(
        text,
        "train",
        [*source[:9], "\x01", *long, *source[9:]],
        [*target[:9], "x", "kurz", "kurz", *target[9:]],
    )
    assert run(arguments(text, "--moses")) == 0
    train = manifest_of(text / "data")["splits"]["train"]
    assert (train["read"], train["dropped"], train["sentences"]) == (
        303,
        {"empty": 1, "too long": 2},
        300,
    )
    assert Corpus.open(text / "data", "train").source_lengths[:].min() > 1


def edit(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


def replace_line(number: int, line: bytes) -> Callable[[bytes], bytes]:
    def change(content: bytes) -> bytes:
        lines = content.split(b"\n")
        lines[number - 1] = line
        return b"\n".join(lines)

    return change


@pytest.mark.parametrize(
    ("spoil", "place", "workers"),
    [
        (lambda f: (f / "train.de").unlink(), "train.de", "1"),
        (lambda f: edit(f / "train.en", replace_line(7, b"caf\xe9")), "train.en:7", "2"),
        (lambda f: edit(f / "train.en", lambda c: c + b"x\n"), "301 lines", "1"),
        (lambda f: edit(f / "valid.en.gz", lambda c: c[:-20]), "valid.en.gz", "1"),
        (
            lambda f: [(f / name).write_bytes(b"") for name in ("train.en", "train.de")],
            "train",
            "1",
        ),
        (lambda f: (f / "train.de").write_bytes(b"\n" * 300), "empty 300", "1"),
        (
            lambda f: [edit(p, lambda _: gzip.compress(b"")) for p in f.glob("valid.*")],
            "--valid",
            "1",
        ),
        (lambda f: write(f, "valid", ["a", "b"], ["x", "a\0b"], ".gz"), "valid.en.gz:2: NUL", "1"),
    ],
)
def test_bad_text_is_an_error_and_nothing_is_written(
    text: Path,
    capfd: pytest.CaptureFixture[str],
    spoil: Callable[[Path], Any],
    place: str,
    workers: str,
) -> None:
    spoil(text)
    before = sorted(text.iterdir())
    assert run(arguments(text, "--workers", workers)) == 1
    captured = capfd.readouterr()
    assert place in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""
    assert sorted(text.iterdir()) == before


def test_validation_lines_in_the_training_text_are_reported(
    text: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    train, valid = sentences(300), sentences(20, seed=1)
    write(
        text,
        "valid",
        [*valid[0], train[0][5], train[0][6]],
        [*valid[1], train[1][5], "other"],
        ".gz",
    )
    assert run(arguments(text)) == 0
    (warning,) = [
        line for line in capfd.readouterr().err.splitlines() if line.startswith("warning")
    ]
    assert "2 of 22 valid source lines" in warning


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--vocab-size", "99999"], "--vocab-size 99999"),
        (["--subwords", "bpee"], "bpe?"),
        (["--target-lang", "en"], "--target-lang"),
        (["--vocab-size", "9" * 18], "--vocab-size must be at most"),
        (["--train", "x*0"], "the weight must be above 0 and at most 1000, not 0"),
    ],
)
def test_settings_that_do_not_fit(
    text: Path, capfd: pytest.CaptureFixture[str], more: list[str], message: str
) -> None:
    assert run(arguments(text, *more)) == 2
    error = capfd.readouterr().err
    assert "Traceback" not in error
    assert message in error
    assert not (text / "data").exists()


def test_existing_data_is_replaced_only_on_request(
    text: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments(text)) == 0
    before = contents(text / "data")
    assert run(arguments(text)) == 2
    assert "--overwrite" in capfd.readouterr().err
    assert contents(text / "data") == before
    assert run(arguments(text, "--overwrite", "--lowercase")) == 0
    assert contents(text / "data") != before


def test_vocabulary_of_a_run_is_that_of_its_newest_checkpoint(
    text: Path, make_checkpoint: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    """The next command starts from its weights, unlike with the vocabulary of prepared data."""
    use = [argument for argument in arguments(text) if argument not in ("--vocab-size", "100")]
    assert run([*use, "--subwords-from", str(text)]) == 1
    (text / "run" / "checkpoints").mkdir(parents=True)
    assert run([*use, "--subwords-from", str(text / "run")]) == 1
    for step, letters in enumerate(("abcd", "abcdefgh")):
        make_checkpoint(text / "run" / "checkpoints" / f"step-{step:08d}", letters=letters)
    assert run([*use, "--subwords-from", str(text / "run")]) == 0
    assert TranslationTask.load(text / "data" / "task").source_vocabulary_size == 5 + len(
        "abcdefgh"
    )
    assert f"next: nmt train {text / 'data'} --init-from {text / 'run'} " in capfd.readouterr().err
    assert run([*use, "--subwords-from", str(text / "data"), "--overwrite"]) == 0
    assert f"next: nmt train {text / 'data'} --out RUN" in capfd.readouterr().err


def test_a_full_disk_leaves_nothing(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fsync

    def full(descriptor: int) -> None:
        real(descriptor)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device"):
        prepare(PrepareOptions(out=text / "data", train=(str(text / "train"),), workers=1), FLAGS)
    assert not list(text.glob("*data*"))
    assert not list(text.glob(".*"))


def test_text_that_changes_while_it_is_read(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learn = TranslationTask.learn

    def learn_and_change(task: TranslationTask, pairs: Any) -> None:
        learn(task, pairs)
        for language in ("en", "de"):
            edit(text / f"train.{language}", lambda content: content + b"more\n")

    monkeypatch.setattr(TranslationTask, "learn", learn_and_change)
    with pytest.raises(DataError, match="changed while it was read"):
        prepare(PrepareOptions(out=text / "data", train=(str(text / "train"),), workers=1), FLAGS)


@pytest.mark.parametrize(
    ("stop", "stage"),
    [
        (signal.SIGINT, "learning the vocabulary ..."),
        (signal.SIGKILL, "learning the vocabulary: done"),
    ],
)
def test_a_stopped_command_leaves_no_data_and_no_process(text: Path, stop: int, stage: str) -> None:
    write(text, "train", *sentences(20_000))
    sample = "20000" if stage.endswith("...") else "500"  # learning takes a while, or encoding does
    flags = ("--moses", "--subwords", "unigram", "--workers", "2", "--sample-pairs", sample)
    command = [sys.executable, "-m", "nmt_cli", *arguments(text, *flags)]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stderr is not None
        while not (line := process.stderr.readline()).startswith(stage):
            assert line, "it has ended"
        if stop == signal.SIGKILL:
            process.kill()
        else:
            os.killpg(process.pid, stop)
        _, error = process.communicate(timeout=300)
        # Python may exit by the signal, which a shell reports alike.
        assert process.returncode in {-stop, 128 + stop}
        assert "Traceback" not in error
        with contextlib.suppress(ProcessLookupError):
            for _ in range(2000):
                os.killpg(process.pid, 0)
                time.sleep(0.05)
            pytest.fail("worker processes are still running")
    assert not (text / "data").exists()
    write(text, "train", *sentences(300))
    assert run(arguments(text)) == 0
    assert not list(text.glob(".*"))


def test_it_needs_no_torch(text: Path) -> None:
    code = f"import sys; from nmt_cli.cli import main; main({arguments(text)!r})"
    code = f"import atexit, sys; atexit.register(lambda: print('torch' in sys.modules)); {code}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "False\n"
