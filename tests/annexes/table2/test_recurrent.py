"""LSTM layers: against torch's packed sequences."""

from __future__ import annotations

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from nmt_cli.annexes.table2.recurrent import LSTM

LENGTHS = torch.tensor([5, 3, 1])


def test_both_directions_are_those_of_a_bidirectional_lstm() -> None:
    torch.manual_seed(0)
    both = torch.nn.LSTM(4, 6, batch_first=True, bidirectional=True)
    forwards, backwards = LSTM(4, 6), LSTM(4, 6)
    for layer, ending in ((forwards, ""), (backwards, "_reverse")):
        layer.cells.load_state_dict(
            {name: getattr(both, name + ending) for name in layer.cells.state_dict()}
        )
    x = torch.randn(3, 5, 4)
    packed, _ = both(pack_padded_sequence(x, LENGTHS, batch_first=True))
    expected, _ = pad_packed_sequence(packed, batch_first=True)
    outputs = torch.cat([forwards(x), backwards(x, LENGTHS)], dim=-1)
    real = torch.arange(5) < LENGTHS[:, None]
    torch.testing.assert_close(outputs[real], expected[real])


@pytest.mark.parametrize("hidden", [None, 6, 9])
def test_steps_are_the_whole_pass(hidden: int | None) -> None:
    """Also of an output that is projected from a wider cell."""
    torch.manual_seed(0)
    layer, x = LSTM(4, 6, hidden), torch.randn(3, 5, 4)
    state = layer.zeros(x)
    assert state.output.shape == (3, 6)
    assert state.cell.shape == (3, hidden or 6)
    outputs = []
    for part in x.split([1, 2, 2], dim=1):
        output, state = layer.resume(part, state)
        outputs.append(output)
        torch.testing.assert_close(state.output, output[:, -1])
    torch.testing.assert_close(torch.cat(outputs, 1), layer(x))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("hidden", [None, 9])
def test_no_layer_computes_in_float16(hidden: int | None) -> None:
    """Under autocast to bfloat16, cuDNN's layer would."""
    layer, x = LSTM(4, 6, hidden).cuda(), torch.randn(3, 5, 4, device="cuda")
    expected = layer(x)
    with torch.autocast("cuda", torch.bfloat16):
        output_in_bfloat16 = layer(x.bfloat16())
        output, _ = layer.step(x[:, 0].bfloat16(), layer.zeros(x))
    assert output_in_bfloat16.dtype == torch.float32
    assert output.dtype != torch.float16
    torch.testing.assert_close(output_in_bfloat16, expected, atol=0.02, rtol=0.02)
