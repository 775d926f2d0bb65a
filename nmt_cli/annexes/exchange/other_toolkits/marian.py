"""Marian's commands and configurations as commands of nmt."""

from __future__ import annotations

import re

from nmt_cli.annexes.exchange.other_toolkits.settings import (
    NUMBER,
    SEPARATOR,
    UNCHANGED,
    Conversion,
)

# What a loss is divided by.
_ADAM = ("0.9", "0.999", "1e-8")  # what is not given of optimizer-params
_DIVISORS = {"ce-mean-words": "tokens", "ce-mean": "sentences", "ce-sum": "nothing"}


def prepare(of: Conversion) -> None:
    for part in ("train", "valid"):
        files = of.words(f"{part}-sets")
        if of.is_on("tsv"):
            of.flags |= {f"--{part}": ["-" if name == "stdin" else name for name in files]}
        else:
            of.text(part, [(files[0], files[-1])] if files else [])
        if len(files) > 2:
            of.missing.append(f"{part}-sets: a source beside {files[0]}")
    of.flags |= UNCHANGED | {"--max-words": of.take("max-length"), "--out": "DATA"}
    vocabularies = of.words("vocabs")
    size = of.take("dim-vocabs").rpartition(SEPARATOR)[2]
    if vocabularies and vocabularies[-1].endswith(".spm"):
        of.flags |= {"--subwords": "unigram", "--vocab-size": size.lstrip("0") or "32000"}
    else:
        of.split_text(size)
    if len({*vocabularies}) != 1 and not of.is_on("tied-embeddings-all"):
        of.flags["--separate-vocabularies"] = None


def train(of: Conversion) -> None:
    of.flags["DATA"] = None
    if not of.is_on("transformer-no-bias"):
        of.flags["--attention-biases"] = None
    of.precision(of.take("precision").partition(SEPARATOR)[0])
    _batches(of)
    _optimizer(of)
    _schedule(of)
    _periods(of)
    if "n" in of.take("transformer-preprocess"):
        of.flags["--norm"] = "pre"
    if not of.is_on("output-omit-bias"):
        of.flags["--output-bias"] = None
    of.output_matrix(any([of.is_on("tied-embeddings"), of.is_on("tied-embeddings-all")]))
    of.activation("transformer-ffn-activation")
    of.best_and_patience(of.words("valid-metrics"), "early-stopping")
    if of.take("model"):
        of.flags["--out"] = of.settings["model"].removesuffix(".npz")


def _batches(of: Conversion) -> None:
    devices = len(of.take("devices").split())
    factor = max(devices, 1) * of.number("optimizer-delay", 1)
    words = of.number("mini-batch-words")
    sentences = of.number("mini-batch", 64)
    if of.is_on("mini-batch-fit"):
        of.flags["--batch-tokens"] = "25000"
    else:
        of.batches(words * factor, 0 if words else sentences * factor)


def _optimizer(of: Conversion) -> None:
    given = of.take("optimizer-params").split()
    beta1, beta2, epsilon, *_ = [*given, *_ADAM[len(given) :]]
    decay = NUMBER.match(" ".join(given[3:]))
    weight_decay = float(decay[0]) if decay else 0
    of.optimizer(of.take("optimizer"), f"{beta1} {beta2}", epsilon, weight_decay)
    cost = of.take("cost-type")
    divisor = _DIVISORS.get(cost, cost)
    of.clipping("clip-norm", "tokens" if of.is_on("normalize-gradient") else divisor)
    of.average(of.number("exponential-smoothing"))


def _schedule(of: Conversion) -> None:
    highest = of.number("learn-rate")
    warmup = _updates(of, "lr-warmup") or 0
    decay = _updates(of, "lr-decay-inv-sqrt") or 0
    longest = max(warmup, decay)
    if decay:
        highest *= (decay / longest) ** 0.5
        if len(of.words("lr-decay-inv-sqrt")) > 1:
            of.differences.append("lr-decay-inv-sqrt: the decay has a start of its own there")
        elif decay != warmup:
            of.differences.append(
                f"lr-decay-inv-sqrt {decay}, lr-warmup {warmup}: rates are the same from update "
                f"{longest} on"
            )
    of.rate(highest, longest, constant=not decay)


def _periods(of: Conversion) -> None:
    epochs = re.fullmatch(r"([1-9]\d*)e", of.settings.get("after", ""))
    if epochs:
        of.take("after")
        of.flags["--max-epochs"] = epochs[1]
    for name, flag in of.program["periods"].items():
        number = None if name in of.used else _updates(of, name)
        if number:
            of.flags[flag] = str(number)


def _updates(of: Conversion, name: str) -> int | None:
    """Return one of Marian's periods in updates, such as 100Ku."""
    value = of.take(name).partition(SEPARATOR)[0]
    period = re.fullmatch(r"(\d*)([KMG]?)u?|0e", value, re.IGNORECASE)
    if period is None:
        of.missing.append(f"{name} {value}: not in updates")
        return None
    power = " KMG".index((period[2] or " ").upper())
    return int(period[1] or 0) * int(1000**power)


def translate(of: Conversion) -> None:
    decodes = "decode" in of.called
    models = of.words("models", "m") if decodes else []
    of.flags |= dict.fromkeys(models or ["RUN"])
    of.flags |= {"--beam": of.take("beam-size"), "--alpha": of.take("normalize")}
    sampling = of.words("output-sampling")
    if decodes and sampling:
        names = ["--temperature"] if sampling[0] == "full" else ["--top-k", "--temperature"]
        of.flags |= {"--sample": None, **dict(zip(names, sampling[1:], strict=False))}
    if decodes and of.is_on("n-best"):
        of.flags["--nbest"] = of.settings["beam-size"]
