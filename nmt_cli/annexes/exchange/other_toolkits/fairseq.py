"""fairseq's commands as commands of nmt."""

from __future__ import annotations

from nmt_cli.annexes.exchange.other_toolkits.settings import UNCHANGED, Conversion


def prepare(of: Conversion) -> None:
    of.flags |= UNCHANGED
    of.split_text(of.take("nwordstgt", "nwordssrc"))
    if not of.is_on("joined-dictionary"):
        of.flags["--separate-vocabularies"] = None
    for part in ("train", "valid", "test"):
        value = of.take(f"{part}pref")
        if value:
            of.flags[f"--{part}"] = value.split(",")
    of.flags["--out"] = of.take("destdir") or "data-bin"


def train(of: Conversion) -> None:
    of.flags |= dict.fromkeys([*(of.positional[:1] or ["DATA"]), "--attention-biases"])
    of.precision()
    if of.take("task") not in ("", "translation"):
        of.missing.append(f"task {of.settings['task']}")
    _batches(of)
    adam = (of.take("adam-betas"), of.take("adam-eps"), of.number("weight-decay"))
    of.optimizer(of.take("optimizer"), *adam)
    _schedule(of)
    if any([of.is_on("encoder-normalize-before"), of.is_on("decoder-normalize-before")]):
        of.flags["--norm"] = "pre"
    all_tied = of.is_on("share-all-embeddings")
    if not all_tied:
        of.differences.append("separate source embeddings: nmt prepare --separate-vocabularies")
    of.output_matrix(any([of.is_on("share-decoder-input-output-embed"), all_tied]))
    criterion = of.take("criterion")
    if criterion == "cross_entropy":
        of.settings["label-smoothing"] = "0"
    elif criterion != "label_smoothed_cross_entropy":
        of.missing.append(f"criterion {criterion}")
    of.activation("activation-fn")
    if of.is_on("store-ema"):
        of.settings.setdefault("ema-decay", "0.9999")
    of.best_and_patience(of.words("best-checkpoint-metric"), "patience")


def _batches(of: Conversion) -> None:
    devices = of.number("distributed-world-size", of.devices or 1)
    if of.devices is None and "distributed-world-size" not in of.given:
        of.differences.append("the number of GPUs is not known: an update is of one GPU's")
    factor = devices * of.number("update-freq", 1)
    sentences = of.number("batch-size") or of.number("max-sentences")
    of.batches(of.number("max-tokens") * factor, sentences * factor)


def _schedule(of: Conversion) -> None:
    schedule = of.take("lr-scheduler")
    warmup = of.number("warmup-updates", 4000 if schedule == "inverse_sqrt" else 0)
    decays = schedule in ("inverse_sqrt", "polynomial_decay")
    of.rate(of.number("lr"), warmup, constant=not decays)
    if schedule == "polynomial_decay":
        of.flags["--schedule"] = "linear_decay"
        updates = of.take("total-num-update") or of.settings.get("max-update")
        of.flags["--decay-steps"] = updates or "UPDATES"
    elif not decays and schedule != "fixed":
        of.missing.append(f"lr-scheduler {schedule}: --schedule constant is written")


def translate(of: Conversion) -> None:
    of.flags |= dict.fromkeys((of.take("path") or "RUN").split(":"))
    if of.is_on("unnormalized"):
        of.settings["lenpen"] = "0"
    of.flags["--alpha"] = of.take("lenpen")
    if of.take("gen-subset") in ("", "test") and "interactive" not in of.called:
        of.flags["--test"] = None
