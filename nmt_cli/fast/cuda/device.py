"""Computing on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from nmt_cli.device import HostCopies, Plain, Sizes
from nmt_cli.fast.cuda.copies import PinnedCopies
from nmt_cli.fast.cuda.graph_search import GraphSearch
from nmt_cli.fast.inference import FrozenTransformer, all_frozen, attend_in_one_kernel, takes
from nmt_cli.interfaces import Decodable, Model


class Fast(Plain):
    """What a GPU does better."""

    sizes = Sizes(batch_tokens=32_768, hypotheses=1024)

    def precision(self, model: Any, deterministic: bool) -> str:
        """See `Plain`. float16 from Volta on, where there is no bfloat16. Earlier GPUs are slower with it."""
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return "bfloat16"
        return "float16" if torch.cuda.get_device_properties(self.device).major >= 7 else "float32"

    def decoding_dtype(self) -> str:
        """See `Plain`."""
        return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"

    def decodable(self, model: Model, dtype: str) -> Decodable:
        """See `Plain`. bfloat16 is the type of all but the log-probabilities."""
        if not takes(model):
            return model.decodable(dtype)
        low = dtype == "bfloat16" and all_frozen(model)
        return FrozenTransformer(model, dtype, attend_in_one_kernel, torch.bfloat16 if low else torch.float32)

    def search(self, model: Decodable, search: Callable[..., Any]) -> Callable[..., Any]:
        """See `Plain`."""
        plain = super().search(model, search)
        constant = isinstance(model, FrozenTransformer) and model.has_constant_shapes
        return GraphSearch(model, plain) if constant else plain

    def host_copies(self) -> HostCopies:
        """See `Plain`."""
        return PinnedCopies()
