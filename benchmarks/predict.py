"""The speed of training on GPUs that are not here, from counts of launches, bytes and products.

torch's compiler decides what it would put into one kernel of an H100, and other operations are
recorded one by one. A kernel takes as long as its bytes or its products need, and a fixed time. The
rates are of one H200 (2026-11-27, torch 2.11, bfloat16), on which an update of 25,000 tokens took
35.97 ms (base) and 80.18 ms (big) without kernels of our own, and 29.21 and 68.98 ms with their
prototypes. For the same number of rows, the prediction of these four is between 2 % too short
(base) and 3 % too long (big).
"""

from __future__ import annotations

import contextlib
import copy
import functools
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch

from benchmarks.fake_gpu import FLOPS, SUM, FakeGpu, Launch, Recorded, Training, fake_gpu
from benchmarks.peers.serve import Size
from benchmarks.synthetic import flops_of_token, model_flags


class Gpu(NamedTuple):
    """What is assumed of a GPU. The H200 was measured, the others are in proportion."""

    name: str
    # Bytes/s that a fused kernel reaches: 83 % of the data sheet's 3.35, 4.8 and 2.04 TB/s.
    bandwidth: float
    products: float  # FLOP/s of a layer's products in bfloat16, 86 % of `peak`
    attention: float  # FLOP/s of PyTorch's attention with a mask on rows of 128
    peak: float  # FLOP/s of the fastest product, measured on an H100 and an H200
    sheet: float  # FLOP/s of the data sheet, without sparsity


GPUS = [
    Gpu("H100", 2.8e12, 690e12, 78e12, 798e12, 989e12),
    Gpu("H200", 4.0e12, 710e12, 78e12, 823e12, 989e12),
    Gpu("A100", 1.7e12, 217e12, 47e12, 252e12, 312e12),
]
SHARES = {
    "cross_entropy": 0.47,  # 4 launches, 1.86 ms
    "residual_norm_backward": 0.30,  # 30 launches, 2.66 ms
    "residual_norm": 0.95,  # 30 launches, 0.84 ms
    "fused_attention": 0.395,  # 36 launches, 3.34 ms
    "nmt.attention": 0.395,  # the same, not compiled
    "logsumexp": 0.43,  # compiled: 4 launches, 2.13 ms
    "native_dropout_backward_native_layer_norm": 0.25,  # compiled: 30 launches, 4.45 ms
    "native_dropout_native_layer_norm": 0.62,  # compiled: 42 launches, 2.0 ms
}
"""The share of the bandwidth that a kernel reaches, by its name. All others reach the whole."""
# S of a launch: 2.6 us were measured between two kernels. The rest makes the four totals right.
FIXED = 6e-6
# S of Python a launch: Dynamo's guards, autograd and the launch itself, counted with stubs for
# kernels.
HOST = 15e-6
OF_OPTIMIZER = ("_fused_adam", "_foreach", "linalg_vector_norm", "stack")
UPDATES = 3
REDUCED = {8: 370e9, 16: 300e9, 64: 300e9}
"""Bytes/s of a sum over so many GPUs: NVLink, then a link of 400 Gbit/s for each GPU. Assumed."""
SLOW_LINK = 25e9  # bytes/s of a machine that has one link of 200 Gbit/s
LATENCY = 50e-6  # s of a sum
NO_KERNEL = ("NopKernelSchedulerNode", "MultiOutput", "ExternKernelOut")


class GraphCounted(BaseException):
    """The compiler has decided what the kernels are. Their code is not needed."""


@contextlib.contextmanager
def counting_compiler(gpu: FakeGpu) -> Iterator[None]:
    """Let `torch.compile` count the kernels that it would make for the GPU.

    A graph break is an error.
    """
    import torch._functorch.config
    import torch._inductor.config
    import torch.compiler.config
    from torch._inductor import compile_fx, graph, scheduler
    from torch._inductor.fx_passes import joint_graph, post_grad

    counted: list[list[Launch]] = []

    def stop(lowered: Any) -> None:
        lowered._update_scheduler()
        counted.append([launch for node in lowered.scheduler.nodes for launch in launches_of(node)])
        raise GraphCounted

    def inner(module: Any, inputs: Any, **arguments: Any) -> Any:
        runs = copy.deepcopy(module)
        with contextlib.suppress(GraphCounted):
            compile_fx.compile_fx_inner(module, inputs, **arguments)
        launches = counted.pop() if counted else []

        def run(values: Any) -> Any:
            if gpu.recorded is not None:
                gpu.recorded.launches += launches
            gpu.in_graph = True
            try:
                return runs(*values)
            finally:
                gpu.in_graph = False

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    def backend(module: Any, inputs: Any, **_: Any) -> Any:
        return compile_fx.compile_fx(module, inputs, inner_compile=inner)

    def on_cpu(real: Callable[..., Any]) -> Callable[..., Any]:
        """Make patterns of tensors on the CPU: patterns on a GPU would be real here."""

        def lazy_init(*_: Any) -> Any:
            with mock.patch.object(torch.cuda, "is_available", return_value=False):
                return real(torch.device("cpu"))

        return lazy_init

    patched = functools.partial(torch.compile, backend=backend, fullgraph=True)
    with contextlib.ExitStack() as patches:
        for module, name, value in (
            (torch, "compile", patched),
            (graph.GraphLowering, "compile_to_module", stop),
            (scheduler, "has_triton", lambda *_: True),
            (joint_graph, "lazy_init", on_cpu(joint_graph.lazy_init)),
            (post_grad, "lazy_init", on_cpu(post_grad.lazy_init)),
            (torch._inductor.config, "joint_graph_constant_folding", False),
            (torch.compiler.config, "force_disable_caches", True),
            (torch._functorch.config, "enable_autograd_cache", False),
        ):
            patches.enter_context(mock.patch.object(module, name, value))
        yield


def launches_of(node: Any) -> Iterator[Launch]:
    """Yield the launch of a node of the compiler's schedule.

    Products are recorded when the graph runs.
    """
    from torch._inductor.utils import get_fused_kernel_name

    kernel = getattr(node, "node", None)
    kind = type(node if kernel is None else kernel).__name__
    operation = getattr(getattr(kernel, "op_overload", None), "overloadpacket", None)
    if type(node).__name__ not in NO_KERNEL and kind not in NO_KERNEL and operation not in FLOPS:
        name = get_fused_kernel_name(node.get_nodes(), "original_aten")
        yield Launch(f"compiled {name or kind}", node.get_read_write_buffers_sizes())


def seconds(launch: Launch, gpu: Gpu) -> float:
    """Return the time of a launch."""
    share = next((share for name, share in SHARES.items() if name in launch.name), 1.0)
    rate = gpu.attention if part_of(launch) == "attention" else gpu.products
    return max(launch.moved / gpu.bandwidth / share, launch.flops / rate) + FIXED


def part_of(launch: Launch) -> str:
    """Return the part of a step that a launch belongs to."""
    if "attention" in launch.name or "attn" in launch.name:
        return "attention"
    if launch.flops:
        return "products"
    return "optimizer" if launch.name.startswith(OF_OPTIMIZER) else "element by element"


@dataclass(frozen=True)
class Counted:
    """The counts of an update."""

    launches: list[Launch]  # without sums over ranks
    sums: list[tuple[int, int]]  # over ranks: the launches before each, and its bytes
    recorded: Recorded
    graphs: tuple[int, int]  # compiled for the first two updates, and later
    useful: float  # operations of the model's products for real tokens
    tokens: int  # real target tokens of this rank

    @property
    def by_host(self) -> int:
        """Launches by the host: CUDA graphs, and what is in none."""
        return len(self.recorded.launches) - self.recorded.replayed + self.recorded.graphs

    def step(self, gpu: Gpu) -> float:
        """The seconds of the update on a GPU that waits for nothing."""
        return sum(seconds(launch, gpu) for launch in self.launches)

    def step_with_sums(self, gpu: Gpu, ranks: int, rate: float) -> float:
        """The seconds of the update with sums over `ranks` GPUs, of `rate` bytes a second.

        Each begins after the launches before it and the sum before it. The launches after the last
        one wait for it.
        """
        ends = 0.0
        for before, size in self.sums:
            begins = max(ends, sum(seconds(launch, gpu) for launch in self.launches[:before]))
            ends = begins + LATENCY + 2 * (ranks - 1) / ranks * size / rate
        last = self.sums[-1][0]
        return ends + sum(seconds(launch, gpu) for launch in self.launches[last:])


def counted(size: Size, tokens: int, ranks: int = 1, **flags: Any) -> Counted:
    """Count one rank's share of an update, for a model with the vocabulary of `size`."""
    from torch._dynamo.utils import counters

    torch.compiler.reset()
    graphs: Counter[str] = counters["stats"]
    before = graphs["unique_graphs"]
    with fake_gpu() as gpu, counting_compiler(gpu), tempfile.TemporaryDirectory() as folder:
        flags = {**model_flags(size), "batch_tokens": tokens, **flags}
        training = Training(
            gpu, Path(folder) / "data", size.vocabulary, UPDATES * tokens // 20, ranks, **flags
        )
        compiled = []
        for _ in range(UPDATES):
            recorded = training.update()
            compiled.append(graphs["unique_graphs"] - before)
        tokens = training.tokens
    useful = tokens * flops_of_token(size, training.pairs)
    launches: list[Launch] = []
    sums = []
    for launch in recorded.launches:
        if launch.name == SUM:
            sums.append((len(launches), launch.moved))
        else:
            launches.append(launch)
    new_graphs = (compiled[1], compiled[-1] - compiled[1])
    return Counted(launches, sums, recorded, new_graphs, useful, tokens)


def speeds(name: str, counts: Counted) -> Iterator[dict[str, Any]]:
    """Yield a row for each GPU: the time of a step and of its parts, in ms, and the utilisation."""
    for gpu in GPUS:
        parts = dict.fromkeys(("products", "attention", "element by element", "optimizer"), 0.0)
        for launch in counts.launches:
            parts[part_of(launch)] += 1e3 * seconds(launch, gpu)
        step = counts.step(gpu)
        yield {
            "predicted": f"{name}, {gpu.name}",
            "step, ms": 1e3 * step,
            **parts,
            "target tokens/s": counts.tokens / step,
            "of the peak": f"{counts.useful / step / gpu.peak:.0%}",
            "of the data sheet": f"{counts.useful / step / gpu.sheet:.0%}",
        }


def work(name: str, counts: Counted) -> dict[str, Any]:
    """Return a row of what was counted."""
    return {
        "counted": name,
        "launches": len(counts.launches),
        "by the host": counts.by_host,
        "GB moved": sum(launch.moved for launch in counts.launches) / 1e9,
        "TFLOP of products": sum(launch.flops for launch in counts.launches) / 1e12,
        "waits of the host": len(counts.recorded.waits),
        "graphs": counts.graphs[0],
        "recompiled later": counts.graphs[1],
        "host, ms": 1e3 * HOST * counts.by_host,
    }


def longest(counts: Counted, gpu: Gpu, count: int = 12) -> Iterator[dict[str, Any]]:
    """Yield the kinds of launches that take most of a step."""
    groups: dict[Any, list[Launch]] = {}
    for launch in counts.launches:
        groups.setdefault(
            (launch.name[:60], round(launch.flops / 1e9), launch.moved >> 20), []
        ).append(launch)
    times = {kind: sum(seconds(launch, gpu) for launch in alike) for kind, alike in groups.items()}
    for kind in sorted(groups, key=times.__getitem__, reverse=True)[:count]:
        name, gflop, moved = kind
        yield {
            f"longest, {gpu.name}": name,
            "launches": len(groups[kind]),
            "GFLOP each": gflop,
            "MiB each": moved,
            "ms": 1e3 * times[kind],
        }


def scaling(name: str, counts: Mapping[int, Counted], gpu: Gpu) -> Iterator[dict[str, Any]]:
    """Yield a row for each number of GPUs that share the same update.

    Args:
        counts: of one rank, by the number of ranks.
    """
    alone = counts[1].step(gpu)
    rate_alone = counts[1].tokens / alone
    for n, rate in REDUCED.items():
        share = counts[n]
        device = share.step(gpu)
        host = HOST * share.by_host
        step = max(host, share.step_with_sums(gpu, n, rate))
        whole_sum = sum(LATENCY + 2 * (n - 1) / n * size / rate for _, size in share.sums)
        slow = share.step_with_sums(gpu, n, SLOW_LINK)
        yield {
            f"predicted, {gpu.name}s": f"{name}, {n}",
            "device, ms": 1e3 * device,
            "host, ms": 1e3 * host,
            "sum, ms": 1e3 * whole_sum,
            "behind the backward pass": f"{1 - (step - device) / whole_sum:.0%}",
            "step, ms": 1e3 * step,
            "efficiency": f"{share.tokens / step / rate_alone:.0%}",
            "step with 25 GB/s, ms": 1e3 * slow if n > 8 else "",
        }


def predicted(models: Mapping[str, Size], tokens: int) -> Iterator[dict[str, Any]]:
    """Yield rows of counts and predictions of each model, for updates of about `tokens` tokens."""
    counts = {
        name: {ranks: counted(size, tokens, ranks) for ranks in (1, *REDUCED)}
        for name, size in models.items()
    }
    for name, of_ranks in counts.items():
        yield work(name, of_ranks[1])
        yield work(f"{name}, an eighth", of_ranks[8])
    for name, of_ranks in counts.items():
        yield from speeds(name, of_ranks[1])
    for name, of_ranks in counts.items():
        yield from scaling(name, of_ranks, GPUS[1])
    for of_ranks in counts.values():
        yield from longest(of_ranks[1], GPUS[1])
