"""Common code of tasks with vocabularies: settings, manifest entry, `task.json`, and a check of the
tokenisation.
"""

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
    """Settings that determine the ids of a text; they are adopted together with the vocabularies.
    """
    text_settings: ClassVar[Sequence[str]] = ()
    """Those of them that change the text before it is split."""
    settings_before: ClassVar[Mapping[str, Any]] = {}
    """Settings that tasks saved before they existed do not have, with the values that those tasks
    follow.
    """

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
        """Write the vocabularies to `folder`; return what `load_vocabularies` needs, as JSON."""

    @abstractmethod
    def load_vocabularies(self, folder: Path, content: Mapping[str, Any]) -> None:
        """Restore what `save_vocabularies` wrote; any error of damaged JSON may be raised."""

    @abstractmethod
    def probe(self) -> Any:
        """Return the ids of a fixed text, as JSON."""

    def learned(self, lines: Iterable[str], reserved: int = 0) -> Vocabulary:
        """Return a vocabulary learned from normalised lines. `reserved` of `vocab_size` are left
        for other entries.
        """
        c = self.config
        return subwords.learn(
            lines,
            LearningOptions(
                c.subwords, c.vocab_size, c.byte_fallback, c.character_coverage, reserved
            ),
        )

    def libraries(self) -> list[str]:
        """Return the packages that determine the ids."""
        return [] if self.config.subwords == "none" else ["sentencepiece"]

    @property
    def sample_pairs(self) -> int:
        return int(self.config.sample_pairs)

    def adopt(self, saved: Any, chosen: Collection[str] = ()) -> None:
        self.config = with_settings_of(
            self.config, saved.config, self.vocabulary_settings, chosen, "--subwords-from"
        )
        self.adopt_vocabularies(saved)

    def difference(self, other: Any) -> str | None:
        difference = super().difference(other)
        for name in self.text_settings:
            if difference is None and getattr(self.config, name) != getattr(other.config, name):
                difference = flag(name)
        return difference

    def describe(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "config": dataclasses.asdict(self.config),
            "libraries": self._versions(),
            "vocabularies": {
                side: {
                    "size": len(vocabulary),
                    "sha256": hashlib.sha256(vocabulary.serialise()).hexdigest(),
                }
                for side, vocabulary in zip(("source", "target"), self.vocabularies(), strict=True)
            },
        }

    def save(self, folder: Path) -> None:
        write_object(
            folder / TASK_FILE,
            {
                "schema": SCHEMA,
                "name": self.name,
                "config": dataclasses.asdict(self.config),
                "libraries": self._versions(),
                **self.save_vocabularies(folder),
                "probe": self.probe(),
            },
        )

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read the task that `save` wrote; warn if an installed library gives other ids than
        before.
        """
        path = folder / TASK_FILE
        try:
            content = read_object(
                path, DataError, "Prepare the data again, or restore the checkpoint."
            )
            if content["schema"] != SCHEMA:
                raise DataError(
                    f"{path}: its schema is {shown(content['schema'])}; this version reads {SCHEMA}"
                )
            known = cls.config_type.__dataclass_fields__
            # Those of an annex that is not here are left out where they are off.
            config = {
                name: value for name, value in content["config"].items() if value or name in known
            }
            task = cls(restored(cls.config_type, {**cls.settings_before, **config}, str(path)))
            task.load_vocabularies(folder, content)
            libraries, probe = dict(content["libraries"]), content["probe"]
        except (ValueError, KeyError, TypeError, AttributeError, UsageError) as error:
            raise DataError(f"{path}: damaged: {type(error).__name__}: {error}") from error
        if task.probe() != probe:
            warnings.warn(
                f"{folder}: the installed libraries tokenise text differently than when this model "
                "was prepared, so "
                f"its output may be worse. Prepared with {_listed(libraries)}; installed: "
                f"{_listed(task._versions())}.",
                stacklevel=2,
            )
        return task

    def _versions(self) -> dict[str, str]:
        versions = {"python": ".".join(map(str, sys.version_info[:3]))}  # its Unicode tables matter
        for name in self.libraries():
            versions[name] = importlib.metadata.version(name)
        return versions


def _listed(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())
