"""What all tests share: one thread each, and the way to real data."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

# Before torch is imported: tests run side by side, one thread each.
os.environ["OMP_NUM_THREADS"] = "1"

# Tests started in the background, or under nohup, inherit ignored signals, and would hand them on
# to all that they run.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# A busy machine is no fault of the code. `make test` draws the same examples each time, so that who
# breaks nothing sees nothing break. `make faults` draws new ones, and more. A bare machine with a
# GPU lacks hypothesis and pytest-timeout, which the tests of a GPU do not need.
if find_spec("hypothesis"):
    from hypothesis import settings

    settings.register_profile("steady", deadline=None, derandomize=True)
    settings.register_profile("searching", deadline=None)
    settings.load_profile("searching" if os.environ.get("NMT_FAULTS") == "long" else "steady")

ROOT = Path(__file__).resolve().parent.parent
# scripts, and benchmarks.
sys.path[:0] = [str(ROOT / "recipes"), str(ROOT / "tests" / "support"), str(ROOT)]


def pytest_addoption(parser: pytest.Parser) -> None:
    if find_spec("pytest_timeout") is None:
        parser.addini("timeout", "the option of pytest-timeout in pyproject.toml")


@pytest.fixture
def nmt(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """Run `nmt ARGUMENTS` in this process, on a terminal of 120 columns.

    Return exit code, stdout and stderr.
    """
    from nmt_cli.cli import main
    from nmt_cli.training import costs

    # The rate of a CPU is measured on large products, which take as long as a tiny training.
    monkeypatch.setitem(costs.PRODUCT_SIZES, "cpu", 64)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "dumb")

    def run(*arguments: object) -> tuple[int, str, str]:
        capfd.readouterr()
        with pytest.raises(SystemExit) as end:
            main([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        assert end.value.code is None or isinstance(end.value.code, int)
        return end.value.code or 0, out, err

    return run


@pytest.fixture(scope="session")
def forked_nmt() -> Iterator[Path]:
    """The program `nmt` for tests of commands whose start is not the subject."""
    from forked_nmt import forking_nmt

    with tempfile.TemporaryDirectory(prefix="nmt-") as folder, forking_nmt(Path(folder)) as program:
        yield program


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data: NMT_SHARED_DATA, or shared/data beside the checkout."""
    folder = Path(os.environ.get("NMT_SHARED_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip("needs real data: set NMT_SHARED_DATA to its folder")
    return folder


@pytest.fixture(scope="session")
def tiny_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepared data of a task with a known answer: numbers below 1,000, in English and German."""
    from numbers_below_1000 import name

    from nmt_cli import registry
    from nmt_cli.commands.prepare import PrepareOptions, prepare

    folder = tmp_path_factory.mktemp("tiny")
    splits = {
        "train": [n for n in range(1000) if n % 10],
        "valid": range(0, 1000, 20),
        "test": range(10, 1000, 20),
    }
    for split, numbers in splits.items():
        for language in ("en", "de"):
            lines = "".join(f"{name(n, language)}\n" for n in numbers)
            (folder / f"{split}.{language}").write_text(lines, encoding="utf-8")
    registry.discover(homes=("tasks",))
    prefixes = {split: str(folder / split) for split in splits}
    settings = PrepareOptions(
        out=folder / "data",
        train=(prefixes["train"],),
        valid=prefixes["valid"],
        test=prefixes["test"],
        workers=1,
    )
    prepare(settings, {"source_lang": "en", "target_lang": "de", "vocab_size": 120})
    return folder / "data"


@pytest.fixture
def unvalidated_data(tiny_data: Path, tmp_path: Path) -> Path:
    """A copy of `tiny_data` without its validation set."""
    data = tmp_path / "data"
    shutil.copytree(tiny_data, data)
    manifest = json.loads((data / "manifest.json").read_text())
    del manifest["splits"]["valid"]
    (data / "manifest.json").write_text(json.dumps(manifest))
    return data


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Count the tests that were skipped, by what they need."""
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ")
        for report in terminalreporter.stats.get("skipped", ())
        if isinstance(report.longrepr, tuple)
    )
    if reasons:
        terminalreporter.section("skipped, and what would run them")
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count:4}  {reason}")
