"""The passes of `nmt prepare` over text."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nmt_cli.commands.prepare_text import Part, Text


class Numbers:
    """A task whose text is a hundred numbers, in blocks."""

    def blocks(self, _: str) -> Iterator[range]:
        for start in range(0, 100, 7):
            yield range(start, min(100, start + 7))


def test_sample_is_evenly_spaced() -> None:
    not_sampled = np.ones(100, dtype=bool)
    not_sampled[::2] = False
    text = Text(Numbers(), "train", [Part("")], not_sampled)  # type: ignore[arg-type]
    samples = {
        size: np.concatenate([np.array(block)[used] for _, block, used in text.sample(size)])
        for size in (1, 7, 49, 50)
    }
    assert samples[50].tolist() == list(range(1, 100, 2))
    for size, sample in samples.items():
        assert len(sample) == size
        assert size == 1 or np.ptp(np.diff(sample)) <= 2
