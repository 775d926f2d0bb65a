"""PosUnk: replacement of unknown words by the source words that they attend to.

Luong et al. 2015, "Addressing the Rare Word Problem in Neural Machine Translation", section 3.3.
The attention is in place of their positions, as in Jean et al. 2015.

Letters: S source length, T target length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from nmt_cli.annexes.around.attention import PIECES, Aligner, source_words
from nmt_cli.annexes.around.settings import UnknownWordsConfig
from nmt_cli.decoding.around import Around
from nmt_cli.decoding.engine import Engine, Request
from nmt_cli.decoding.options import TranslateOptions
from nmt_cli.decoding.outputs import Output
from nmt_cli.errors import DataError, UsageError, shown
from nmt_cli.files.text import read_lines
from nmt_cli.interfaces import UNK


def read_dictionary(path: Path, one_translation: bool = False) -> dict[str, str]:
    """Return translations by source words from a file of lines `words<TAB>translation`.

    It may be compressed. Of several translations, the first counts.

    Raises:
        DataError: the file cannot be read, a line has another form, or there are several with
            `one_translation`.
    """
    dictionary: dict[str, str] = {}
    for number, line in enumerate(read_lines(path), start=1):
        columns = [" ".join(column.split()) for column in line.split("\t")]
        if len(columns) != 2 or not all(columns):
            raise DataError(
                f"{path}:{number}: expected a word, a tab and its translation, not {shown(line)}"
            )
        source, translation = columns
        first = dictionary.setdefault(source, translation)
        if first != translation and one_translation:
            raise DataError(
                f"{path}:{number}: {shown(source)} is already {shown(first)}; leave one of the two "
                "out"
            )
    return dictionary


def unknown_words(
    config: UnknownWordsConfig, *, engine: Engine, options: TranslateOptions
) -> UnknownWords | None:
    """Return the `Around` that replaces unknown words, if they are to be replaced."""
    if not config.replace_unknown:
        return None
    dictionary = dict[str, str]()
    if config.dictionary:
        dictionary = read_dictionary(Path(config.dictionary))
    return UnknownWords(dictionary, engine=engine, options=options)


class UnknownWords(Around):
    """Finds the words in place of unknown ones.

    Args:
        dictionary: translations by source word. Words that it lacks are copied.

    Raises:
        UsageError: the task's ids are not of words, or a model shows no attention.
    """

    order = 60
    takes_prefix = True
    allows_unknown = True
    needs_models = True

    def __init__(
        self, dictionary: Mapping[str, str], *, engine: Engine, options: TranslateOptions
    ) -> None:
        if source_words(engine.task, "") is None:
            raise UsageError(
                "--replace-unknown cannot be used with this model: its vocabulary has no whole "
                "words (nmt prepare --subwords none)"
            )
        self._task: Any = engine.task
        self._dictionary = dictionary
        self._aligner = Aligner(engine, options.get("tag"))

    def revise(self, batch: Sequence[Request], outputs: list[list[Output]]) -> list[list[Output]]:
        """Return the outputs without unknown words in their texts. Their tokens stay."""

        def revised(text: Request, output: Output, weights: Tensor) -> Output:
            words = self.replaced(output.ids, weights, self._aligner.line_of(text))
            with_words = output.noted(PIECES, words)
            return replace(with_words, text=self._task.finished(" ".join(words)))

        return self._aligner.revised(batch, outputs, revised)

    def replaced(self, target: Sequence[int], weights: Tensor, line: str) -> list[str]:
        """Return the words of an output without unknown words.

        Args:
            target: ids of the output, without EOS.
            weights: of its attention over the source, [T, S].
            line: the input line, which may have more words than S.
        """
        source = source_words(self._task, line)
        assert source is not None
        words = list(self._task.target_tokens(target))
        attended = weights.argmax(dim=1).tolist()
        for place, token in enumerate(target):
            if token == UNK:
                word = source[attended[place]]
                lower = self._dictionary.get(word.lower())
                words[place] = self._dictionary.get(word) or lower or word
        return words
