"""The processes of peers, without their programs."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks import commands, report
from benchmarks.peers import serve, weights
from benchmarks.peers.serve import Ids, Setup, System
from benchmarks.peers.training import command
from benchmarks.peers.training.nmt import waited
from benchmarks.peers.training.serve import Setup as TrainingSetup
from benchmarks.samples import Sample
from benchmarks.synthetic import save_model
from benchmarks.workers import System as Named
from benchmarks.workers import Worker, WorkerError, peaks, products_of

SIZE = serve.Size(layers=1, width=16, inner=24, heads=2, vocabulary=50)
SETUP = Setup(
    **dataclasses.asdict(SIZE), checkpoint="", dtype="float32", cores=2, beam=1, alpha=0.6, steps=3
)


@pytest.fixture(autouse=True)
def no_process_left() -> Iterator[None]:
    """End the processes of a system, which otherwise end with the program."""
    yield
    for process in multiprocessing.active_children():
        process.terminate()
        process.join()


def counting(setup: Setup) -> System:
    """A system whose outputs are its process, its cores and the sentences of its part."""
    return System(
        "1",
        lambda sources: [[os.getpid(), setup.cores, len(sources), *source] for source in sources],
    )


@pytest.mark.parametrize(("count", "parts"), [(1, [1]), (2, [1, 1]), (5, [3, 2]), (32, [16, 16])])
def test_processes_of_one_thread_translate_equal_parts_in_order(
    count: int, parts: list[int]
) -> None:
    sources: Ids = [[number] for number in range(count)]
    outputs = serve.divide(counting, SETUP).translate(sources)
    assert [row[3:] for row in outputs] == sources
    assert {row[1] for row in outputs} == {1}
    assert list({row[0]: row[2] for row in outputs}.values()) == parts
    assert os.getpid() not in {row[0] for row in outputs}


def test_a_process_that_fails_ends_the_system(capfd: pytest.CaptureFixture[str]) -> None:
    def failing(setup: Setup) -> System:
        raise ValueError("no such model")

    with pytest.raises(SystemExit):
        serve.divide(failing, SETUP)
    # The other process may still be writing.
    assert "ValueError: no such model\n" in capfd.readouterr().err


def test_a_type_that_a_system_does_not_have_is_refused() -> None:
    setup = {**dataclasses.asdict(SIZE), "cores": 1, "tokens": 64, "pairs": []}
    with pytest.raises(WorkerError, match=r"^products float16: .*not in float16"):
        Worker(Named("products", "float16"), sys.executable, setup, "benchmarks.peers.training")


def test_a_call_before_a_sample_has_its_batch() -> None:
    sizes = []

    def translate(sources: Ids) -> Ids:
        sizes.append(len(sources))
        return [[4, 4] for _ in sources]

    assert serve.sample(translate, 3, [[5]] * 40, batch=32, seconds=0)["amount"] == 32
    assert sizes == [32, 32]


def test_no_report_of_few_rounds_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report.publish(tmp_path, "speed", 2, "The method.", ["The figures."])
    said = capsys.readouterr()
    assert not list(tmp_path.iterdir())
    assert "The figures." in said.out
    assert "--rounds 3" in said.err
    report.publish(tmp_path, "speed", 3, "The method.", ["The figures."])
    assert "The figures." in (tmp_path / "speed.md").read_text(encoding="utf-8")


def test_the_machine_has_the_numbers_of_its_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = {"model name": "AMD EPYC", "cpu family": "26", "model": "2", "flags": "avx2"}
    monkeypatch.setattr(report, "proc_fields", lambda _: fields)
    assert report.machine().startswith("AMD EPYC (family 26, model 2, avx2)")


def test_peaks_are_of_each_type_once() -> None:
    products = products_of([Named("nmt", "int8"), Named("other", "int8"), Named("nmt", "float32")])
    samples = [
        Sample({}, product.name, number, 3e9, 1.5)
        for product in products[:1]
        for number in range(3)
    ]
    assert peaks(samples, {}, products) == "Peak of the products in GFLOP/s: int8 2 (2-2)."


def test_a_training_command_is_stopped_between_passes() -> None:
    setup = TrainingSetup(
        **dataclasses.asdict(SIZE),
        dtype="float32",
        cores=1,
        tokens=9,
        pairs=[([[4]], [[5]]), ([[6]], [[7]])],
    )
    program = (
        "import itertools\nfor n in itertools.count(1): print(f'update, 1,00{n % 10} words', "
        "flush=True)"
    )
    system = command.system_of_command(
        "1", setup, [sys.executable, "-c", program], r"([\d,]+) words"
    )
    assert system.one_pass() == 1001 + 1002
    assert system.memory is not None
    assert system.memory() > 1e6
    assert system.one_pass() == 1003 + 1004
    ended = command.system_of_command(
        "1", setup, [sys.executable, "-c", "print('no memory')"], r"([\d,]+) words"
    )
    with pytest.raises(SystemExit, match="no memory"):
        ended.one_pass()


def test_the_figures_of_a_command_are_of_all_its_processes() -> None:
    work = "import time; kept = bytearray(b'1') * 50_000_000\nwhile time.process_time() < 0.5: pass"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {work!r}])"
    peak = commands.run([sys.executable, "-c", parent])
    assert peak.processor_seconds >= 0.5
    assert peak.seconds >= 0.5
    assert peak.megabytes > 50


def test_marian_computes_with_the_same_weights(tmp_path: Path) -> None:
    read = weights.read(str(save_model(tmp_path / "model", SIZE)))
    arrays = dict(weights.marian_arrays(read))
    layer = [f"W{name}" for name in "qkvo"] + ["Wo_ln_scale", "Wo_ln_bias"]
    inner = ["ffn_W1", "ffn_b1", "ffn_W2", "ffn_b2", "ffn_ffn_ln_scale", "ffn_ffn_ln_bias"]
    sides = {"encoder": ["self"], "decoder": ["self", "context"]}
    expected = {
        f"{side}_l1_{kind}_{name}"
        for side, kinds in sides.items()
        for kind in kinds
        for name in layer
    }
    assert arrays.keys() == {
        "Wemb",
        *expected,
        *(f"{side}_l1_{name}" for side in sides for name in inner),
    }
    order = [*range(0, 16, 2), *range(1, 16, 2)]  # sines, then cosines
    states = np.random.default_rng(1).normal(size=(3, 16)).astype(np.float32)
    queries = states @ read["encoder.0.self_attention.w_q.weight"].T
    assert np.allclose(states[:, order] @ arrays["encoder_l1_self_Wq"], queries, atol=1e-6)
    outputs = queries @ read["encoder.0.self_attention.w_o.weight"].T
    assert np.allclose(queries @ arrays["encoder_l1_self_Wo"], outputs[:, order], atol=1e-6)
    assert np.array_equal(arrays["Wemb"], read["target_embedding.weight"][:, order])


def test_a_pause_is_not_waiting_for_data() -> None:
    """The process was stopped during the third and the fifth update."""
    assert waited([0.5, 0.75, 60.75, 61.0, 200.0], {2, 4}) == 0.5 + 0.25 + 0.25
    assert waited([], {0}) == 0
