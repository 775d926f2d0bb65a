"""Checks of files of other programs: their size in memory, and their settings."""

from __future__ import annotations

import argparse
import json
import mmap
import re
import warnings
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt_cli.errors import CheckpointError, shown
from nmt_cli.streams import warn

# Values with which a setting does nothing.
OFF: tuple[Any, ...] = (False, None, 0, "", [], {}, ())
LARGEST_TABLE = 1 << 25  # numbers in a table of positions: 65,536 positions of a model of width 512
_TIED = 16  # how often the same bytes of a file may be used, as for tied embeddings
_OF_MODEL = re.compile(
    "attention|attn|head|layer|norm|embed|position|activation|ffn|expert|adapter|encoder|decoder"
    "|gate"
)


def saved_objects(path: Path) -> Mapping[str, Any]:
    """Return the dictionary that `torch.save` wrote into a file, or {} if it wrote something else.

    Raises:
        CheckpointError: the file has more than tensors and plain data, or parts that grow when they
            are read. No code in it is run.
    """
    try:
        _check_growth(path)
        # A Namespace is a bare record, in which programs keep options.
        with (
            torch.serialization.safe_globals([argparse.Namespace]),
            warnings.catch_warnings(action="ignore"),
        ):
            saved = torch.load(path, map_location="cpu", weights_only=True)
    except (CheckpointError, MemoryError):
        raise
    except Exception as error:  # torch's loader raises about every kind for a damaged file
        refused = re.search(r"(?:GLOBAL|class|function) ([\w.]+\.[\w.]+)", str(error))
        if refused is None:
            return {}
        raise CheckpointError(
            f"{path}: cannot be imported: it has {refused[1]}, which is neither a tensor nor plain "
            "data. Nothing in the file was run"
        ) from error
    if not isinstance(saved, Mapping):
        return {}
    return saved


def is_language(value: Any) -> bool:
    """Return whether `value` is a name of a language that names of files may have, as zh_CN."""
    return isinstance(value, str) and re.fullmatch(r"\w[\w.@-]{0,40}", value) is not None


def _check_growth(path: Path) -> None:
    """Raise CheckpointError if torch's loader would need more memory than the file has bytes."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            parts = archive.infolist()
        size = sum(part.file_size for part in parts)
        is_compressed = any(part.compress_type != zipfile.ZIP_STORED for part in parts)
        if is_compressed or size > path.stat().st_size:
            raise CheckpointError(
                f"{path}: an archive of {size:,} bytes when unpacked, and torch.save does not "
                "compress. If it has a model in it, unpack it first"
            )
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if content.find(b"\nbytearray\n") >= 0:
            raise CheckpointError(
                f"{path}: cannot be imported: it has a bytearray, which is no tensor"
            )


def float_weights(tensors: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    """Return weights in float32.

    Raises:
        CheckpointError: one is not a plain tensor of floating-point numbers, or they are larger
            than the file `path`.
    """
    size = 0
    for name, tensor in tensors.items():
        if not tensor.is_floating_point() or tensor.layout != torch.strided or tensor.is_meta:
            raise CheckpointError(
                f"{path}: cannot be imported: its {name} is not a plain tensor of floating point"
            )
        size += max(tensor.numel(), *tensor.shape, 0) * tensor.element_size()
    if size > _TIED * path.stat().st_size:
        raise CheckpointError(
            f"{path}: damaged: its weights of {size:,} bytes do not fit into the file"
        )
    return {name: tensor.float() for name, tensor in tensors.items()}


def read_program(module: str) -> dict[str, Any]:
    """Return the content of program.json beside the file `module`, which describes another program.

    - values: settings, and the values that our Transformer can express, with null where there may
      be no such setting.
    - off: settings that must do nothing.
    - any: settings of any value, which are read elsewhere or have no effect on outputs.
    - settings: for each setting of ours, the settings of the program that must be equal.
    - defaults: for each setting of ours, the program's default.
    - names: for each layer or norm of the program, our name, with {} for the number of a layer.
    """
    file = Path(module).with_name("program.json")
    program: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return program


def our_settings(
    settings: Mapping[str, Any],
    known: Mapping[str, Any],
    path: Path,
    others: Collection[str] = (),
    of_model: re.Pattern[str] = _OF_MODEL,
) -> dict[str, Any]:
    """Return the settings of our Transformer, and warn of unknown settings of the other program.

    Args:
        settings: the settings of the model, and perhaps of the training.
        known: as `read_program` returns it.
        others: more settings of any value.
        of_model: a pattern in the names of settings of models, where `settings` has the settings
            of training, too.

    Raises:
        CheckpointError: a setting has a value that is not supported, a setting without a default
            is missing, or encoder and decoder differ.
    """
    _check_values(settings, known, path)
    result = {}
    for name, their_names in known["settings"].items():
        values = []
        for their_name in their_names:
            value = settings.get(their_name)
            if value is None:
                value = known["defaults"].get(name)
            if value is None:
                raise CheckpointError(f"{path}: damaged: it lacks {' or '.join(their_names)}")
            values.append(value)
        if values[0] != values[-1]:
            raise CheckpointError(
                f"{path}: cannot be imported: {' and '.join(their_names)} differ: {shown(values)}"
            )
        result[name] = values[0]
    known_names = {*known["values"], *known["off"], *known["any"], *others}
    unknown = [
        name
        for name, value in settings.items()
        if name not in known_names and of_model.search(name) and value not in OFF
    ]
    if unknown:
        warn(f"{path}: settings that nmt does not know, and does not use: {shown(unknown, 200)}")
    return result


def _check_values(settings: Mapping[str, Any], known: Mapping[str, Any], path: Path) -> None:
    supported = dict(known["values"])
    for name in known["off"]:
        supported[name] = OFF
    for name, values in supported.items():
        value = settings.get(name)
        if value in values:
            continue
        expected = "False"
        if values is not OFF:
            expected = " or ".join(repr(value) for value in values if value is not None)
        raise CheckpointError(
            f"{path}: cannot be imported: its {name} is {shown(value)}, expected {expected}"
        )
