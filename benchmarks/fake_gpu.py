"""Training as on a GPU, without one: fake tensors have a shape, a type and the device "cuda" only.

What `nmt train` would launch is recorded, and what would make the host wait for the GPU.
`predict.py` and tests use it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import flop_registry

from benchmarks.synthetic import NOTHING_ELSE, random_pairs, write_corpus
from nmt_cli import registry
from nmt_cli.config import resolve
from nmt_cli.data.corpus import selected
from nmt_cli.distributed import World
from nmt_cli.fast.cuda import checks, replay
from nmt_cli.training import start
from nmt_cli.training.settings import TrainingConfig

H100 = SimpleNamespace(
    name="NVIDIA H100 80GB HBM3",
    major=9,
    minor=0,
    multi_processor_count=132,
    regs_per_multiprocessor=65536,
    max_threads_per_multi_processor=2048,
    max_threads_per_block=1024,
    warp_size=32,
    total_memory=80 << 30,
    shared_memory_per_block=49152,
    shared_memory_per_block_optin=232448,
    shared_memory_per_multiprocessor=233472,
    L2_cache_size=50 << 20,
    gcnArchName="",
)
"""What a device says of itself. The compiler decides by it what it puts into one kernel."""

GUARD = """
// A CPU build of torch has no guard for the current GPU, which a backward pass sets, and no hooks
// for CUDA. It does not know which kernel of attention a GPU would take: with a mask, the one that
// it calls efficient.
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
using namespace c10;
struct Guard final : impl::NoOpDeviceGuardImpl<DeviceType::CUDA> {
  Device first() const { return Device(DeviceType::CUDA, 0); }
  Device exchangeDevice(Device) const override { return first(); }
  Device getDevice() const override { return first(); }
  Stream getStream(Device) const noexcept override { return Stream(Stream::DEFAULT, first()); }
  Stream exchangeStream(Stream) const noexcept override { return Stream(Stream::DEFAULT, first()); }
  void record(void**, const Stream&, const DeviceIndex, const EventFlag) const override {}
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
};
struct Hooks : at::CUDAHooksInterface {
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return 1; }
  DeviceIndex getCurrentDevice() const override { return 0; }
};
static int64_t attention(const at::Tensor& query, const at::Tensor&, const at::Tensor& value,
    const std::optional<at::Tensor>& mask, double, bool, std::optional<double>, bool) {
  const auto width = query.sym_size(-1).guard_int("", 0);
  const auto width_of_value = value.sym_size(-1).guard_int("", 0);
  if (!mask && width == width_of_value && width <= 256 && query.scalar_type() != at::kFloat)
    return static_cast<int64_t>(sdp::SDPBackend::flash_attention);
  const bool aligned = width % 8 == 0 && width_of_value % 8 == 0;
  const auto kernel = aligned ? sdp::SDPBackend::efficient_attention : sdp::SDPBackend::math;
  return static_cast<int64_t>(kernel);
}
static Guard guard;
static Hooks hooks;
extern "C" void install() {
  at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(attention);
  // The methods of our hooks replace the present ones.
  *(void**)(&at::detail::getCUDAHooks()) = *(void**)(&hooks);
  impl::device_guard_impl_registry[static_cast<size_t>(DeviceType::CUDA)].store(&guard);
}
"""


WITHOUT_KERNEL = ("prim", "empty", "new_empty", "_unsafe_view", "lift", "set_", "detach", "resize_")
WAITING = ("_local_scalar_dense", "nonzero", "bincount", "unique", "masked_select")
SUM = "sum over ranks"
PICKING = ("embedding.", "index.", "index_select", "gather")


FLOPS = {**flop_registry, torch.ops.aten._addmm_activation: flop_registry[torch.ops.aten.addmm]}
"""The operations of matrix products, by operator."""


class Launch(NamedTuple):
    """An operation on the GPU."""

    name: str
    moved: int  # bytes that are read or written
    flops: float = 0.0  # of matrix products


@dataclass
class Recorded:
    """What was recorded."""

    launches: list[Launch] = field(default_factory=list)
    # Operations for which the host waits for the GPU.
    waits: list[str] = field(default_factory=list)
    replayed: int = 0  # of the launches, those in CUDA graphs
    graphs: int = 0  # replays of CUDA graphs


class FakeGpu(FakeTensorMode):  # type: ignore[no-untyped-call]
    """Makes fake tensors, and records what would be launched while `recorded` is not None."""

    def __init__(self) -> None:
        super().__init__(allow_non_fake_inputs=True)
        self.recorded: Recorded | None = None
        # The kernels of a compiled graph are recorded otherwise, but its products here.
        self.in_graph = False
        self.depth = 0  # of operations that are made of others

    def dispatch(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """See `FakeTensorMode`."""
        if func is torch.ops.aten._fused_adam_.tensor_lr:  # which torch cannot do with fake tensors
            func, kwargs = torch.ops.aten._fused_adam_.default, {**kwargs, "lr": 0.0}
        self.depth += 1
        try:
            output = super().dispatch(func, types, args, kwargs)
        finally:
            self.depth -= 1
        if self.recorded is not None and not self.depth:
            self.record(self.recorded, func, args, kwargs or {}, output)
        return output

    def graph(self, works: Sequence[Callable[[], Any]], _: Any) -> tuple[list[Any], list[Any]]:
        """Return what stands for CUDA graphs, and the results.

        A capture is not recorded, and may wait.
        """

        def again(work: Callable[[], Any]) -> None:
            recorded = self.recorded or Recorded()
            before = len(recorded.launches)
            work()
            recorded.graphs += 1
            recorded.replayed += len(recorded.launches) - before

        if self.recorded is not None:
            self.recorded.waits.clear()
        recorded, self.recorded = self.recorded, None
        results = [work() for work in works]
        self.recorded = recorded
        graphs = [
            SimpleNamespace(replay=functools.partial(again, work), pool=lambda: None)
            for work in works
        ]
        return graphs, results

    def record(self, recorded: Recorded, func: Any, args: Any, kwargs: Any, output: Any) -> None:
        """Record an operation that computes or copies."""
        name = str(func).removeprefix("aten.")
        formula = FLOPS.get(func.overloadpacket)
        if func.is_view or name.startswith(WITHOUT_KERNEL) or (self.in_graph and formula is None):
            return
        read, written = _tensors((args, kwargs)), _tensors(output)
        devices = {operand.device.type for operand in read + written}
        if "cuda" not in devices:
            return
        given = (
            dict(zip((operand.name for operand in func._schema.arguments), args, strict=False))
            | kwargs
        )
        if name.startswith(WAITING) or ("cpu" in devices and not given.get("non_blocking")):
            recorded.waits.append(name)
        mutated = [
            operand.name
            for operand in func._schema.arguments
            if operand.alias_info and operand.alias_info.is_write
        ]
        written = _tensors([output, [given.get(operand) for operand in mutated]])
        if name.startswith(PICKING):  # some rows of the first tensor
            read[0] = written[0]
        flops = formula(*args, **kwargs, out_val=output) if formula else 0.0
        recorded.launches.append(Launch(name, _bytes(read) + _bytes(written), flops))


def _tensors(structure: Any) -> list[torch.Tensor]:
    """The tensors with elements, each once. A number that became a tensor is none."""
    storages = {
        id(leaf): leaf
        for leaf in torch.utils._pytree.tree_leaves(structure)
        if isinstance(leaf, torch.Tensor)
    }
    return [leaf for leaf in storages.values() if leaf.dim() or leaf.device.type == "cuda"]


def _bytes(tensors: list[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


@contextlib.contextmanager
def fake_gpu() -> Iterator[FakeGpu]:
    """Let this process see a GPU, an H100, whose tensors are fake.

    Raises:
        RuntimeError: there is no C++ compiler.
    """
    compiler = shutil.which("g++")
    if compiler is None:
        raise RuntimeError(
            "there is no g++, which compiles 30 lines for it; on Debian: apt install g++"
        )
    install_guard(compiler)
    seen: dict[str, Any] = {
        "is_available": lambda: True,
        "is_bf16_supported": lambda *_, **__: True,
        "is_initialized": lambda: True,
        "_lazy_init": lambda: None,
        "_lazy_call": lambda *_, **__: None,
        "current_device": lambda: 0,
        "device_count": lambda: 1,
        "get_device_properties": lambda *_: H100,
        "get_device_capability": lambda *_: (H100.major, H100.minor),
        "get_device_name": lambda *_: H100.name,
        "get_rng_state": lambda *_: torch.zeros(16, dtype=torch.uint8),
        "set_rng_state": lambda *_: None,
        "synchronize": lambda *_: None,
        "current_stream": lambda *_: SimpleNamespace(stream_id=0, device_index=0, device_type=1),
        "device": type("device", (contextlib.nullcontext,), {}),
    }
    from torch._dynamo.device_interface import CudaInterface  # it may have its own references

    interface: Any = {
        name: staticmethod(value) for name, value in seen.items() if name in vars(CudaInterface)
    }
    with contextlib.ExitStack() as patches:
        patches.enter_context(mock.patch.multiple(torch.cuda, **seen))
        patches.enter_context(mock.patch.multiple(CudaInterface, **interface))
        patches.enter_context(mock.patch.object(checks, "failure", return_value=""))
        patches.enter_context(mock.patch.object(torch.Tensor, "pin_memory", lambda tensor: tensor))
        patches.enter_context(mock.patch.object(torch.nn.Module, "to", lambda module, *_: module))
        yield FakeGpu()


@functools.cache
def install_guard(compiler: str) -> None:
    """Compile and load what a CPU build of torch lacks."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "guard.cpp", Path(folder) / "guard.so"
        source.write_text(GUARD, encoding="utf-8")
        root = Path(torch.__file__).parent
        words = [
            "-w",
            "-shared",
            "-fPIC",
            "-std=c++20",
            f"-I{root / 'include'}",
            f"-L{root / 'lib'}",
        ]
        subprocess.run(
            [compiler, source, "-o", library, *words, "-lc10", "-ltorch_cpu"], check=True
        )
        ctypes.CDLL(str(library)).install()


class Training:
    """A training whose updates are made by `nmt train`'s own parts.

    Args:
        folder: for the data; it does not exist.
        ranks: that share an update; only the work of one is recorded.
        flags: settings of `nmt train`.
    """

    def __init__(
        self,
        gpu: FakeGpu,
        folder: Path,
        vocabulary: int,
        sentences: int,
        ranks: int = 1,
        **flags: Any,
    ) -> None:
        registry.discover()
        self.gpu = gpu
        self.pairs = random_pairs(sentences, vocabulary)
        write_corpus(folder, self.pairs, vocabulary)
        task, self.corpus, _ = start.open_data([str(folder)])
        settings: Mapping[str, Any] = {
            **NOTHING_ELSE,
            "precision": "bfloat16",
            "compile": True,
            **flags,
        }
        config = resolve(TrainingConfig, settings, preset=settings.get("preset"))
        self.world = World(0, ranks, torch.device("cuda", 0))
        make = start.initial_model

        def on_device(*parts: Any) -> Any:
            with self.world.device:  # torch cannot move the weights of a fake module
                return make(*parts)

        with gpu, mock.patch.object(start, "initial_model", on_device):
            self.run = start.build_run(
                config, task, self.corpus, None, self.world, None, folder, quiet=True
            )
        self.run.model.train()
        self.following = self.run.plan.updates(0, 0)
        self.step = self.tokens = 0

    def update(self) -> Recorded:
        """Make the next update. Return what was recorded."""
        self.step += 1
        sentences = next(self.following)[2]
        trainer = self.run.trainer
        micro_batches = trainer.updates.share(
            selected(self.corpus, sentences), trainer.updates.micro_batches
        )
        self.tokens = sum(micro_batch.batch.num_tokens for micro_batch in micro_batches)
        recorded = self.gpu.recorded = Recorded()

        def all_reduce(part: torch.Tensor, async_op: bool) -> Any:
            recorded.launches.append(Launch(SUM, _bytes([part])))
            return SimpleNamespace(wait=lambda: None)

        try:
            with (
                self.gpu,
                mock.patch.object(replay, "record", self.gpu.graph),
                mock.patch.object(torch.distributed, "all_reduce", all_reduce),
            ):
                trainer.set_learning_rate(self.step)
                moved = [
                    micro_batch._replace(batch=micro_batch.batch.map_tensors(self.gpu.from_tensor))
                    for micro_batch in micro_batches
                ]
                trainer.change_weights(trainer.accumulate(moved, self.step))
                trainer.scaler.update()
        finally:
            self.gpu.recorded = None
        return recorded
