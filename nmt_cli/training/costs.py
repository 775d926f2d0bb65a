"""What a run costs: as Table 2 counts it, and counted from the model's shapes.

Table 2 estimates training FLOPs as training time x number of devices x the sustained single-precision rate of the
device.
Beside it stand the operations that the model really asks for, and the model-FLOP utilisation: what share they are of
those that the devices could have done meanwhile, at their peak rate for the products' precision.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from nmt_cli.training.rates import Rates


@dataclass(frozen=True)
class Spent:
    """What updates took of the devices, summed update by update: a run may go on with others, at another rate."""

    device_seconds: float = 0.0
    flops_as_table2: float = 0.0  # device-seconds x the sustained rate of the time
    possible_flops: float = 0.0  # device-seconds x the peak rate of the time

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            self.device_seconds + other.device_seconds,
            self.flops_as_table2 + other.flops_as_table2,
            self.possible_flops + other.possible_flops,
        )


def utilisation(flops: float, spent: Spent) -> float | None:
    """Model FLOPs done over what the devices could have done; nothing where either is unknown."""
    return flops / spent.possible_flops if flops and spent.possible_flops else None


@dataclass(frozen=True)
class CostMeter:
    """The devices that a run has now."""

    rates: Rates
    devices: int

    def of(self, seconds: float) -> Spent:
        """What `seconds` of all devices are."""
        device_seconds = seconds * self.devices
        return Spent(
            device_seconds,
            flops_as_table2=device_seconds * self.rates.sustained * 1e12,
            possible_flops=device_seconds * self.rates.peak * 1e12,
        )

    def describe(self, spent: Spent) -> dict[str, Any]:
        """The devices of now, and behind the figures of the whole run its device-hours and mean rates."""
        whole = spent if spent.device_seconds else self.of(1.0)
        return {
            "devices": self.devices,
            "device_hours": spent.device_seconds / 3600,
            "sustained_tflops_of_a_device": whole.flops_as_table2 / whole.device_seconds / 1e12,
            "peak_tflops_of_a_device": whole.possible_flops / whole.device_seconds / 1e12,
            "origin_of_these_rates": self.rates.origin,
        }


def memory_estimate(
    model: Any, criterion: Any, micro_batches: Iterable[tuple[int, int, int]], *, low: bool, on_gpu: bool
) -> dict[str, Any]:
    """Bytes that training takes of one device: what stays, and what the largest of the micro-batches takes besides.

    Args:
        micro_batches: (sentences, source tokens and target tokens of each, padding counted) of every one.
        low: products are in bfloat16.

    Returns:
        `total`, and `by_part`. Of passing memory it has what model and criterion say: see their `training_memory`.
    """
    parameters = sum(parameter.numel() for parameter in model.parameters())
    lasting = {"weights": 4 * parameters, "gradients": 4 * parameters, "optimizer": 8 * parameters}  # as Adam keeps

    def passing(sizes: tuple[int, int, int]) -> dict[str, int]:
        parts: dict[str, int] = {}
        if hasattr(model, "training_memory"):
            parts |= model.training_memory(*sizes, low=low, on_gpu=on_gpu)
        if hasattr(criterion, "training_memory"):
            parts["loss"] = criterion.training_memory(model, sizes[0] * sizes[2], on_gpu=on_gpu)
        return parts

    by_part = lasting | max(map(passing, set(micro_batches)), key=lambda parts: sum(parts.values()))
    return {"total": sum(by_part.values()), "by_part": by_part}
