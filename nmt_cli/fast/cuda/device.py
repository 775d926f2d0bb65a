"""Computing on a GPU."""

from __future__ import annotations

from typing import Any

import torch

from nmt_cli.device import HostCopies, Plain, Sizes
from nmt_cli.fast.cuda.copies import PinnedCopies


class Fast(Plain):
    """What a GPU does better."""

    sizes = Sizes(batch_tokens=32_768, hypotheses=1024)

    def precision(self, model: Any, deterministic: bool) -> str:
        """See `Plain`. float16 from Volta on, where there is no bfloat16. Earlier GPUs are slower with it."""
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return "bfloat16"
        return "float16" if torch.cuda.get_device_properties(self.device).major >= 7 else "float32"

    def host_copies(self) -> HostCopies:
        """See `Plain`."""
        return PinnedCopies()
