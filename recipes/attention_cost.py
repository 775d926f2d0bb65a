#!/usr/bin/env python3
"""Table 1's last row by measurement: time of full and of restricted self-attention as the sentence grows.

    python recipes/attention_cost.py [--neighbourhood 128] [--longest 8192]

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

HEADS, WIDTH = 8, 64


def seconds(kernel: Kernel, length: int, rounds: int) -> float:
    """Median time of a forward and a backward pass over one sentence of `length` positions."""
    query, key, value = (torch.randn(1, HEADS, length, WIDTH, requires_grad=True) for _ in range(3))
    times = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        kernel(query, key, value, AttentionMask(causal=True)).sum().backward()
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--neighbourhood", type=int, default=128)
    parser.add_argument("--longest", type=int, default=8192)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    restricted = RestrictedAttention(RestrictedAttentionConfig(neighbourhood=arguments.neighbourhood))
    table = Table("n", "full, ms", "restricted, ms", "full / restricted", title=f"r = {arguments.neighbourhood}")
    length = 256
    while length <= arguments.longest:
        full, near = (seconds(kernel, length, arguments.rounds) * 1000 for kernel in (FullAttention(), restricted))
        table.add_row(str(length), f"{full:.1f}", f"{near:.1f}", f"{full / near:.1f}")
        length *= 2
    Console().print(table)


if __name__ == "__main__":
    main()
