"""The cost of a run: estimated as in Table 2, and counted from the model's shapes.

Table 2 estimates training FLOPs as training time x number of devices x the sustained single-precision rate of a device.
Model FLOPs are counted from the model's shapes. Model-FLOP utilisation is their share of what the devices could have
done at their peak rate for the precision of the matrix products.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nmt_cli.training.rates import Rates
from nmt_cli.training.state import Totals


@dataclass(frozen=True)
class CostMeter:
    """The devices of this process group. A resumed run may have others; its sums keep what was spent before."""

    rates: Rates  # of one device
    devices: int

    def of(self, seconds: float) -> Totals:
        """Return the cost of `seconds` on all devices."""
        device_seconds = seconds * self.devices
        return Totals(
            seconds=seconds,
            device_seconds=device_seconds,
            flops_as_table2=device_seconds * self.rates.sustained * 1e12,
            possible_flops=device_seconds * self.rates.peak * 1e12,
        )

    def describe(self, total: Totals) -> dict[str, Any]:
        """Return the current devices, and the device-hours and mean rates of the whole run."""
        whole = total if total.device_seconds else self.of(1.0)
        return {
            "devices": self.devices,
            "device_hours": total.device_seconds / 3600,
            "sustained_tflops_of_a_device": whole.flops_as_table2 / whole.device_seconds / 1e12,
            "peak_tflops_of_a_device": whole.possible_flops / whole.device_seconds / 1e12,
            "origin_of_these_rates": self.rates.origin,
        }


def utilisation(totals: Totals) -> float | None:
    """Return the model-FLOP utilisation, or None where model FLOPs are not counted."""
    return totals.flops / totals.possible_flops if totals.flops and totals.possible_flops else None
