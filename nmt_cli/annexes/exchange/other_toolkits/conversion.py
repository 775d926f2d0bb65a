"""Command lines and configurations of other toolkits as commands of nmt.

COMMAND.tsv has the flags of each program and what to use here: an answer that is one flag of ours
takes the value over. The settings whose values change are converted by the functions here.
programs.toml has each program's command names, its defaults and its architectures.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nmt_cli.annexes.exchange.other_toolkits.flags import answers_of
from nmt_cli.errors import UsageError, shown
from nmt_cli.files.settings import read_settings

Settings = dict[str, str]
PROGRAMS: dict[str, dict[str, Any]] = read_settings(Path(__file__).parent / "programs.toml")
# Of a shell, after the command.
_ENDS = re.compile(r"\d?>.*|&.*|\||\|\||;|<.*|2>&1")
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_WITH_VARIABLES = re.compile(r"(?:[\w./:=,@%+-]|\$\w+|\$\{\w+\})+")
_NO_LIMIT = "100000000"  # of --max-steps
_SWITCH = "true"
# Flags of ours without a value, and flags whose value would be another one here.
_SWITCHES = ("--validation-bleu", "--gradient-checkpointing", "--new-vocabulary")
_OTHER_VALUES = ("--import", "--init-from", "--batch-growth", "--subwords", "--symbols", "--test")


@dataclass
class Conversion:
    """The settings of a program, and what became of them."""

    program: dict[str, Any]
    given: Settings
    positional: list[str]
    devices: int | None = None  # None: not known
    flags: dict[str, str | None] = field(default_factory=dict)  # ours; None: a switch
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

    def take(self, name: str, default: str = "") -> str:
        """Return a setting that is converted now."""
        self.used.add(name)
        return self.settings.get(name, default)

    def is_on(self, name: str) -> bool:
        return self.take(name, "false").lower() in (_SWITCH, "1")

    def number(self, name: str, default: float) -> float:
        """Return the first number of a setting, or the default where there is none."""
        value = self.take(name)
        if not value:
            return default
        numbers = _NUMBER.findall(value)
        if not numbers or "$" in value:
            self.missing.append(f"{name} {value}: not a number")
            return default
        if len(numbers) > 1 and name != "lr":
            self.differences.append(f"{name} {value}: the first value is taken")
        return float(numbers[0])


def converted(original: str) -> str:
    """Return the command of nmt, and comments below it.

    Raises:
        UsageError: the program is not known, or the command line or file cannot be read.
    """
    if original.endswith((".yaml", ".yml")) and len(original.split()) == 1:
        conversion = _of_file(Path(original))
    else:
        conversion = _of_words(_words(original))
    _CONVERTERS[conversion.program["command"]](conversion)
    _from_table(conversion)
    if conversion.program["command"] == "train":
        conversion.flags.setdefault("--max-steps", _NO_LIMIT)
        conversion.flags.setdefault("--out", "RUN")
    return _text(conversion)


def _words(original: str) -> list[str]:
    try:
        words = shlex.split(original.replace("\\\n", " "))
    except ValueError as error:
        raise UsageError(f"the command line cannot be read: {error}") from error
    for position, word in enumerate(words):
        if _ENDS.fullmatch(word):
            return words[:position]
    return words


def _of_words(words: list[str]) -> Conversion:
    """Return the settings of a command line."""
    devices = None
    for position, word in enumerate(words):
        if word.startswith("CUDA_VISIBLE_DEVICES="):
            devices = len(word.split(","))
        for program in PROGRAMS.values():
            if any(word == name or word.endswith(f"/{name}") for name in program["words"]):
                given, positional = _flags(program, words[position + 1 :])
                return Conversion(program, given, positional, devices)
    known = ", ".join(sorted(program["words"][0] for program in PROGRAMS.values()))
    raise UsageError(f"no known program in {shown(' '.join(words))}; known are {known}")


def _flags(program: dict[str, Any], words: list[str]) -> tuple[Settings, list[str]]:
    """Return the settings by flag, without dashes, and the other words.

    Raises:
        UsageError: a flag that needs a value has none.
    """
    long_names = answers_of(program["command"], program["column"])
    switches = program["switches"].split()
    given: dict[str, list[str]] = {}
    positional: list[str] = []
    values = positional
    name = ""
    for word in words:
        if word in ("true", "false") and values is positional and name in switches:
            given[name] = [word]
        elif not word.startswith("-") or _NUMBER.match(word) or word == "-":
            values.append(word)
            # A second value belongs to Marian's lists; elsewhere it is an argument.
            if program["column"] != "Marian":
                values = positional
        else:
            name, equals, value = word.lstrip("-").partition("=")
            name = name.replace("_", "-")
            values = given[name] = [value] if equals else []
            if name in switches and not equals:
                values.append(_SWITCH)
            if values:
                values = positional
    for name, values in given.items():
        if not values:
            implied = program["implied"].get(name)
            if implied is None and name in long_names:
                raise UsageError(f"{program['words'][0]}: {name} has no value")
            values.append(implied or _SWITCH)
    return {name: " ".join(values) for name, values in given.items()}, positional


def _of_file(path: Path) -> Conversion:
    """Return the settings of a YAML file.

    Raises:
        UsageError: it cannot be read, or is of no known program.
    """
    content = read_settings(path)
    for program in PROGRAMS.values():
        keys = program.get("keys", [])
        if any(key in content for key in keys):
            given: Settings = {}
            for name, value in _leaves(content, program.get("sections", [])):
                given[name.replace("_", "-")] = value
            return Conversion(program, given, [])
    raise UsageError(f"{path}: not a training configuration of Marian or JoeyNMT")


def _leaves(content: dict[str, Any], sections: list[str]) -> list[tuple[str, str]]:
    """Return the settings of nested sections as text, by their names."""
    leaves = []
    for name, value in content.items():
        if isinstance(value, dict):
            prefix = "" if name in sections else f"{name}."
            leaves += [(prefix + inner, text) for inner, text in _leaves(value, sections)]
        elif isinstance(value, list):
            leaves.append((str(name), " ".join(map(str, value))))
        elif isinstance(value, bool):
            leaves.append((str(name), str(value).lower()))
        elif value is not None:
            leaves.append((str(name), str(value)))
    return leaves


def _train(of: Conversion) -> None:
    data = of.positional[:1] if of.program["column"] == "fairseq" else []
    of.flags |= dict.fromkeys([*(data or ["DATA"]), *of.program["flags"]])
    _TRAINING[of.program["column"]](of)
    of.flags["--precision"] = "float32"
    for half, precision in (("bf16", "bfloat16"), ("fp16", "float16")):
        if of.is_on(half):
            of.flags["--precision"] = precision


def _train_fairseq(of: Conversion) -> None:
    of.used |= {"arch", "a", "maximize-best-checkpoint-metric"}
    if of.take("task", "translation") != "translation":
        of.missing.append(f"task {of.settings['task']}")
    _fairseq_batches(of)
    _fairseq_optimizer(of)
    _fairseq_schedule(of)
    if any([of.is_on("encoder-normalize-before"), of.is_on("decoder-normalize-before")]):
        of.flags["--norm"] = "pre"
    all_tied = of.is_on("share-all-embeddings")
    _embeddings(of, all_tied, any([of.is_on("share-decoder-input-output-embed"), all_tied]))
    criterion = of.take("criterion")
    if criterion == "cross_entropy":
        of.settings["label-smoothing"] = "0"
    elif criterion != "label_smoothed_cross_entropy":
        of.missing.append(f"criterion {criterion}")
    for name in ("save-interval", "validate-interval"):
        if of.take(name):
            of.differences.append(f"{name} {of.settings[name]}: in epochs there, in updates here")
    _best_and_patience(of, of.take("best-checkpoint-metric", "loss"), "patience")


def _fairseq_batches(of: Conversion) -> None:
    devices = of.number("distributed-world-size", of.devices or 1)
    if of.devices is None and "distributed-world-size" not in of.given:
        of.differences.append("the number of GPUs is not known: an update is of one GPU's")
    factor = devices * of.number("update-freq", 1)
    sentences = of.number("batch-size", 0) or of.number("max-sentences", 0)
    _batches(of, of.number("max-tokens", 0) * factor, sentences * factor)


def _fairseq_optimizer(of: Conversion) -> None:
    _optimizer(of, of.take("optimizer"))
    _betas(of, of.take("adam-betas"), of.take("adam-eps"))
    decay = of.number("weight-decay", 0)
    if decay:
        of.flags |= {"--optimizer": "adamw", "--weight-decay": _short(decay)}


def _fairseq_schedule(of: Conversion) -> None:
    schedule = of.take("lr-scheduler")
    warmup = of.number("warmup-updates", 4000 if schedule == "inverse_sqrt" else 0)
    decays = schedule in ("inverse_sqrt", "polynomial_decay")
    _rate(of, of.number("lr", 0.25), warmup, constant=not decays)
    if schedule == "polynomial_decay":
        of.flags["--schedule"] = "linear_decay"
        of.flags["--decay-steps"] = of.take("total-num-update", "1000000")
    elif schedule not in ("inverse_sqrt", "fixed"):
        of.missing.append(f"lr-scheduler {schedule}: --schedule constant is written")


def _train_marian(of: Conversion) -> None:
    of.used |= {"task", "transformer-postprocess", "transformer-postprocess-emb"}
    if not of.take("type").startswith("transformer"):
        of.missing.append(f"type {of.settings['type']}: the Transformer is written")
    _marian_batches(of)
    _marian_optimizer(of)
    _marian_schedule(of)
    _marian_periods(of)
    if "n" in of.take("transformer-preprocess"):
        of.flags["--norm"] = "pre"
    if not of.is_on("output-omit-bias"):
        of.flags["--output-bias"] = None
    all_tied = of.is_on("tied-embeddings-all")
    _embeddings(of, all_tied, any([of.is_on("tied-embeddings"), all_tied]))
    metric = of.take("valid-metrics", "cross-entropy").split()[0]
    _best_and_patience(of, metric, "early-stopping")


def _marian_batches(of: Conversion) -> None:
    devices = len(of.take("devices", "0").split())
    factor = devices * of.number("optimizer-delay", 1)
    words = of.number("mini-batch-words", 0)
    sentences = of.number("mini-batch", 64)
    if of.is_on("mini-batch-fit"):
        of.flags["--batch-tokens"] = "25000"
    else:
        _batches(of, words * factor, 0 if words else sentences * factor)


def _marian_optimizer(of: Conversion) -> None:
    _optimizer(of, of.take("optimizer", "adam"))
    _betas(of, of.take("optimizer-params"), "1e-8")
    limit = of.number("clip-norm", 1)
    if limit and of.take("cost-type") == "ce-mean-words":
        of.flags["--clip-norm"] = _short(limit)
    elif limit:
        of.missing.append(
            f"clip-norm {_short(limit)}: with {of.take('cost-type')}, it clips the gradient of a "
            "summed loss"
        )
    average = of.number("exponential-smoothing", 0)
    if average:
        of.flags["--ema-decay"] = _short(1 - average)


def _marian_schedule(of: Conversion) -> None:
    rate = of.number("learn-rate", 1e-4)
    warmup = _updates(of, "lr-warmup") or 0
    decay = _updates(of, "lr-decay-inv-sqrt") or 0
    longest = max(warmup, decay)
    if decay:
        rate *= (decay / longest) ** 0.5
        if decay != warmup:
            of.differences.append(
                f"lr-decay-inv-sqrt {decay}, lr-warmup {warmup}: rates are the same from update "
                f"{longest} on"
            )
    _rate(of, rate, longest, constant=not decay)


def _marian_periods(of: Conversion) -> None:
    epochs = re.fullmatch(r"(\d+)e", of.settings.get("after", ""))
    if epochs:
        of.take("after")
        if int(epochs[1]):
            of.flags["--max-epochs"] = epochs[1]
    for name, flag in (
        ("save-freq", "--save-every"),
        ("valid-freq", "--validate-every"),
        ("disp-freq", "--log-every"),
        ("after-batches", "--max-steps"),
        ("after", "--max-steps"),
    ):
        number = None if name in of.used else _updates(of, name)
        if number:
            of.flags[flag] = str(number)


def _train_joeynmt(of: Conversion) -> None:
    _optimizer(of, of.take("optimizer", "adam"))
    _betas(of, of.take("adam-betas"), "1e-8")
    batch = of.number("batch-size", 64) * of.number("batch-multiplier", 1)
    in_tokens = of.take("batch-type") == "token"
    _batches(of, batch if in_tokens else 0, 0 if in_tokens else batch)
    _joeynmt_schedule(of)
    _joeynmt_model(of)
    if of.number("weight-decay", 0):
        of.missing.append(f"weight-decay {of.settings['weight-decay']}: part of the gradient there")
    if of.take("normalization", "batch") != "tokens":
        of.differences.append("normalization: a loss is divided by the target tokens here")
    frequency = of.take("validation-freq", "1000")
    of.flags |= {"--validate-every": frequency, "--save-every": frequency}
    _best_and_patience(of, of.take("early-stopping-metric", "ppl"), "")
    parts = ("testing.", "data.", "encoder.", "decoder.")
    of.used |= {"name", *(name for name in of.settings if name.startswith(parts))}


def _joeynmt_schedule(of: Conversion) -> None:
    of.used |= {"decrease-factor", "patience", "learning-rate-min"}  # of plateau
    schedule = of.take("scheduling", "none").lower()
    warmup = of.number("learning-rate-warmup", 4000)
    factor = of.number("learning-rate-factor", 1)
    rate = of.number("learning-rate", 0.005)
    if schedule == "noam":
        of.flags |= {"--warmup-steps": _short(warmup), "--learning-rate-scale": _short(factor)}
    elif schedule == "warmupinversesquareroot":
        _rate(of, rate, warmup, constant=False)
    else:
        _rate(of, rate, 0, constant=True)
        if schedule != "none":
            of.missing.append(f"scheduling {schedule}: --schedule constant is written")


def _joeynmt_model(of: Conversion) -> None:
    kind = of.take("encoder.type", "recurrent")
    if kind != "transformer":
        of.missing.append(f"encoder.type {kind}: the Transformer is written")
    for name, flag in (
        ("num-layers", "--num-layers"),
        ("hidden-size", "--d-model"),
        ("ff-size", "--d-ff"),
        ("num-heads", "--num-heads"),
    ):
        size = of.take(f"encoder.{name}")
        of.flags |= {flag: size} if size else {}
        other = of.take(f"decoder.{name}", size)
        if other != size and name == "num-layers":
            of.flags["--num-decoder-layers"] = other
        elif other != size:
            of.missing.append(f"decoder.{name} {other}: the encoder's is written")
    dropout = of.take("encoder.dropout", "0.1")
    for flag in ("--dropout", "--attention-dropout", "--feed-forward-dropout"):
        of.flags[flag] = dropout
    # Version 1, whose languages are no sections, is pre-norm.
    if of.take("encoder.layer-norm", "pre" if "data.src" in of.settings else "post") == "pre":
        of.flags["--norm"] = "pre"
    if "encoder.layer-norm" not in of.settings:
        of.differences.append("layer_norm is not given: JoeyNMT's default depends on its version")
    _embeddings(of, of.is_on("tied-embeddings"), of.is_on("tied-softmax"))


def _embeddings(of: Conversion, all_tied: bool, output_tied: bool) -> None:
    if not all_tied:
        of.differences.append("separate source embeddings: nmt prepare --separate-vocabularies")
    if not output_tied:
        of.missing.append("a matrix of its own for the decoder's output")


def _best_and_patience(of: Conversion, metric: str, patience: str) -> None:
    if metric.startswith(("bleu", "translation")):
        of.flags["--best-by"] = "bleu"
    elif metric == "chrf":
        of.flags["--best-by"] = "chrf"
    patience_there = of.number(patience, 0)
    if patience_there > 0:
        of.flags["--patience"] = _short(patience_there)


def _batches(of: Conversion, tokens: float, sentences: float) -> None:
    """Write the limits of an update. Where there is none of tokens, it must not bind."""
    if sentences:
        of.flags["--batch-sentences"] = _short(sentences)
        tokens = tokens or 1024 * sentences
    if tokens:
        of.flags["--batch-tokens"] = _short(tokens)


def _optimizer(of: Conversion, name: str) -> None:
    if name == "sgd":
        of.flags["--optimizer"] = "sgd"
    elif name != "adam":
        of.missing.append(f"optimizer {name}: adam is written")


def _betas(of: Conversion, betas: str, epsilon: str) -> None:
    values = [*_NUMBER.findall(betas), *_NUMBER.findall(epsilon)]
    if of.flags.get("--optimizer") != "sgd":
        of.flags |= dict(zip(("--beta1", "--beta2", "--epsilon"), values, strict=False))


def _rate(of: Conversion, rate: float, warmup: float, constant: bool) -> None:
    """Write the schedule; `rate` is the highest one."""
    of.flags["--warmup-steps"] = _short(max(warmup, 1))
    if constant:
        of.flags |= {"--schedule": "constant", "--learning-rate": _short(rate)}
    else:
        of.flags["--peak-learning-rate"] = _short(rate)


def _updates(of: Conversion, name: str) -> int | None:
    """Return one of Marian's periods in updates, such as 100Ku."""
    value = of.take(name, "0").split()[0]
    period = re.fullmatch(r"(\d+)([KMG]?)u?", value)
    if period is None:
        of.missing.append(f"{name} {value}: not in updates")
        return None
    return int(period[1]) * {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}[period[2]]


def _short(number: float) -> str:
    return str(int(number)) if number == int(number) else f"{number:.6g}"


def _prepare(of: Conversion) -> None:
    of.flags |= of.program["values"]
    of.flags |= dict.fromkeys(of.program["flags"])
    if not of.is_on("joined-dictionary"):
        of.flags["--separate-vocabularies"] = None
    for name in ("trainpref", "validpref", "testpref"):
        value = of.take(name)
        if value:
            of.flags[f"--{name.removesuffix('pref')}"] = value
    of.flags.setdefault("--out", of.take("destdir", "data-bin"))


def _translate(of: Conversion) -> None:
    paths = of.take("path", "RUN").split(":")
    of.flags |= dict.fromkeys(paths)
    if of.is_on("unnormalized"):
        of.used.add("lenpen")
        of.flags["--alpha"] = "0"
    else:
        of.flags["--alpha"] = of.take("lenpen")
        note = of.program["notes"]["lenpen"]
        of.differences.append(f"lenpen {of.settings['lenpen']}: {note}")
    if of.take("gen-subset", "") == "test":
        of.flags["--test"] = None
    of.used |= {"fp16"}


_TRAINING = {"fairseq": _train_fairseq, "Marian": _train_marian, "JoeyNMT": _train_joeynmt}
_CONVERTERS = {"train": _train, "prepare": _prepare, "translate": _translate}


def _from_table(of: Conversion) -> None:
    """Convert the settings that are left by the answers of the table."""
    answers = answers_of(of.program["command"], of.program["column"])
    for name, value in of.settings.items():
        answer = answers.get(name)
        written = f"{name} {value}".removesuffix(f" {_SWITCH}")
        note = of.program["notes"].get(name)
        if note and name in of.given and value not in ("false", "0", "0.0"):
            of.differences.append(f"{written}: {note}")
        if name in of.used or value == "false" or answer == "--device" or name == "precision":
            continue
        if answer is None:
            of.missing.append(f"{written}: not known")
        elif answer.startswith("no counterpart"):
            of.missing.append(written + answer.removeprefix("no counterpart"))
        elif re.fullmatch(r"--[a-z0-9-]+", answer) and answer not in _OTHER_VALUES:
            ours = None if answer in _SWITCHES else value
            if of.flags.setdefault(answer, ours) != ours:
                of.missing.append(f"{written}: {answer} is {of.flags[answer]}")
        elif not answer.startswith("nothing"):
            of.differences.append(f"{written}: {answer}")


def _text(of: Conversion) -> str:
    words = []
    for flag, value in of.flags.items():
        words.append(quoted(flag))
        if value is not None:
            words.append(quoted(value))
    defaults = [f"{name} {of.settings[name]}" for name in of.absent]
    lines = [" ".join(["nmt", of.program["command"], *words])]
    for title, remarks in (
        ("Differs in meaning:", of.differences),
        ("No counterpart:", of.missing),
        (f"Not given, defaults of {of.program['words'][0]}:", defaults),
    ):
        if remarks:
            lines.append(f"# {title}")
            lines += [f"#   {' '.join(remark.split())}" for remark in dict.fromkeys(remarks)]
    return "\n".join(lines)


def quoted(word: str) -> str:
    """Return a word for a shell. Variables such as $DATA stay variables, commands do not."""
    if "$" in word and _WITH_VARIABLES.fullmatch(word):
        return f'"{word}"'
    return shlex.quote(word)
