"""Commands of other toolkits as commands of nmt.

programs.toml has each program's command names, its defaults and its architectures. COMMAND.tsv has
the flags of each program and what to use here: an answer that is one flag of ours takes the value
over. The settings whose values change are converted by the functions of the program's file.
"""

from __future__ import annotations

import re
import shlex

from nmt_cli.annexes.exchange.other_toolkits import fairseq, joeynmt, marian, opennmt
from nmt_cli.annexes.exchange.other_toolkits.reading import answers_for, read
from nmt_cli.annexes.exchange.other_toolkits.settings import (
    SEPARATOR,
    SWITCH,
    Conversion,
    Flags,
)
from nmt_cli.errors import UsageError

# Each has functions with the names of our commands.
_MODULES = {
    "fairseq": fairseq,
    "Marian": marian,
    "JoeyNMT": joeynmt,
    "OpenNMT-py and eole": opennmt,
}
_WITH_VARIABLES = re.compile(r"(?:[\w./:=,@%+-]|\$\w+|\$\{\w+\})+")
_NO_LIMIT = "100000000"  # of --max-steps
# Flags of ours without a value, and flags whose value would be another one here.
_SWITCHES = (
    "--attention-biases",
    "--compile",
    "--exact-stopping",
    "--gradient-checkpointing",
    "--lowercase",
    "--moses",
    "--new-vocabulary",
    "--overwrite",
    "--replace-unknown",
    "--sample",
    "--tensorboard",
    "--validation-bleu",
)
_OTHER_VALUES = ("--import", "--init-from", "--batch-growth", "--subwords", "--symbols", "--test")


def converted(original: str) -> str:
    """Return the commands of nmt for each command in `original`, and comments below them.

    Raises:
        UsageError: no program is known, a command line or file cannot be read, or text is prepared
            without text to train on.
    """
    return "\n".join(map(_converted, read(original)))


def _converted(conversion: Conversion) -> str:
    flags_of: dict[str, Flags] = {}
    for command in conversion.program["commands"]:
        conversion.flags = {}
        vars(_MODULES[conversion.program["column"]])[command](conversion)
        if conversion.flags:
            flags_of[command] = conversion.flags
    prepared = flags_of.get("prepare")
    if prepared and not any(flag.startswith("--train") for flag in prepared):
        del flags_of["prepare"]
        conversion.missing.append("there is no training text, so nothing is prepared")
    if not flags_of:
        raise UsageError(
            f"{conversion.called}: there is no training text, which `nmt prepare` needs. "
            "`nmt translate` takes other text as it is"
        )
    _from_tables(conversion, flags_of)
    translate = flags_of.get("translate", {})
    if "--sample" in translate and translate.pop("--beam", None):
        conversion.differences.append("samples have no --beam: --nbest N draws N outputs of a line")
    if "train" in flags_of:
        flags_of["train"].setdefault("--max-steps", _NO_LIMIT)
        flags_of["train"].setdefault("--out", "RUN")
    _join(flags_of, "prepare", "train", "DATA")
    _join(flags_of, "train", "translate", "RUN")
    return "\n".join([*_commands(flags_of), *_comments(conversion)])


def _from_tables(of: Conversion, flags_of: dict[str, Flags]) -> None:
    """Convert the settings that are left by the answers of the commands' tables."""
    tables = {command: answers_for(of.program, command) for command in flags_of}
    notes = of.program["notes"]
    for name in of.given | of.settings:  # a default does not replace what is given
        value = of.settings[name]
        written = f"{name} {value}".removesuffix(f" {SWITCH}")
        note = notes.get(f"{name} {value}", notes.get(name))
        is_off = value in ("", "false", "-1", "0", "0.0")
        if note and not is_off:
            of.differences.append(f"{written}: {note}")
        if name in of.used or value in ("", "false", "-1"):
            continue
        answers = [(command, table[name]) for command, table in tables.items() if name in table]
        flags = [answer for answer in answers if _is_flag(answer[1])]
        if flags:
            command, words = flags[0]
            for flag in words.split():
                _take_over(of, flags_of[command], name, flag)
        elif not answers:
            of.missing.append(f"{written}: not known")
        elif not is_off and not any(answer.startswith("nothing") for _, answer in answers):
            answer = answers[0][1]
            remarks = of.missing if answer.startswith("no counterpart") else of.differences
            remarks.append(f"{written}: {answer}".replace(": no counterpart", ""))


def _take_over(of: Conversion, flags: Flags, name: str, flag: str) -> None:
    value = of.settings[name].replace(SEPARATOR, " ")
    ours = None if flag in _SWITCHES else value
    if value == "0" and flag in ("--max-steps", "--max-epochs"):  # no limit
        return
    if flag == "--device" or flags.setdefault(flag, ours) == ours:
        return
    if name in of.absent:
        of.absent.remove(name)
    else:
        of.missing.append(f"{name} {value}: {flag} is {flags[flag]}")


def _is_flag(answer: str) -> bool:
    return re.fullmatch(r"(--[a-z0-9-]+ ?)+", answer) is not None and answer not in _OTHER_VALUES


def _join(flags_of: dict[str, Flags], writer: str, reader: str, placeholder: str) -> None:
    """Let a command read what the one before it writes."""
    if {writer, reader} <= flags_of.keys() and placeholder in flags_of[reader]:
        rest = flags_of[reader]
        del rest[placeholder]
        flags_of[reader] = {str(flags_of[writer]["--out"]): None, **rest}


def _commands(flags_of: dict[str, Flags]) -> list[str]:
    lines = []
    for command, flags in flags_of.items():
        words = ["nmt", command]
        for flag, value in flags.items():
            values = value if isinstance(value, list) else [value]
            for one in values:
                words.append(quoted(flag))
                if one is not None:
                    words.append(quoted(one))
        lines.append(" ".join(words))
    return lines


def _comments(of: Conversion) -> list[str]:
    defaults = [f"{name} {of.settings[name]}" for name in of.absent]
    lines = []
    for title, remarks in (
        ("Differs in meaning:", of.differences),
        ("No counterpart:", of.missing),
        (f"Not given, defaults of {of.called}:", defaults),
    ):
        if remarks:
            lines.append(f"# {title}")
            lines += [f"#   {' '.join(remark.split())}" for remark in dict.fromkeys(remarks)]
    return lines


def quoted(word: str) -> str:
    """Return a word for a shell. $DATA stays a variable and ~/ the home, commands do not."""
    if word.startswith("~/"):
        return "~/" + quoted(word[2:])
    if "$" in word and _WITH_VARIABLES.fullmatch(word):
        return f'"{word}"'
    return shlex.quote(word)
