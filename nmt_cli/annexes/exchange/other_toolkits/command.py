"""`nmt convert-command`: a command of another toolkit as commands of nmt."""

from __future__ import annotations

from dataclasses import dataclass

from nmt_cli.flags import Command
from nmt_cli.registry import argument


@dataclass(frozen=True, kw_only=True)
class ConvertOptions:
    """Print the commands of nmt for commands or a configuration of another toolkit.

    It reads commands and scripts of fairseq, Marian, OpenNMT-py and eole, and YAML files of Marian,
    OpenNMT-py, eole and JoeyNMT. Comments below the commands say what differs in meaning, what has
    no counterpart, and which defaults of the other program hold.
    """

    original: str = argument(
        "COMMAND", "Commands of a shell, in quotes, or the path of a YAML file (.yaml, .yml)."
    )


def convert_command(options: ConvertOptions) -> None:
    """Print the commands of nmt that do what `options.original` does.

    Raises:
        UsageError: no program is known, or a command line or file cannot be read.
    """
    from nmt_cli.annexes.exchange.other_toolkits.conversion import converted

    print(converted(options.original))


command = Command(
    ConvertOptions,
    convert_command,
    examples=[
        "nmt convert-command 'fairseq-train data --arch transformer --lr 5e-4'",
        "nmt convert-command 'onmt_train -config transformer.yaml -world_size 4'",
        "nmt convert-command transformer.yaml",
        'nmt convert-command "$(cat train.sh)"',
    ],
)
