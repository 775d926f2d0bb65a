"""A batch that waits for a search, or for the end of its sentences."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt_cli.decoding.beam_search import History, Outputs, hypotheses
from nmt_cli.decoding.engine import Request
from nmt_cli.decoding.options import SearchSettings
from nmt_cli.fast.cuda.copies import OnHost, event, on_device
from nmt_cli.fast.cuda.fixed_state import COLUMNS, POSITIONS
from nmt_cli.fast.inference import FrozenTransformer
from nmt_cli.interfaces import PAD, Hypothesis


class EncodedBatch:
    """The sentences of a batch, encoded, with the results of those that are done.

    Args:
        source: on the host, as in `beam_search`.
    """

    def __init__(
        self,
        model: FrozenTransformer,
        device: torch.device,
        source: Tensor,
        requests: Sequence[Request],
        options: SearchSettings,
        _: None,
    ) -> None:
        B, S = source.shape
        source = F.pad(source, (0, COLUMNS - S % COLUMNS), value=PAD)  # so there is a mask
        self.state = model.start(source, functools.partial(on_device, device=device))
        self.limits = [request.limit for request in requests]
        self.columns = source.size(1)
        self.positions = -(-(max(self.limits) + 1) // POSITIONS) * POSITIONS
        self.begun = 0  # sentences that have had a place
        self.missing = B  # sentences without results
        zeros = torch.zeros(B, self.positions, options.beam, dtype=torch.long, device=device)
        self.history = History(zeros, zeros.clone(), zeros.float())
        self.outputs = Outputs.none(B, 2 * options.beam, device)
        self.inputs = None  # see `Steps`
        if options.steps is not None:
            self.inputs = on_device(options.steps.inputs(requests, self.positions), device)
        self.encoded = event(device)

    def collect(self, rows: Tensor, results: Sequence[Tensor]) -> None:
        """Take over the outputs and the history of the sentences at these rows."""
        tensors = [*self.outputs.all(), *self.history.all()]
        for tensor, new in zip(tensors, results, strict=True):
            tensor[rows] = new[:, : tensor.size(1)]
        self.missing -= len(rows)
        if not self.missing:
            self.copies = OnHost(*tensors)

    def results(self, nbest: int) -> list[list[Hypothesis]]:
        """The outputs of each sentence, after all have been collected."""
        copies = self.copies.wait()
        outputs, history = Outputs(*copies[:4]), History(*copies[4:])
        # What is no output has the length of an earlier sentence's.
        lengths = outputs.lengths.masked_fill(outputs.scores.isneginf(), 0)
        return hypotheses(outputs, history, int(lengths.max()), nbest)
