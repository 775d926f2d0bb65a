"""The recipes of small tasks with the real commands, on little text in the format of each task."""

from __future__ import annotations

import gzip
import json
import subprocess
import unicodedata
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

Bash = Callable[..., subprocess.CompletedProcess[str]]
Rows = Callable[[str], dict[str, list[str]]]
TINY = (
    "--num-layers 1 --d-model 16 --d-ff 16 --num-heads 1 --warmup-steps 5 --batch-tokens 512"
).split()


@pytest.fixture
def recipe(recipes: Path, bash: Bash, tmp_path: Path) -> Bash:
    """Run a recipe of a small task with a tiny model. Give each file of the folder as its lines."""

    def run(
        name: str, files: dict[str, list[str]], *arguments: str, code: int = 0
    ) -> subprocess.CompletedProcess[str]:
        for file, lines in files.items():
            path = tmp_path / "files" / file
            path.parent.mkdir(parents=True, exist_ok=True)
            content = "".join(f"{line}\n" for line in lines).encode()
            path.write_bytes(gzip.compress(content) if file.endswith(".gz") else content)
        script = recipes / "tasks" / name
        return bash(
            *(script, tmp_path / "files", *arguments, "--out", tmp_path / "out", "--", *TINY),
            STEPS="30",
            PIECES="40",
            code=code,
        )

    return run


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


INFLECTION = {
    "sub/kor_small.train": [f"가{letter}\t가{letter} 다\tV;PST" for letter in "각난달맘밥삿앙" * 8],
    "kor.dev": ["가독\t가독 다\tV;PST"] * 5,
    "kor.gold": ["가곡\t가곡 다\tV;FUT;PST", "난\t난다\tV", "가곡\t가곡\u00a0다\tV;PST"],
}


def test_a_wrong_folder_is_forgotten(recipes: Path, bash: Bash, tmp_path: Path) -> None:
    def refused(folder: str, *flags: str, code: int) -> str:
        (tmp_path / folder).mkdir(exist_ok=True)
        command = [
            recipes / "tasks/inflection.sh",
            tmp_path / folder,
            "kor",
            "--out",
            tmp_path / "out",
            *flags,
        ]
        return bash(*command, code=code).stderr

    assert "no kor_large.train" in refused("wrong", code=1)
    (tmp_path / "right").mkdir()
    (tmp_path / "right/kor_large.train").write_text("가\t가다\tV\n", encoding="utf-8")
    assert "no kor.dev" in refused("right", code=1)
    assert "give another --out" in refused("wrong", code=2)
    assert "--seed is the recipe's own" in refused("right", "--", "--seed", "2", code=2)


def test_inflection(recipe: Bash, rows_of: Rows, tmp_path: Path) -> None:
    twice = INFLECTION | {"other/kor.dev": INFLECTION["kor.dev"]}
    assert (
        "more than one kor.dev"
        in recipe("inflection.sh", twice, "kor", "--size", "small", code=1).stderr
    )
    (tmp_path / "files/other/kor.dev").unlink()
    beside = INFLECTION | {"kor.dev.gz": INFLECTION["kor.dev"]}
    done = recipe("inflection.sh", beside, "kor", "--size", "small", "--seeds", "2")
    rows = rows_of(done.stdout)
    assert sorted(list(rows)[2:]) == ["exact", "exact, no spaces", "exact, with spaces"]
    published, mean, seeds, ensemble, difference, _ = rows["exact"]
    assert float(published) == 23.523
    assert float(mean) - 23.523 == pytest.approx(float(difference), abs=0.006)
    assert float(mean) == pytest.approx(sum(map(float, seeds.split(" to "))) / 2, abs=0.006)
    assert 0 <= float(ensemble) <= 100
    # No training form has FUT.
    assert lines_of(tmp_path / "out/data/test.source.txt")[0] == "<V> <PST> 가곡"
    outputs = [lines_of(tmp_path / f"out/seed-{seed}.output") for seed in (1, 2)]
    assert all(unicodedata.is_normalized("NFC", line) for lines in outputs for line in lines)
    again = recipe("inflection.sh", INFLECTION, "kor", "--size", "small", "--seeds", "2")
    assert again.stdout == done.stdout
    assert "nmt translate" not in again.stderr
    third = recipe("inflection.sh", INFLECTION, "kor", "--size", "small", "--seeds", "3")
    assert third.stderr.count("+ nmt translate") == 2
    assert (tmp_path / "out/ensemble-3.output").exists()
    assert (
        "another --out"
        in recipe("inflection.sh", INFLECTION, "kor", "--size", "large", code=2).stderr
    )


def test_phones(recipe: Bash, rows_of: Rows, tmp_path: Path) -> None:
    """A letter is a word of the source, and a phone of several characters one of the target."""
    files = {
        f"kor_{part}.tsv": ["가곡\tk a̠ ɡ o̞ k̚", "가\tk a̠"] * 20 for part in ("train", "dev", "test")
    }
    rows = rows_of(recipe("g2p.sh", files, "kor", "--seeds", "1").stdout)
    assert rows["exact"][0] == "83.7"
    few = json.loads((tmp_path / "out/seed-1/run/config.json").read_text("utf-8"))
    # By the number of words.
    assert (few["model"]["norm"], few["training"]["batch_sentences"]) == ("pre", 32)
    assert (
        lines_of(tmp_path / "out/train.tsv")[0]
        == " ".join(unicodedata.normalize("NFD", "가곡")) + "\tk a̠ ɡ o̞ k̚"
    )
    letters, phones = (
        (tmp_path / f"out/data/task/{side}.json").read_text("utf-8")
        for side in ("source", "target")
    )
    assert '"k̚"' in phones
    assert '"k̚"' not in letters


def test_old_spelling(recipe: Bash, rows_of: Rows, tmp_path: Path) -> None:
    """The task's own script prepares the text.

    Samples of consecutive tokens are evenly spaced in the training text.
    """
    lines = [*["vnd\tund"] * 20, *["jn\tihn"] * 20, *["dz\tdas"] * 20]
    files = {f"german-anselm.{part}.txt.gz": lines for part in ("train", "dev", "test")}
    files["scripts/preprocess.py"] = ["import sys; print(open(sys.argv[2]).read().upper(), end='')"]
    rows = rows_of(recipe("histnorm.sh", files, "german-anselm", "--tokens", "20").stdout)
    assert rows["exact"][0] == ""
    assert rows["exact"][2].count(" to ") == 1
    for before, word in ((0, "VND\tUND"), (20, "JN\tIHN"), (40, "DZ\tDAS")):
        sample = tmp_path / f"out/20-after-{before}"
        assert lines_of(sample / "train.tsv") == [word] * 20
        assert [len(lines_of(sample / f"{part}.tsv")) for part in ("valid", "test")] == [7, 60]


def test_code(recipe: Bash, rows_of: Rows, tmp_path: Path) -> None:
    sides = {
        "java": ["int f() {\treturn 1; }", "void g() { h(); }"] * 40,
        "cs": ["int F(){return 1;}", "void G(){H();}"] * 40,
    }
    parts = ("train", "valid", "test")
    files = {f"{part}.java-cs.txt.{side}": lines for part in parts for side, lines in sides.items()}
    assert "java-cs or cs-java" in recipe("code.sh", files, "java", code=2).stderr
    (tmp_path / "files/train.java-cs.txt.cs").unlink()
    without = {name: lines for name, lines in files.items() if name != "train.java-cs.txt.cs"}
    assert "no train.java-cs.txt.cs" in recipe("code.sh", without, "cs-java", code=1).stderr
    assert not (tmp_path / "out/train.tsv").exists()
    short = files | {"train.java-cs.txt.cs": sides["cs"][:-1]}
    assert "as many lines" in recipe("code.sh", short, "cs-java", code=1).stderr
    rows = rows_of(recipe("code.sh", files, "cs-java").stdout)
    assert [rows[measure][0] for measure in ("codexglue", "exact")] == ["50.47", "37.9"]
    assert lines_of(tmp_path / "out/test.tsv")[0] == "int F(){return 1;}\tint f() { return 1; }"


def test_scan(recipe: Bash, tmp_path: Path) -> None:
    """All of the training commands but one in twenty, and each kind of positions."""
    lines = [
        f"IN: jump {times} OUT: {' '.join(['I_JUMP'] * count)}"
        for times, count in (("twice", 2), ("thrice", 3))
    ]
    files = {"tasks_train_addprim_jump.txt": lines * 30, "tasks_test_addprim_jump.txt": lines}
    done = recipe("scan.sh", files, "addprim_jump", "--seeds", "1")
    kinds = ("absolute", "relative", "rotary", "none")
    assert [line for line in done.stdout.split("\n") if "Positions" in line] == [
        f"Positions: {kind}" for kind in kinds
    ]
    assert done.stdout.count("| exact ") == 4
    for kind in kinds:
        assert lines_of(tmp_path / "out" / kind / "train.tsv")[0] == "jump twice\tI_JUMP I_JUMP"
        assert len(lines_of(tmp_path / "out" / kind / "data/valid.source.txt")) == 3
    config = (tmp_path / "out/rotary/seed-1/run/config.json").read_text(encoding="utf-8")
    assert '"rotary"' in config


def test_both_directions_in_one_model(recipe: Bash, rows_of: Rows, tmp_path: Path) -> None:
    sides = {"en": ["the file", "a key & more"] * 60, "lv": ["fails ir", "atslega un"] * 60}
    files = {
        f"lv-en.{part}.{side}": lines
        for part in ("train", "dev", "test")
        for side, lines in sides.items()
    }
    rows = rows_of(recipe("small_languages.sh", files, "latvian").stdout)
    assert [rows[f"codexglue, {tag}"][0] for tag in ("2lv", "2en")] == ["37.85", "50.37"]
    sources = lines_of(tmp_path / "out/data/test.source.txt")
    assert (sources[0], sources[-1]) == ("<2lv> the file", "<2en> atslega un")


def test_repeated_pairs_are_not_held_out(recipe: Bash, rows_of: Rows, tmp_path: Path) -> None:
    """In Guarani's training text, nearly every second pair is there again.

    Lines of the dev text all count.
    """
    files = {
        f"train.{side}": [f"uno {n % 100} {side}" for n in range(200)] for side in ("es", "gn")
    }
    files |= {"dev.es": ["uno", "", "uno"], "dev.gn": ["peteĩ", "mokõi", "peteĩ"]}
    rows = rows_of(recipe("small_languages.sh", files, "guarani").stdout)
    assert rows["bleu"][0] == "3.26"
    train, valid = (set(lines_of(tmp_path / f"out/{part}.tsv")) for part in ("train", "valid"))
    assert (len(train), len(valid), len(train & valid)) == (98, 2, 0)
    assert lines_of(tmp_path / "out/data/test.source.txt") == files["dev.es"]


def test_reactions(recipe: Bash, rows_of: Rows, tmp_path: Path) -> None:
    reactions = ["CCOC(C)=O >> CCO.CC(=O)O", "CNC(C)=O >> CN.CC(=O)O"]
    files = {f"retrosynthesis-{part}.smi": reactions * 30 for part in ("train", "valid", "test")}
    if find_spec("rdkit") is None:
        assert "pip install rdkit" in recipe("reactions.sh", files, code=1).stderr
        assert not (tmp_path / "out").exists()
        return
    rows = rows_of(recipe("reactions.sh", files).stdout)
    assert {
        "top-1",
        "top-3",
        "top-5",
        "same string",
        "same InChI",
        "all reactants, or more",
    } <= set(rows)
    assert float(rows["same string"][0]) == float(rows["top-1"][1])


def test_names(recipe: Bash, rows_of: Rows, tmp_path: Path) -> None:
    """Files have the names of the task, or those of its parts, and a number that is not read."""
    train = ["rudyard\tр е д ь я р д\t1", "maher\tм е х е р\t11"] * 20
    files = {"wd_russian_64": train, "sub/wd_russian_16": train[:4], "russian.test.gz": train[:2]}
    rows = rows_of(recipe("names.sh", files, "russian", "--seeds", "1").stdout)
    assert [rows[f"top-{rank}"][0] for rank in (1, 2, 3)] == ["59.65", "71.05", "75.33"]
    assert lines_of(tmp_path / "out/data/test.source.txt") == ["r u d y a r d", "m a h e r"]
    assert lines_of(tmp_path / "out/data/test.target.txt") == ["р е д ь я р д", "м е х е р"]
    assert len(lines_of(tmp_path / "out/seed-1.output")) == 6


def triples(city: str) -> str:
    return f"<TRIPLE> {city}_Airport cityServed {city} </TRIPLE>"


WEBNLG = {
    "train.src": [triples("Aarhus"), triples("Aarhus"), triples("Lahore")] * 8,
    "train.trg": ["It serves Aarhus .", "Aarhus , it serves .", "Lahore 's airport ."] * 8,
    "train.info": ["Id1,Airport,1", "Id2,Airport,1"],
    "dev.src": [triples("Aarhus")],
    "dev.trg": ["It serves Aarhus ."],
    "test.src.gz": [triples("Lahore"), triples("Aarhus"), triples("Aarhus")],
    "test.trg": ["Lahore 's airport .", "It serves Aarhus .", "Aarhus , it serves ."],
    "test.info": ["Id1,City,1", "Id1,Airport,1"],
}


def test_triples(recipe: Bash, rows_of: Rows, tmp_path: Path) -> None:
    """Texts of the same triples are references of one line, and domains are seen or not."""
    rows = rows_of(recipe("webnlg.sh", WEBNLG, "--seeds", "1").stdout)
    published = {name: cells[0] for name, cells in rows.items() if name.startswith("bleu-lc")}
    assert published == {"bleu-lc": "33.68", "bleu-lc, seen": "58.02", "bleu-lc, unseen": ""}
    out = tmp_path / "out"
    assert lines_of(out / "references/1") == ["Lahore's airport.", "It serves Aarhus."]
    assert lines_of(out / "references/2") == ["", "Aarhus, it serves."]
    assert lines_of(out / "labels") == ["unseen", "seen"]
    assert " ." not in (out / "seed-1.output").read_text(encoding="utf-8")


def test_triples_of_other_files(recipe: Bash) -> None:
    files = WEBNLG | {"test.info": ["Id1,City,1"]}
    assert "2 sets, test.info 1" in recipe("webnlg.sh", files, code=1).stderr
