"""JoeyNMT's configurations as commands of nmt."""

from __future__ import annotations

from nmt_cli.annexes.exchange.other_toolkits.settings import UNCHANGED, Conversion, short


def prepare(of: Conversion) -> None:
    source = of.take("src.lang", "src") or "src"
    target = of.take("trg.lang", "trg") or "trg"
    of.flags |= {"--source-lang": source, "--target-lang": target}
    for part, name in (("train", "train"), ("valid", "dev"), ("test", "test")):
        prefix = of.take(name)
        if prefix:
            of.flags[f"--{part}"] = prefix
    of.flags |= UNCHANGED | {"--out": "DATA"}
    of.flags["--max-words"] = of.take("max-sent-length", "src.max-length").lstrip("-") or "0"
    _subwords(of)
    if "true" in (of.take("lowercase"), of.take("src.lowercase")):
        of.flags["--lowercase"] = None
    if of.take("src.pretokenizer") == "moses":
        of.flags["--moses"] = None
    if not of.is_on("tied-embeddings"):
        of.flags["--separate-vocabularies"] = None


def _subwords(of: Conversion) -> None:
    level = of.take("level", "src.level")
    limit = of.take("voc-limit", "src.voc-limit", "src-voc-limit", "trg-voc-limit")
    if level == "char":
        of.flags["--subwords"] = "character"
    elif level == "bpe" and "src.lang" in of.settings:  # version 1 reads text that is split
        of.flags["--subwords"] = of.take("src.model-type") or "bpe"
        of.flags["--vocab-size"] = limit or "32000"
        of.differences.append("the subwords are learned anew here")
    else:
        of.split_text(limit)


def train(of: Conversion) -> None:
    of.flags |= dict.fromkeys(["DATA", "--attention-biases"])
    of.precision()
    of.optimizer(of.take("optimizer").lower(), of.take("adam-betas"), "1e-8")
    batch = of.number("batch-size", 64) * of.number("batch-multiplier", 1)
    in_tokens = of.take("batch-type") == "token"
    of.batches(batch if in_tokens else 0, 0 if in_tokens else batch)
    _schedule(of)
    if not of.is_on("encoder.embeddings.scale"):
        of.missing.append("embeddings that are not multiplied by sqrt(d_model)")
    of.output_matrix(of.is_on("tied-softmax"))
    of.activation("encoder.activation", "decoder.activation")
    dropout = of.take("encoder.embeddings.dropout")
    if dropout not in ("", of.settings["encoder.dropout"]):
        of.differences.append(
            f"encoder.embeddings.dropout {dropout}: embeddings have --dropout here"
        )
    of.clipping("clip-grad-norm", of.take("normalization").replace("batch", "sentences"))
    metrics = of.words("early-stopping-metric")
    if metrics == ["eval_metric"]:  # of version 1
        metrics = of.words("eval-metric")
    of.best_and_patience(metrics, "")


def _schedule(of: Conversion) -> None:
    schedule = of.take("scheduling").lower()
    warmup = of.number("learning-rate-warmup", 4000)
    factor = of.number("learning-rate-factor", 1)
    highest = of.number("learning-rate", 0.005)
    if schedule == "noam":
        of.flags |= {"--warmup-steps": short(warmup), "--learning-rate-scale": short(factor)}
    elif schedule == "warmupinversesquareroot":
        of.rate(of.number("learning-rate-peak", highest), warmup, constant=False)
    else:
        of.rate(highest, 0, constant=True)
        if schedule:
            of.missing.append(f"scheduling {schedule}: --schedule constant is written")


def translate(of: Conversion) -> None:
    alpha = of.take("testing.beam-alpha", "testing.alpha") or "0"
    of.flags |= {"RUN": None, "--alpha": "0" if alpha.startswith("-") else alpha}
    if of.take("test"):
        of.flags["--test"] = None
