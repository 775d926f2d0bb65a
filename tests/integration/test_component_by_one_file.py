"""Components in files of the user: the examples of docs/adding-a-component.md."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Nmt = Callable[..., subprocess.CompletedProcess[str]]

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "adding-a-component.md"
SMALL = (
    "--num-layers 1 --d-model 16 --d-ff 16 --num-heads 1 --batch-tokens 512 --max-steps 2 "
    "--save-every 1"
).split()


def save_example(name: str, folder: Path) -> None:
    """Save the example of the guide that it says to save as `name`."""
    example = re.search(
        rf"`{name}`.*?```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL
    )
    assert example is not None
    (folder / name).write_text(example[1], encoding="utf-8")


def path_with(folder: Path) -> str:
    return os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])


@pytest.fixture(scope="module")
def contracts(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The outcome of each test of contracts for the components of three files."""
    folder = tmp_path_factory.mktemp("contracts")
    modules = ["bag_of_words", "tempered", "spreadsheet"]
    for module in modules:
        save_example(f"{module}.py", folder)
    checks = [
        sys.executable,
        "-m",
        "pytest",
        "-rA",
        "-q",
        "-p",
        "no:cacheprovider",
        ROOT / "tests" / "contracts",
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": path_with(folder),
        "NMT_COMPONENTS": " ".join(modules),
    }
    checked = subprocess.run(
        [*checks, "-k", " or ".join(modules)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout
    return checked.stdout


def test_a_model_in_one_file_keeps_its_contract_trains_and_translates(
    nmt: Nmt, data: Path, tmp_path: Path, contracts: str
) -> None:
    save_example("bag_of_words.py", tmp_path)
    save_example("bag_presets.py", tmp_path)
    place = {"PYTHONPATH": path_with(tmp_path)}
    assert re.search(r"^PASSED .*bag_of_words", contracts, re.MULTILINE)

    imported = ("--import", "bag_of_words")
    flags = (
        "--d-model 16 --batch-tokens 512 --warmup-steps 5 --learning-rate-scale 0.5 --max-steps "
        "20 --log-every 5"
    )
    chosen = (*imported, "--import", "bag_presets", "--preset", "bag_small", *flags.split())
    trained = nmt("train", data, *chosen, "--out", tmp_path / "a run", **place)
    metrics = [
        json.loads(line)
        for line in (tmp_path / "a run" / "metrics.jsonl").read_text("utf-8").splitlines()
    ]
    assert metrics[-1]["loss"] < metrics[0]["loss"]
    # They run as they are.
    report, following = re.findall(r"^(?:report|next): nmt (.*)$", trained.stderr, re.MULTILINE)
    nmt(*shlex.split(report), **place)
    translated = nmt(*shlex.split(following), stdin="forty-two\nseven\n", **place)
    assert translated.stdout.count("\n") == 2


def test_an_attention_in_one_file_keeps_its_contract_trains_and_translates(
    nmt: Nmt, data: Path, tmp_path: Path, contracts: str
) -> None:
    save_example("tempered.py", tmp_path)
    assert re.search(r"^PASSED .*tempered", contracts, re.MULTILINE)
    place = {"PYTHONPATH": str(tmp_path)}
    chosen = ("--import", "tempered", "--attention", "tempered", "--temperature", "1.5")
    nmt("train", data, *SMALL, *chosen, "--out", tmp_path / "run", **place)
    config = json.loads((tmp_path / "run" / "config.json").read_text(encoding="utf-8"))
    assert config["attention"] == {"name": "tempered", "temperature": 1.5}
    translated = nmt(
        "translate", tmp_path / "run", "--import", "tempered", stdin="forty-two\nseven\n", **place
    )
    assert translated.stdout.count("\n") == 2


def test_a_length_penalty_in_one_file_makes_outputs_longer(
    nmt: Nmt, data: Path, tmp_path: Path
) -> None:
    save_example("reward.py", tmp_path)
    nmt("train", data, *SMALL, "--out", tmp_path / "run")
    lengths = []
    for flags in ((), ("--import", "reward", "--length-reward", "50")):
        translated = nmt(
            "translate", tmp_path / "run", *flags, stdin="forty-two\n", PYTHONPATH=str(tmp_path)
        )
        lengths.append(len(translated.stdout))
    assert lengths[0] <= lengths[1]


def test_every_block_of_the_guide_is_whole() -> None:
    """Each runs with names of its own in one process, apart from the other tests."""
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 7
    code = (
        "import json, sys\nfor block in json.load(sys.stdin):\n    exec(block, {'__name__': "
        "'__main__'})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(blocks), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_an_optimizer_in_one_file_brings_its_flags(nmt: Nmt, data: Path, tmp_path: Path) -> None:
    save_example("momentum.py", tmp_path)
    chosen = ("--import", "momentum", "--optimizer", "momentum", "--momentum", "0.95")
    nmt("train", data, *SMALL, *chosen, "--out", tmp_path / "run", PYTHONPATH=str(tmp_path))
    config = json.loads((tmp_path / "run" / "config.json").read_text(encoding="utf-8"))
    assert config["optimizer"] == {"name": "momentum", "momentum": 0.95, "nesterov": False}


def test_an_observer_in_one_file_keeps_its_contract_and_observes(
    nmt: Nmt, data: Path, tmp_path: Path, contracts: str
) -> None:
    save_example("spreadsheet.py", tmp_path)
    assert re.search(r"^PASSED .*spreadsheet", contracts, re.MULTILINE)
    chosen = (
        "--import",
        "spreadsheet",
        "--spreadsheet",
        str(tmp_path / "losses.csv"),
        "--log-every",
        "1",
    )
    nmt("train", data, *SMALL, *chosen, "--out", tmp_path / "run", PYTHONPATH=str(tmp_path))
    steps = [
        line.split(",")[0]
        for line in (tmp_path / "losses.csv").read_text(encoding="utf-8").splitlines()
    ]
    assert steps == ["1", "2"]
