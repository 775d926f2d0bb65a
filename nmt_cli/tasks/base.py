"""The base class of tasks with vocabularies: settings, `task.json`, a probe of the tokenisation."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import sys
import warnings
from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from nmt_cli.config import flag, restored, with_settings_of
from nmt_cli.data import subwords
from nmt_cli.data.subwords import LearningOptions
from nmt_cli.data.vocabulary import Vocabulary
from nmt_cli.errors import DataError, UsageError, shown
from nmt_cli.files.text import read_object, write_object
from nmt_cli.task import TASK_FILE, Task

SCHEMA = 1


class VocabularyTask(Task):
    """A task that is configured by a dataclass and has a vocabulary on each side.

    A subclass saves its own vocabularies. This class adds the settings, the versions of the
    libraries that determine the ids, and a probe: the ids of a fixed text. A change of them shows
    that a library has changed its tokenisation.
    """

    config_type: ClassVar[type[Any]]
    vocabulary_settings: ClassVar[Sequence[str]]
    """Settings that determine the ids of a text. They are adopted with the vocabularies."""
    text_settings: ClassVar[Sequence[str]] = ()
    """The settings among them that change the text before it is split."""
    settings_before: ClassVar[Mapping[str, Any]] = {}
    """Settings that older saved tasks lack, with the values that these tasks follow."""

    def __init__(self, config: Any) -> None:
        self.config = config

    @abstractmethod
    def vocabularies(self) -> tuple[Vocabulary, Vocabulary]:
        """Return the vocabularies of source and target."""

    @abstractmethod
    def adopt_vocabularies(self, saved: Any) -> None:
        """Take the vocabularies of `saved`, a task of the same class."""

    @abstractmethod
    def save_vocabularies(self, folder: Path) -> dict[str, Any]:
        """Write the vocabularies to `folder`. Return what `load_vocabularies` needs, as JSON."""

    @abstractmethod
    def load_vocabularies(self, folder: Path, content: Mapping[str, Any]) -> None:
        """Restore what `save_vocabularies` wrote. Any error of damaged JSON may be raised."""

    @abstractmethod
    def probe(self) -> Any:
        """Return the ids of a fixed text, as JSON."""

    def learned(self, lines: Iterable[str], reserved: int = 0) -> Vocabulary:
        """Return a vocabulary learned from normalised lines, with `reserved` entries left free."""
        c = self.config
        options = LearningOptions(
            c.subwords, c.vocab_size, c.byte_fallback, c.character_coverage, reserved
        )
        return subwords.learn(lines, options)

    def libraries(self) -> list[str]:
        """Return the packages that determine the ids."""
        if self.config.subwords == "none":
            return []
        return ["sentencepiece"]

    @property
    def sample_pairs(self) -> int:
        return int(self.config.sample_pairs)

    def adopt(self, saved: Any, chosen: Collection[str] = ()) -> None:
        self.config = with_settings_of(
            self.config, saved.config, self.vocabulary_settings, chosen, "--subwords-from"
        )
        self.adopt_vocabularies(saved)

    def difference(self, other: Any) -> str | None:
        # Equal vocabularies give other ids where the text is changed in another way before.
        vocabulary = super().difference(other)
        if vocabulary is not None:
            return vocabulary
        for name in self.text_settings:
            if getattr(self.config, name) != getattr(other.config, name):
                return flag(name)
        return None

    def describe(self) -> dict[str, Any]:
        source, target = self.vocabularies()
        vocabularies = {"source": _described(source), "target": _described(target)}
        return {**self._identity(), "vocabularies": vocabularies}

    def save(self, folder: Path) -> None:
        saved = {"schema": SCHEMA, **self._identity(), **self.save_vocabularies(folder)}
        write_object(folder / TASK_FILE, {**saved, "probe": self.probe()})

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read the task that `save` wrote. Warn if installed libraries now give other ids."""
        path = folder / TASK_FILE
        content = read_object(path, DataError, "Prepare the data again, or restore the checkpoint.")
        try:
            if content["schema"] != SCHEMA:
                schema = shown(content["schema"])
                raise DataError(f"{path}: its schema is {schema}; this version reads {SCHEMA}")
            task = cls(cls._restored_config(content["config"], str(path)))
            task.load_vocabularies(folder, content)
            libraries = dict(content["libraries"])
            probe = content["probe"]
        except (ValueError, KeyError, TypeError, AttributeError, UsageError) as error:
            raise DataError(f"{path}: damaged: {type(error).__name__}: {error}") from error
        # Versions may differ without harm. Only a probe shows that the ids have changed.
        if task.probe() != probe:
            warnings.warn(
                f"{folder}: the installed libraries tokenise text differently than when this model "
                f"was prepared, so its output may be worse. Prepared with {_listed(libraries)}; "
                f"installed: {_listed(task._versions())}.",
                stacklevel=2,
            )
        return task

    @classmethod
    def _restored_config(cls, saved: Mapping[str, Any], origin: str) -> Any:
        settings = dict(cls.settings_before)
        for name, value in saved.items():
            # A setting that is off may belong to an annex that is not installed.
            if value or name in cls.config_type.__dataclass_fields__:
                settings[name] = value
        return restored(cls.config_type, settings, origin)

    def _identity(self) -> dict[str, Any]:
        config = dataclasses.asdict(self.config)
        return {"name": self.name, "config": config, "libraries": self._versions()}

    def _versions(self) -> dict[str, str]:
        versions = {"python": ".".join(map(str, sys.version_info[:3]))}  # its Unicode tables matter
        for name in self.libraries():
            versions[name] = importlib.metadata.version(name)
        return versions


def _described(vocabulary: Vocabulary) -> dict[str, Any]:
    sha256 = hashlib.sha256(vocabulary.serialise()).hexdigest()
    return {"size": len(vocabulary), "sha256": sha256}


def _listed(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())
