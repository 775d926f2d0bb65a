"""Files of settings by name: TOML, JSON and YAML."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from nmt_cli.errors import DataError, UsageError, shown
from nmt_cli.files.text import check_regular

_LARGEST = 1 << 20  # bytes, because the readers of YAML and TOML are slow
_MOST_DOTS = 100  # of a key of TOML, whose reader takes quadratic time and memory for them

# The words of YAML 1.2. In YAML 1.1, PyYAML's, `no` is a boolean, `1:30` and `010` are other
# numbers, `1e-4` is text.
_YAML_WORDS = {
    "null": r"(~|null|Null|NULL|)$",
    "bool": r"(true|True|TRUE|false|False|FALSE)$",
    "int": r"[-+]?(0|[1-9][0-9]*)$",
    "float": r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?$",
}


def read_settings(path: Path) -> Any:
    """Return the content of a file of TOML (.toml), YAML (.yaml, .yml), or JSON.

    Raises:
        UsageError: it cannot be read, or has an error.
    """
    form = {".toml": "TOML", ".yaml": "YAML", ".yml": "YAML"}.get(path.suffix, "JSON")
    try:
        check_regular(path, _LARGEST)
        text = path.read_text(encoding="utf-8-sig")
        readers: dict[str, Callable[[str], Any]] = {
            "TOML": _from_toml,
            "JSON": from_json,
            "YAML": from_yaml,
        }
        return readers[form](text)
    except DataError as error:
        raise UsageError(str(error)) from error
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: cannot be read as {form}: {error}") from error


def from_json(text: str | bytes | bytearray) -> Any:
    """Return the content of JSON, or raise ValueError if it is damaged or a name is there twice."""

    def without_repetition(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, value in pairs:
            if name in values:
                raise ValueError(f"{shown(name)} is there twice")
            values[name] = value
        return values

    return json.loads(text, object_pairs_hook=without_repetition)


def _from_toml(text: str) -> Any:
    for number, line in enumerate(text.split("\n"), 1):
        if any(part.count(".") > _MOST_DOTS for part in line.split("=")):
            raise ValueError(f"line {number}: more than {_MOST_DOTS} dots")
    return tomllib.loads(text)


def from_yaml(text: str) -> Any:
    """Return the content of a YAML document, by PyYAML's safe loader. It may be empty."""
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012

        def compose_node(self, parent: Any, index: Any) -> Any:
            # A few aliases, each used twice by the next, are a value without end.
            if self.check_event(yaml.AliasEvent):
                event = self.peek_event()
                problem = f"*{shown(event.anchor)} is an alias; write out the value"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            keys = set()
            for key, _ in node.value:
                if key.id == "scalar" and key.value in keys:  # PyYAML would take the last
                    raise yaml.MarkedYAMLError(
                        problem=f"{shown(key.value)} is there twice", problem_mark=key.start_mark
                    )
                keys.add(str(key.value))
            return super().construct_mapping(node, deep)

    for kind, form in _YAML_WORDS.items():
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", re.compile(form), None)
    try:
        loader = Loader(text)
        root = loader.get_single_node()
        if root is not None and root.id != "mapping":
            raise yaml.MarkedYAMLError(
                problem="expected `name: value`", problem_mark=root.start_mark
            )
        return {} if root is None else loader.construct_document(root)
    except yaml.MarkedYAMLError as error:
        raise ValueError(f"line {error.problem_mark.line + 1}: {error.problem}") from error
    # Tags such as !!bool raise the last two.
    except (yaml.YAMLError, AttributeError, LookupError) as error:
        raise ValueError(str(error).partition("\n")[0]) from error
