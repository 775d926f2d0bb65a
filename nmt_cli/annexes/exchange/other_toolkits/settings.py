"""The settings of another toolkit's command, and what becomes of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Settings = dict[str, str]
Flags = dict[str, str | list[str] | None]  # of ours; a list is a repeated flag, None a switch
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
SWITCH = "true"
SEPARATOR = "\n"  # of the values of a list, which may be paths with spaces
# A part of a file's name, such as en in corpus.en.gz.
_LANGUAGE = re.compile(
    r"(?!(bpe|spm|tok|tsv|txt|gz|xz|src|tgt|trg|raw|dev|tst|tc|lc)$)[a-z]{2,3}(_\w+)?|\$.*"
)
# Of ours by the other programs' names.
_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_accurate": "gelu",
    "gelu_fast": "gelu",
    "silu": "swish",
    "swish": "swish",
    "relu_squared": "squared_relu",
}
_METRICS = {"bleu": "bleu", "translation": "bleu", "chrf": "chrf"}
# The text of other programs is neither changed nor filtered.
UNCHANGED: Flags = {
    "--max-words": "0",
    "--max-characters": "0",
    "--max-ratio": "0",
    "--keep-duplicates": None,
    "--no-drop-held-out": None,
}


@dataclass
class Conversion:
    """The settings of a program, and what became of them."""

    program: dict[str, Any]
    called: str  # the program's name in the command line
    given: Settings
    positional: list[str]
    devices: int | None = None  # None: not known
    flags: Flags = field(default_factory=dict)  # of the command that is converted now
    differences: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    used: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.settings: Settings = {**self.program["absent"]}
        name = self.given.get("arch") or self.given.get("a") or self.given.get("task", "")
        architectures = self.program.get("archs", {})
        if name in architectures:
            self.settings |= architectures[name]
        elif "arch" in self.given or "a" in self.given:
            self.missing.append(f"arch {name}: not known, the base model is written")
        chosen = self.given.keys() | architectures.get(name, {}).keys()
        self.absent = [name for name in self.settings if name not in chosen]
        self.settings |= self.given
        for name, value in self.program["implied"].items():
            if self.settings.get(name) == SWITCH:
                self.settings[name] = value
        ignored = re.compile(self.program.get("ignored", ""))
        for name, value in self.settings.items():
            if ignored.fullmatch(name) or ignored.fullmatch(f"{name} {value}"):
                self.used.add(name)

    def take(self, *names: str) -> str:
        """Return the first of these settings that has a value, and mark them as converted."""
        self.used |= {*names}
        return next((self.settings[name] for name in names if self.settings.get(name)), "")

    def words(self, *names: str) -> list[str]:
        """Return the values of the first of these settings that has some."""
        value = self.take(*names)
        return value.split(SEPARATOR) if value else []

    def is_on(self, name: str) -> bool:
        return self.take(name).lower() in (SWITCH, "1")

    def number(self, name: str, default: float = 0) -> float:
        """Return the first number of a setting, or the default where there is none."""
        value = self.take(name)
        if not value:
            return default
        numbers = NUMBER.findall(value)
        if not numbers or "$" in value:
            self.missing.append(f"{name} {value}: not a number")
            return default
        if len(numbers) > 1:
            self.differences.append(f"{name} {value}: the first value is taken")
        return float(numbers[0])

    def batches(self, tokens: float, sentences: float) -> None:
        """Write the limits of an update. Where there is none of tokens, it must not bind."""
        if sentences:
            self.flags["--batch-sentences"] = short(sentences)
            tokens = tokens or 1024 * sentences
        if tokens:
            self.flags["--batch-tokens"] = short(tokens)

    def optimizer(self, name: str, betas: str, epsilon: str, decay: float = 0) -> None:
        if decay:
            self.flags["--weight-decay"] = short(decay)
            name = "adamw"
        if name in ("sgd", "adamw"):
            self.flags["--optimizer"] = name
        elif name not in ("", "adam", "fusedadam"):
            self.missing.append(f"optimizer {name}: adam is written")
        values = [*NUMBER.findall(betas)[:2], *NUMBER.findall(epsilon)]
        if name != "sgd":
            self.flags |= dict(zip(("--beta1", "--beta2", "--epsilon"), values, strict=False))

    def clipping(self, name: str, divisor: str) -> None:
        """Write the limit of the gradient of a loss that is divided by `divisor`."""
        limit = self.number(name)
        if limit and divisor == "tokens":
            self.flags["--clip-norm"] = short(limit)
        elif limit:
            self.missing.append(
                f"{name} {short(limit)}: it clips the gradient of a loss divided by {divisor}"
            )

    def rate(self, highest: float, warmup: float, constant: bool) -> None:
        self.flags["--warmup-steps"] = short(max(warmup, 1))
        if constant:
            self.flags |= {"--schedule": "constant", "--learning-rate": short(highest)}
        else:
            self.flags["--peak-learning-rate"] = short(highest)

    def precision(self, kind: str = "") -> None:
        """Write the precision of a `kind` such as bf16 or float16, or of the switches."""
        self.flags["--precision"] = "float32"
        for half, name in (("bf16", "bfloat16"), ("fp16", "float16")):
            if self.is_on(half) or kind in (half, name):
                self.flags["--precision"] = name

    def average(self, weight: float) -> None:
        """Write the moving average of weights, of which `weight` is of the last ones."""
        if weight:
            self.flags["--ema-decay"] = short(1 - weight)

    def activation(self, *names: str) -> None:
        value = self.take(*names).removeprefix("gated-")
        ours = _ACTIVATIONS.get(value, value)
        if ours in (*_ACTIVATIONS.values(), "relu"):
            self.flags["--activation"] = ours
        elif ours:
            self.missing.append(f"activation {value}: relu is written")

    def best_and_patience(self, metrics: Sequence[str], patience: str) -> None:
        """Write the metrics of validations, of which the first one chooses the best checkpoint."""
        ours = [_METRICS.get(metric.partition("-")[0], "loss") for metric in metrics]
        if {*ours} - {"loss"}:
            self.flags["--best-by"] = ",".join(dict.fromkeys(ours))
        validations = self.number(patience)
        if validations > 0:
            self.flags["--patience"] = short(validations)

    def output_matrix(self, tied: bool) -> None:
        if not tied:
            self.missing.append("a matrix of its own for the decoder's output")

    def text(self, part: str, pairs: Sequence[tuple[str, str]]) -> None:
        """Write the files of source and target of the part train, valid or test."""
        if pairs:
            for side, files in zip(("source", "target"), zip(*pairs, strict=True), strict=True):
                self.flags[f"--{part}-{side}"] = [*files]
                if f"--{side}-lang" not in self.flags:
                    self.flags[f"--{side}-lang"] = self._language(files[0], side)

    def _language(self, path: str, side: str) -> str:
        for part in reversed(Path(path.partition("@")[0]).name.split(".")[1:]):
            if _LANGUAGE.fullmatch(part):
                return part
        self.differences.append(f"--{side}-lang: {path} does not name the language")
        return side

    def split_text(self, size: str) -> None:
        """Write that text is split into subwords already, with a vocabulary of this size."""
        if size in ("", "0", "-1"):
            size = "1000000"
        self.flags |= {"--subwords": "none", "--vocab-size": size, "--normalization": "none"}
        self.differences.append(
            "the text is split already there, so outputs stay split; with raw text, leave out "
            f"--subwords none, --normalization none and --vocab-size {size}"
        )


def short(number: float) -> str:
    return str(int(number)) if number == int(number) else f"{number:.6g}"
