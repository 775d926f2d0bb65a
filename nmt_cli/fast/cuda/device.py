"""Computing on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from nmt_cli.cores import Sizes
from nmt_cli.device import HostCopies, Load, Plain
from nmt_cli.distributed import ranks_of
from nmt_cli.fast import rows
from nmt_cli.fast.cuda import checks, layers, operators
from nmt_cli.fast.cuda.bins import binned
from nmt_cli.fast.cuda.copies import PinnedCopies
from nmt_cli.fast.cuda.gradients import ReplayedGradients, replayed_change
from nmt_cli.fast.cuda.graph_search import GraphSearch
from nmt_cli.fast.exchange import exchange
from nmt_cli.fast.inference import FrozenTransformer, all_frozen, takes
from nmt_cli.fast.loss import ChunkedCrossEntropy, fit_criterion
from nmt_cli.interfaces import Batch, Criterion, Decodable
from nmt_cli.layers.attention import FullAttention
from nmt_cli.layers.embedding import SinusoidalPositions
from nmt_cli.layers.sublayer import FeedForward
from nmt_cli.model import Model
from nmt_cli.training.gradients import Gradients

# Parameters. The minute of compiling a smaller model is longer than what it saves: a quarter of the
# time, or 1 to 5 % (predicted) where all parts have kernels of our own.
SMALLEST_COMPILED = 20_000_000
SMALLEST_WITH_KERNELS = 100_000_000
BLOCK = 1 << 30  # logits in a block of a loss
METHODS = {
    **rows.METHODS,
    FullAttention.forward: layers.full_attention,
    FeedForward.forward: layers.feed_forward,
    SinusoidalPositions.forward: layers.sinusoidal_positions,
}


class Fast(Plain):
    """What a GPU does better."""

    sizes = Sizes(batch_tokens=32_768, hypotheses=1024, logit_rows=8192, read_ahead=8192)
    tries_memory = True

    def precision(self, model: Any, deterministic: bool) -> str:
        """See `Plain`."""
        return self.decoding_dtype()

    def decoding_dtype(self) -> str:
        """See `Plain`. float16 where there is no bfloat16."""
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return "bfloat16"
        if torch.cuda.get_device_properties(self.device).major >= 7:  # before Volta it is slower
            return "float16"
        return "float32"

    def decodable(self, model: Model, dtype: str) -> Decodable:
        """See `Plain`. bfloat16 or float16 is the type of all but the log-probabilities."""
        if not takes(model):
            return model.decodable(dtype)
        activations = torch.float32
        if dtype in ("bfloat16", "float16") and all_frozen(model):
            activations = getattr(torch, dtype)
        return FrozenTransformer(model, dtype, activations)

    def search(self, model: Decodable, search: Callable[..., Any]) -> Callable[..., Any]:
        """See `Plain`."""
        plain = super().search(model, search)
        if isinstance(model, FrozenTransformer) and model.has_constant_shapes:
            return GraphSearch(model, plain, self.device)
        return plain

    def check_kernels(self, model: Any, criterion: Any, precision: str) -> Mapping[str, str]:
        """See `Plain`."""
        return checks.kernels_of_update(model, criterion, self.device, precision)

    def fit(self, model: Any, criterion: Any = None) -> None:
        """See `Plain`."""
        methods = dict(METHODS)
        if criterion is not None:
            loss = ChunkedCrossEntropy(self.sizes.logit_rows, BLOCK, takes_padding=True)
            if self.kernels.get(checks.LOSS) == "":
                loss.to_gradient = operators.cross_entropy
            for name, part in checks.PARTS.items():
                if self.kernels.get(name) == "":
                    methods[part.method] = part.by_kernel
            fit_criterion(criterion, loss)
        exchange(model, methods)

    def compile(self, model: Any, criterion: Any, wanted: bool | None) -> None:
        """See `Plain`. Large models are compiled, for any shapes.

        Layers of one kind share their code, so the compiler takes as long for one as for six.
        """
        if wanted is None:
            smallest = SMALLEST_COMPILED
            if self.kernels and not any(self.kernels.values()):
                smallest = SMALLEST_WITH_KERNELS
            wanted = sum(parameter.numel() for parameter in model.parameters()) >= smallest
        if not wanted or not rows.computes_rows(model):
            return
        import torch.fx.experimental._config  # not at the top: it takes seconds

        # Else an update with as many rows on both sides has code of its own.
        torch.fx.experimental._config.use_duck_shape = False
        for layer in chain.from_iterable(model.stacks()):
            layer.compile(dynamic=True)
        cross_entropy = vars(criterion).get("cross_entropy")
        if isinstance(cross_entropy, ChunkedCrossEntropy) and self.kernels.get(checks.LOSS) != "":
            cross_entropy.compile()

    def takes_bins(self, model: Any, criterion: Any) -> bool:
        """See `Plain`."""
        exchanged = type(criterion).outputs is Criterion.outputs
        return criterion.takes_bins and exchanged and rows.takes_bins(model)

    def loader(self, load: Load, model: Any, bins: bool) -> Load:
        """See `Plain`."""

        def pinned(corpus: Any, indices: Any) -> Batch:
            if bins:
                batch = binned(corpus.ids("source", indices), corpus.ids("target", indices))
            else:
                batch = rows.row_batch(load(corpus, indices), model)
            return batch.pinned()

        return pinned

    def gradients(self, plain: Gradients, replay: bool) -> Gradients:
        """See `Plain`. CUDA graphs, if nothing asks the host."""
        divided = any(ranks_of(parameter) > 1 for parameter in plain.parameters)
        if replay and not divided:
            return ReplayedGradients(plain)
        return plain

    def change(
        self,
        change: Callable[[Tensor], None],
        optimizer: torch.optim.Optimizer,
        gradients: Gradients,
    ) -> Callable[[Tensor], None]:
        """See `Plain`. A CUDA graph, if the gradients are one and the optimizer is fused."""
        # A fused optimizer decides on the device about a step.
        fused = getattr(optimizer, "_step_supports_amp_scaling", False)
        if gradients.replayed and fused and "capturable" in optimizer.defaults:
            return replayed_change(change, optimizer, self.device)
        return change

    def host_copies(self) -> HostCopies:
        """See `Plain`."""
        return PinnedCopies()
