"""Table 1's last row measured: the time of full and of restricted self-attention as the sentence grows.

    python recipes/attention_cost.py [--neighbourhood 128] [--longest 8192] [--rounds 5]

One layer's attention of the base model (8 heads, d_k = d_v = 64), one sentence, forward and backward; median of rounds.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from rich.console import Console
from rich.table import Table

from nmt_cli.layers.attention import AttentionMask, FullAttention, Kernel
from nmt_cli.layers.restricted_attention import RestrictedAttention, RestrictedAttentionConfig


def milliseconds(kernel: Kernel, length: int, rounds: int) -> float:
    query, key, value = (torch.randn(1, 8, length, 64, requires_grad=True) for _ in range(3))  # [B, H, S, d_k]
    times = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        torch.autograd.backward(kernel(query, key, value, AttentionMask(causal=True)).sum())
        times.append(time.perf_counter() - began)
    return 1000 * statistics.median(times[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag, default in (("--neighbourhood", 128), ("--longest", 8192), ("--rounds", 5)):
        parser.add_argument(flag, type=int, default=default)
    options = parser.parse_args()
    restricted = RestrictedAttention(RestrictedAttentionConfig(neighbourhood=options.neighbourhood))
    table = Table("n", "full, ms", "restricted, ms", "full / restricted", title=f"r = {options.neighbourhood}")
    length = 256
    while length <= options.longest:
        full, near = (milliseconds(kernel, length, options.rounds) for kernel in (FullAttention(), restricted))
        table.add_row(str(length), f"{full:.1f}", f"{near:.1f}", f"{full / near:.1f}")
        length *= 2
    Console().print(table)


if __name__ == "__main__":
    main()
