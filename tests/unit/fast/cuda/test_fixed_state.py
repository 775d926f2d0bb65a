from __future__ import annotations

from typing import Any

import pytest
import torch
from graph_searches import model, sources
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from nmt_cli.decoding.options import SearchSettings
from nmt_cli.fast.cuda.fixed_state import FixedState, Shape


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_low_type_is_that_of_everything_between(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Types(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.found: set[torch.dtype] = set()

        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            output = function(*args, **(kwargs or {}))
            if str(function).split(".")[1] in (
                "mm",
                "addmm",
                "bmm",
                "baddbmm",
                "native_layer_norm",
                "relu",
                "_softmax",
            ):
                self.found.add(tree_leaves(output)[0].dtype)
            return output

    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    decodable, source = model(dtype=str(dtype).removeprefix("torch."), norm="pre"), sources([9, 4])
    with torch.no_grad(), Types() as types:
        encoded = decodable.start(source)
        state = FixedState.of(decodable, Shape(SearchSettings(1), 2, 32, 64), encoded)
        state.begin(torch.tensor([0, 1]), encoded, slice(2))
        state.now += 1
        state.columns = 8
        log_probabilities, _ = decodable.step(torch.tensor([5, 6]), state)
    assert types.found == {dtype}
    assert log_probabilities.dtype == torch.float32
    assert log_probabilities.exp().sum(1).tolist() == pytest.approx([1, 1], abs=1e-5)
