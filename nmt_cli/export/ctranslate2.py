"""CTranslate2: a checkpoint as its `TransformerSpec`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import ctranslate2
from torch import nn

from nmt_cli.interfaces import Task


def export(model: nn.Module, task: Task, samples: Sequence[str], folder: Path) -> Sequence[str]:
    """See `formats.py`."""
    raise NotImplementedError(ctranslate2.__version__)
