"""Files of settings by name: TOML, JSON and YAML."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

from nmt_cli.errors import DataError, UsageError, missing_package
from nmt_cli.files.text import LARGEST_JSON, check_regular

_YAML_SCALARS = (
    ("null", r"|~|null|Null|NULL", ("", "~", "n", "N")),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?(0|[1-9][0-9]*)", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?", "-+.0123456789"),
)
"""Types of YAML's words without quotes, their forms and first letters.

They are those of YAML 1.2. PyYAML's own, of YAML 1.1, make `no` a boolean, `1:30` and `010` other numbers, and `1e-4` a
text.
"""


def read_settings(path: Path) -> Any:
    """Return the content of a file of TOML (.toml), YAML (.yaml, .yml), or JSON.

    Raises:
        UsageError: it cannot be read, or has an error.
    """
    form = {".toml": "TOML", ".yaml": "YAML", ".yml": "YAML"}.get(path.suffix, "JSON")
    try:
        check_regular(path, LARGEST_JSON)
        text = path.read_text(encoding="utf-8")
        return {"TOML": tomllib.loads, "JSON": json.loads, "YAML": _from_yaml}[form](text)
    except DataError as error:
        raise UsageError(str(error)) from error
    except _YamlError as error:
        raise UsageError(f"{path}:{error.line}: cannot be read as YAML: {error}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: cannot be read as {form}: {error}") from error


class _YamlError(Exception):
    def __init__(self, problem: str, line: int) -> None:
        super().__init__(problem)
        self.line = line


def _from_yaml(text: str) -> Any:
    """Return the content of a YAML document, by PyYAML's safe loader; that of an empty one is no settings."""
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise missing_package("a file of YAML", error) from error

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            names = set()
            for key, _ in node.value:
                if str(key.value) in names:  # PyYAML would take the last
                    raise _YamlError(f"{key.value} is there twice", key.start_mark.line + 1)
                names.add(str(key.value))
            return super().construct_mapping(node, deep)

    for kind, form, letters in _YAML_SCALARS:
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", re.compile(f"(?:{form})$"), list(letters))
    try:
        loader = Loader(text)
        root = loader.get_single_node()
        if root is not None and root.id != "mapping":
            raise _YamlError("expected settings by name, `name: value`", root.start_mark.line + 1)
        return {} if root is None else loader.construct_document(root)
    except yaml.MarkedYAMLError as error:
        raise _YamlError(str(error.problem), error.problem_mark.line + 1) from error
    except (yaml.YAMLError, AttributeError, LookupError) as error:  # the latter by tags such as !!bool
        raise ValueError(str(error).partition("\n")[0]) from error
