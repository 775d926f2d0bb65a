"""Marian's commands and configurations as commands of nmt."""

from __future__ import annotations

import re

from nmt_cli.annexes.exchange.other_toolkits.settings import NUMBER, UNCHANGED, Conversion

# What a loss is divided by.
_ADAM = ("0.9", "0.999", "1e-8")  # what is not given of optimizer-params
_DIVISORS = {"ce-mean-words": "tokens", "ce-mean": "sentences", "ce-sum": "nothing"}


def prepare(of: Conversion) -> None:
    for part in ("train", "valid"):
        files = of.take(f"{part}-sets").split()
        of.text(part, [(files[0], files[-1])] if files else [])
    of.flags |= UNCHANGED | {"--max-words": of.take("max-length"), "--out": "DATA"}
    vocabularies = of.take("vocabs").split()
    if vocabularies and vocabularies[-1].endswith(".spm"):
        size = of.take("dim-vocabs").rpartition(" ")[2]
        of.flags |= {"--subwords": "unigram", "--vocab-size": size.lstrip("0") or "32000"}
    else:
        of.split_text()
    if len({*vocabularies}) != 1 and not of.is_on("tied-embeddings-all"):
        of.flags["--separate-vocabularies"] = None


def train(of: Conversion) -> None:
    of.flags["DATA"] = None
    if not of.is_on("transformer-no-bias"):
        of.flags["--attention-biases"] = None
    of.precision()
    _batches(of)
    _optimizer(of)
    _schedule(of)
    _periods(of)
    if "n" in of.take("transformer-preprocess"):
        of.flags["--norm"] = "pre"
    if not of.is_on("output-omit-bias"):
        of.flags["--output-bias"] = None
    of.output_matrix(any([of.is_on("tied-embeddings"), of.is_on("tied-embeddings-all")]))
    of.best_and_patience(of.take("valid-metrics").partition(" ")[0], "early-stopping")


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
        if " " in of.settings["lr-decay-inv-sqrt"]:
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
    value = of.take(name).partition(" ")[0]
    period = re.fullmatch(r"(\d*)([KMG]?)u?|0e", value, re.IGNORECASE)
    if period is None:
        of.missing.append(f"{name} {value}: not in updates")
        return None
    power = " KMG".index((period[2] or " ").upper())
    return int(period[1] or 0) * int(1000**power)


def translate(of: Conversion) -> None:
    models = (of.take("models", "m") if "decoder" in of.program["words"][0] else "") or "RUN"
    of.flags |= dict.fromkeys(models.split())
    of.flags |= {"--beam": of.take("beam-size"), "--alpha": of.take("normalize")}
