"""The public names for components of other packages.

Imports from here stay valid when a module moves. docs/adding-a-component.md explains them. Names
that need PyTorch are imported when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from nmt_cli.decoding.length_penalty import LengthPenalty
from nmt_cli.errors import DataError, UsageError
from nmt_cli.interfaces import BOS, EOS, PAD, UNK, Batch, Criterion, Loss
from nmt_cli.presets import preset
from nmt_cli.registry import build, find, option, register
from nmt_cli.task import Task
from nmt_cli.training.observers import Observer

if TYPE_CHECKING:
    from nmt_cli.data.sentences import Sentences
    from nmt_cli.decoding.around import Around
    from nmt_cli.decoding.constraints import Rule
    from nmt_cli.layers.attention import AttentionMask, Kernel, softmax_weights
    from nmt_cli.layers.dropout import Dropout
    from nmt_cli.model import Model, PlainDecodable, TensorState
    from nmt_cli.models.encoder_decoder import Decoded, EncoderDecoder, elements
    from nmt_cli.tasks.base import VocabularyTask

__all__ = [
    "BOS",
    "EOS",
    "PAD",
    "UNK",
    "Around",
    "AttentionMask",
    "Batch",
    "Criterion",
    "DataError",
    "Decoded",
    "Dropout",
    "EncoderDecoder",
    "Kernel",
    "LengthPenalty",
    "Loss",
    "Model",
    "Observer",
    "PlainDecodable",
    "Rule",
    "Sentences",
    "Task",
    "TensorState",
    "UsageError",
    "VocabularyTask",
    "build",
    "elements",
    "find",
    "option",
    "preset",
    "register",
    "softmax_weights",
]

_WITH_TORCH = (
    "data.sentences",
    "decoding.around",
    "decoding.constraints",
    "layers.attention",
    "layers.dropout",
    "model",
    "models.encoder_decoder",
    "tasks.base",
)


def __getattr__(name: str) -> Any:
    for place in _WITH_TORCH if name in __all__ else ():
        module = import_module(f"nmt_cli.{place}")
        if name in vars(module):
            return vars(module)[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
