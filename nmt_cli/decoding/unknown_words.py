"""PosUnk: replacement of unknown words by the source words that they attend to.

Luong et al. 2015, "Addressing the Rare Word Problem in Neural Machine Translation", section 3.3; with an attention in
place of their positions, as Jean et al. 2015 do. Letters: S source length, T target length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from nmt_cli.errors import DataError, UsageError, shown
from nmt_cli.files.text import read_lines
from nmt_cli.interfaces import UNK
from nmt_cli.task import Task


def read_dictionary(path: Path, one_translation: bool = False) -> dict[str, str]:
    """Return translations by source words from a file of lines `words<TAB>translation`, plain or compressed.

    Of several translations, the first counts.

    Raises:
        DataError: the file cannot be read, a line has another form, or there are several with `one_translation`.
    """
    dictionary: dict[str, str] = {}
    for number, line in enumerate(read_lines(path), start=1):
        columns = [" ".join(column.split()) for column in line.split("\t")]
        if len(columns) != 2 or not all(columns):
            raise DataError(f"{path}:{number}: expected a word, a tab and its translation, not {shown(line)}")
        if dictionary.setdefault(*columns) != columns[1] and one_translation:
            translation = dictionary[columns[0]]
            raise DataError(
                f"{path}:{number}: {shown(columns[0])} is already {shown(translation)}; leave one of the two out"
            )
    return dictionary


class UnknownWords:
    """Finds the words in place of unknown ones.

    Args:
        dictionary: translations by source word; words that it lacks are copied.

    Raises:
        UsageError: the task's ids are not of words.
    """

    def __init__(self, task: Task, dictionary: Mapping[str, str]) -> None:
        if task.source_words("") is None:
            raise UsageError(
                "--replace-unknown cannot be used with this model: its vocabulary has no whole words "
                "(nmt prepare --subwords none)"
            )
        self._task, self._dictionary = task, dictionary

    def replaced(self, target: Sequence[int], weights: Tensor, line: str) -> list[str]:
        """Return the words of an output without unknown words.

        Args:
            target: ids of the output, without EOS.
            weights: of its attention over the source, [T, S].
            line: the input line; it may have more words than S.
        """
        words = self._task.source_words(line)
        assert words is not None
        written = self._task.target_tokens(target)
        return [
            self._translated(words[position]) if i == UNK else word
            for i, word, position in zip(target, written, weights.argmax(dim=1).tolist(), strict=True)
        ]

    def _translated(self, word: str) -> str:
        return self._dictionary.get(word) or self._dictionary.get(word.lower()) or word
