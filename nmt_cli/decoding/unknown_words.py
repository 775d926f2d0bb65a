"""PosUnk: replacement of unknown words by the source words that they attend to.

Luong et al. 2015, "Addressing the Rare Word Problem in Neural Machine Translation", section 3.3; with an attention in
place of their positions, as Jean et al. 2015 do. Letters: S source length, T target length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from nmt_cli.errors import DataError, UsageError
from nmt_cli.files.text import read_lines
from nmt_cli.interfaces import BOS, EOS, UNK, Model, ShowsAttention
from nmt_cli.task import Task


def read_dictionary(path: Path) -> dict[str, str]:
    """Return translations by source word from a file of lines `word<TAB>translation`, plain or compressed.

    Of several translations of a word, the first counts.

    Raises:
        DataError: the file cannot be read, or a line has another form.
    """
    dictionary: dict[str, str] = {}
    for number, line in enumerate(read_lines(path), start=1):
        columns = [column.strip() for column in line.split("\t")]
        if len(columns) != 2 or not all(columns):
            raise DataError(f"{path}:{number}: expected a source word, a tab and its translation, not {line!r}")
        dictionary.setdefault(*columns)
    return dictionary


class UnknownWords:
    """Finds the words in place of unknown ones.

    Args:
        models: whose attention is averaged, in evaluation mode, on `device`.
        dictionary: translations by source word; words that it lacks are copied.

    Raises:
        UsageError: the task's ids are not of words, or a model has no attention weights.
    """

    def __init__(
        self, task: Task, models: Sequence[Model], dictionary: Mapping[str, str], device: torch.device
    ) -> None:
        if task.source_words("") is None:
            raise UsageError(
                "--replace-unknown cannot be used with this model: its vocabulary has no whole words "
                "(nmt prepare --subwords none)"
            )
        self._models = [model for model in models if isinstance(model, ShowsAttention)]
        if len(self._models) < len(models):
            raise UsageError("--replace-unknown cannot be used with a model without the method attention_weights")
        self._task, self._dictionary, self._device = task, dictionary, device

    def replaced(self, target: Sequence[int], source: Sequence[int], line: str) -> str:
        """Return an output line without unknown words.

        Args:
            target: ids of the output, without EOS.
            source: ids of the input, without EOS.
            line: the input line; it may have more words than `source` has ids.
        """
        words = self._task.source_words(line)
        assert words is not None
        written = self._task.target_tokens(target)
        positions = self._aligned(source, target)
        return self._task.join_words(
            [
                self._translated(words[position]) if i == UNK else word
                for i, word, position in zip(target, written, positions, strict=True)
            ]
        )

    def _translated(self, word: str) -> str:
        return self._dictionary.get(word) or self._dictionary.get(word.lower()) or word

    @torch.inference_mode()
    def _aligned(self, source: Sequence[int], target: Sequence[int]) -> list[int]:
        """The source position that each target token attends to most, on average over models, layers and heads.

        The end of the source is no word, so it does not count.
        """
        rows = [torch.tensor([ids], device=self._device) for ids in ([*source, EOS], [BOS, *target[:-1]])]
        weights = [model.attention_weights(*rows)["cross"].mean(dim=(0, 1)) for model in self._models]  # [T, S] each
        places: list[int] = torch.stack(weights).mean(dim=0)[:, : len(source)].argmax(dim=1).tolist()
        return places
