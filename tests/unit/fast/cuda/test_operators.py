"""The kernels in machine code: Triton has the compiler of GPUs, and needs none."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt_cli.fast.cuda import operators

triton = pytest.importorskip("triton")
pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") == "1", reason="make test-kernels: compiles kernels"
)
SHARED = {80: 163 << 10, 90: 227 << 10}  # bytes that a program may have, on an A100 and an H100
Compiled = dict[str, tuple[int, int]]  # by kernel: bytes of shared memory, and of the stack


class Driver:
    """Says that there is a GPU of an architecture."""

    def __init__(self, architecture: int) -> None:
        self.architecture = architecture

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self.architecture, 32)

    def get_current_device(self) -> int:
        return self.architecture  # compiled kernels are kept for each

    def get_current_stream(self, device: int) -> int:
        return 0


@pytest.fixture(params=SHARED)
def architecture(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return number


@pytest.fixture
def compiled(
    architecture: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[[Callable[[], Any]], Compiled]:
    """Compile the kernels that a function launches, and launch nothing."""
    from triton.runtime.jit import JITFunction

    kernels: list[Any] = []
    run = JITFunction.run

    def compile_only(self: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        kernel = run(self, *arguments, grid=grid, warmup=True, **options)
        kernels.append(kernel)
        return kernel

    def used(kernel: Any) -> tuple[int, int]:
        code = tmp_path / "kernel.cubin"
        code.write_bytes(kernel.asm["cubin"])
        command = [triton.knobs.nvidia.cuobjdump.path, "--dump-resource-usage", str(code)]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        stack = re.search(r"STACK:(\d+)", told)
        assert stack is not None, told
        return kernel.metadata.shared, int(stack[1])

    def compile_all(work: Callable[[], Any]) -> Compiled:
        work()
        return {kernel.metadata.name: used(kernel) for kernel in kernels}

    monkeypatch.setattr(JITFunction, "run", compile_only)
    triton.runtime.driver.set_active(Driver(architecture))
    return compile_all


@pytest.mark.parametrize("d_model", [512, 1024])
def test_an_update_without_spilled_registers(
    compiled: Callable[[Callable[[], Any]], Compiled], architecture: int, d_model: int
) -> None:
    """Of base and big, in bfloat16. On an H100 all fits into registers."""
    rows, heads = 512, d_model // 64

    def draw(*shape: int) -> Tensor:
        return torch.zeros(*shape, dtype=torch.bfloat16)

    def update() -> None:
        packed = [draw(rows, 3 * d_model)]
        sentences = torch.ones(rows // 128, 128, dtype=torch.long)
        numbers = (sentences, sentences, heads, 64, True)
        x, ones = draw(rows, d_model), torch.ones(d_model)
        operators.attention(packed, *numbers)
        operators.attention_backward(x, packed, *numbers)
        _, normed, deviation, seed = operators.residual_norm(x, x, ones, ones, 0.1, 1e-6)
        operators.residual_norm_backward(x, normed, ones, deviation, seed, 0.1)
        operators.relu_backward(draw(rows, 4 * d_model), draw(rows, 4 * d_model))
        targets = torch.zeros(4, dtype=torch.long)
        operators.cross_entropy(draw(4, 37_000), targets, 0.1)

    kernels = compiled(update)
    assert kernels.keys() == operators.LAUNCHES.keys()
    for name, (shared, stack) in kernels.items():
        assert shared <= SHARED[architecture], name
        assert stack == 0 or architecture < 90, name


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_a_step_of_a_search(
    compiled: Callable[[Callable[[], Any]], Compiled], architecture: int, dtype: torch.dtype
) -> None:
    from nmt_cli.fast.cuda import step_kernels

    def step() -> None:
        sentences, beam, heads, d_k, columns = 8, 4, 8, 64, 128
        logits = torch.zeros(sentences * beam, 37_000, dtype=dtype)
        forbidden = torch.zeros(sentences, dtype=torch.long)
        step_kernels.best_tokens(logits, beam + 1, forbidden, 37_000)
        query = torch.zeros(sentences * beam, heads, d_k, dtype=dtype)
        cache = torch.zeros(sentences, heads, columns, 2 * d_k, dtype=dtype)
        mask = torch.zeros(sentences, beam, columns, dtype=dtype)
        keys, values = cache.tensor_split((d_k,), 3)
        newest = (query, query, torch.zeros(1, dtype=torch.long))
        step_kernels.attend(query, keys, values, mask, newest)

    kernels = compiled(step)
    assert kernels.keys() == {"_best_tokens", "_attend"}
    for name, (shared, stack) in kernels.items():
        assert shared <= SHARED[architecture], name
        assert stack == 0 or architecture < 90, name
