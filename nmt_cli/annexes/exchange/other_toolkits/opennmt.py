"""Commands and configurations of OpenNMT-py and eole as commands of nmt."""

from __future__ import annotations

import re
from pathlib import Path

from nmt_cli.annexes.exchange.other_toolkits.settings import (
    NUMBER,
    UNCHANGED,
    Conversion,
    Settings,
    short,
)
from nmt_cli.files.text import count_lines

# Transforms that make subwords, and what does it here.
_SUBWORDS = {"sentencepiece": "unigram", "bpe": "bpe", "onmt_tokenize": "bpe"}
_POSITIVE = re.compile(r"0*[1-9]\d*")
_POSITIONS = {
    "sinusoidalinterleaved": "sinusoidal",
    "sinusoidalconcat": "sinusoidal",
    "learned": "learned",
}


def prepare(of: Conversion) -> None:
    corpora = _corpora(of)
    if not corpora:  # of version 1: the data is prepared
        return
    transforms = of.take("transforms").split()
    for corpus in corpora.values():
        transforms += corpus.get("transforms", "").split()
    valid = corpora.pop("valid", None)
    of.text("train", _weighted(of, corpora))
    of.text("valid", [_files(of, valid)] if valid else [])
    of.flags |= UNCHANGED | {"--out": of.take("save-data") or "DATA"}
    _subwords(of, transforms)
    if "filtertoolong" in transforms:
        of.flags["--max-words"] = of.take("src-seq-length") or "192"
        of.differences.append("filtertoolong: counts subwords there, words here")
    if of.number("n-sample") > 0:
        of.flags["--sample-pairs"] = of.settings["n-sample"]
    if not of.is_on("share-vocab"):
        of.flags["--separate-vocabularies"] = None


def _corpora(of: Conversion) -> dict[str, Settings]:
    """Return the settings of each corpus."""
    corpora: dict[str, Settings] = {}
    for name, value in of.settings.items():
        section, _, rest = name.partition(".")
        if section == "data" and rest:
            corpus, _, setting = rest.rpartition(".")
            corpora.setdefault(corpus, {})[setting] = value
    return corpora


def _files(of: Conversion, corpus: Settings) -> tuple[str, str]:
    target = corpus.get("path-tgt", "TARGET")
    tag = corpus.get("src-prefix", "")
    if tag.startswith("<"):
        target += f"@{tag}"
    elif tag or corpus.get("tgt-prefix"):
        of.missing.append("a prefix that is not a tag of the source such as <2de>")
    return corpus.get("path-src", "SOURCE"), target


def _weighted(of: Conversion, corpora: dict[str, Settings]) -> list[tuple[str, str]]:
    """Return the files of each corpus, with weights that give it the share that it has there.

    `weight` pairs of each corpus are drawn in turn there, whatever their sizes.
    """
    pairs = [_files(of, corpus) for corpus in corpora.values()]
    weights = [corpus.get("weight", "1") for corpus in corpora.values()]
    if len(pairs) < 2:
        return pairs
    sizes = [count_lines(Path(source)) for source, _ in pairs if Path(source).is_file()]
    if len(sizes) < len(pairs) or 0 in sizes or not all(map(_POSITIVE.fullmatch, weights)):
        of.differences.append(
            f"{', '.join(map(' '.join, zip(corpora, weights, strict=True)))}: pairs drawn in turn "
            "there, whatever the sizes; here FILE*X in --train-target repeats pairs, with X = "
            "weight / size of the corpus"
        )
        return pairs
    shares = [float(weight) / size for weight, size in zip(weights, sizes, strict=True)]
    largest = shares[sizes.index(max(sizes))]
    of.differences.append("an epoch has the largest corpus once, and the others by their weights")
    return [
        (source, f"{target}*{short(share / largest)}")
        for (source, target), share in zip(pairs, shares, strict=True)
    ]


def _subwords(of: Conversion, transforms: list[str]) -> None:
    size = of.take("src-vocab-size")
    kinds = [_SUBWORDS[name] for name in transforms if name in _SUBWORDS]
    if kinds:
        of.flags |= {"--subwords": kinds[0], "--vocab-size": size}
        of.differences.append("the subwords are learned anew here, of the text as it is")
    else:
        of.split_text(size)
    for name in transforms:
        if name not in (*_SUBWORDS, "filtertoolong", "prefix"):
            of.missing.append(f"transform {name}")


def train(of: Conversion) -> None:
    of.flags[of.take("data") or "DATA"] = None  # of version 1
    factor = of.number("world-size", 1) * of.number("accum-count", 1)
    size = of.number("batch-size") * factor
    in_tokens = of.take("batch-type") == "tokens"
    of.batches(size if in_tokens else 0, 0 if in_tokens else size)
    # The versions 1 and 2, whose width is rnn_size, differ.
    is_old = "rnn-size" in of.settings
    betas = f"{of.take('adam-beta1') or 0.9} {of.take('adam-beta2')}"
    epsilon = of.take("adam-eps") or ("1e-9" if is_old else "1e-8")
    of.optimizer(of.take("optim"), betas, epsilon, of.number("weight-decay"))
    of.clipping("max-grad-norm", of.take("normalization").replace("sents", "sentences"))
    _schedule(of)
    dropout = short(of.number("dropout"))
    of.flags |= {"--norm": "pre", "--dropout": dropout, "--feed-forward-dropout": dropout}
    of.flags["--attention-dropout"] = short(of.number("attention-dropout"))
    of.flags["--output-bias"] = None
    if is_old or of.is_on("add-qkvbias"):
        of.flags["--attention-biases"] = None
    _positions(of)
    _feed_forward(of, is_old)
    if not of.is_on("share-embeddings"):
        of.differences.append("separate source embeddings: nmt prepare --separate-vocabularies")
    of.output_matrix(of.is_on("share-decoder-embeddings"))
    of.differences.append("the encoder does not see the end of the source there")
    of.precision(of.take("compute-dtype", "model-dtype"))
    of.average(of.number("average-decay"))
    of.best_and_patience([], "early-stopping")


def _schedule(of: Conversion) -> None:
    method = of.take("decay-method")
    factor = of.number("learning-rate")
    warmup = of.number("warmup-steps", 4000)
    if method == "noam":
        of.flags |= {"--warmup-steps": short(warmup), "--learning-rate-scale": short(factor)}
    elif method == "rsqrt":
        of.rate(factor * max(1, warmup) ** -0.5, warmup, constant=False)
        of.differences.append("decay_method rsqrt: the rate is constant in the warm-up there")
    else:
        of.rate(factor, 0, constant=True)
        start = of.number("start-decay-steps", 50000)
        steps = NUMBER.match(of.settings["train-steps"])
        if method != "none":
            of.missing.append(f"decay_method {method}: --schedule constant is written")
        elif steps and float(steps[0]) > start:
            of.missing.append(f"rates fall by steps from update {short(start)} on there")


def _feed_forward(of: Conversion, is_old: bool) -> None:
    names = ("pos-ffn-activation-fn", "mlp-activation-fn")
    kind = of.take(*names)
    of.activation(*names)
    has_biases = is_old or of.is_on("add-ffnbias")
    # OpenNMT-py's silu is eole's gated-silu.
    if kind.startswith("gated-") or (kind == "silu" and of.called.startswith("onmt")):
        of.flags["--gated-feed-forward"] = None
        if has_biases:
            of.missing.append("biases of gated feed-forward layers")
    elif not has_biases:
        of.differences.append("feed-forward layers have no biases there without add_ffnbias")


def _positions(of: Conversion) -> None:
    kind = of.take("position-encoding-type").lower()
    relative = of.number("max-relative-positions")
    if kind == "relative":
        relative = of.number("n-positions")
    of.flags["--positions"] = "none"
    if of.is_on("position-encoding"):
        of.flags["--positions"] = _POSITIONS.get(kind or "sinusoidalconcat", "none")
    if relative > 0:
        of.flags |= {"--attention": "relative", "--clipping-distance": short(relative)}
    elif kind == "rotary" or relative == -1:
        of.flags["--attention"] = "rotary"
    elif kind == "alibi" or relative == -2:
        of.flags["--attention"] = "alibi"


def translate(of: Conversion) -> None:
    of.flags |= dict.fromkeys(of.words("model", "models", "model-path") or ["RUN"])
    of.flags["--alpha"] = of.take("alpha")
    if of.take("length-penalty") == "none":
        of.flags["--alpha"] = "0"
