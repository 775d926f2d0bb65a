"""Flags of other toolkits, and the flags here in their place, for messages about unknown flags."""

from __future__ import annotations

_LANGUAGES = "`nmt prepare --source-lang L --target-lang L`: prepared data and checkpoints contain the languages"

_TABLES = {
    "prepare": {
        "--task": "",
        "--source-lang": "src-lang source-language s src",
        "--target-lang": "tgt-lang trg-lang target-language t tgt",
        "--train PREFIX": "trainpref train-src train-source",
        "--valid PREFIX": "validpref valid-src validation-source",
        "--test PREFIX": "testpref",
        "--out": "destdir save-data output save-dir",
        "--subwords": "bpe subword-type tokenizer subword-model",
        "--vocab-size": "nwordssrc nwordstgt src-vocab-size tgt-vocab-size num-words bpe-size",
        "--subwords-from": "srcdict tgtdict src-vocab tgt-vocab source-vocab target-vocab bpe-codes",
        "--lowercase": "lower-case lc",
        "--separate-vocabularies for two vocabularies; one shared vocabulary is the default": "joined-dictionary "
        "share-vocab shared-vocab",
    },
    "train": {
        "--learning-rate-scale, which is the peak rate x sqrt(d_model x warmup steps), or --schedule constant "
        "--learning-rate": "lr initial-learning-rate",
        "--warmup-steps": "warmup-updates warmup-init-lr learning-rate-warmup",
        "--schedule": "lr-scheduler decay-method learning-rate-scheduler-type",
        # One answer for both: there, the batch of a device is accumulated; here, an update is cut.
        "--batch-tokens, the tokens of a whole update: max-tokens x update-freq x GPUs (--micro-batches only cuts an "
        "update into parts)": "max-tokens batch-size max-sentences batch-type update-freq accum-count update-interval "
        "gradient-accumulation-steps per-device-train-batch-size",
        "`torchrun --nproc-per-node N -m nmt_cli train`, a process for each GPU": "world-size gpu-ranks num-gpus "
        "n-gpus distributed-world-size nproc-per-node num-processes local-rank",
        "--max-steps": "max-update max-updates train-steps",
        "--max-epochs": "max-epoch epochs num-epochs max-num-epochs",
        "--preset": "arch a",
        "--out RUN": "save-dir save-model output output-dir",
        "--resume RUN": "restore-file train-from load-checkpoint-from params",
        "--save-every": "save-interval save-interval-updates save-checkpoint-steps checkpoint-interval save-steps",
        "--keep-last": "keep-interval-updates keep-last-epochs keep-checkpoint keep-last-params",
        "--validate-every": "validate-interval validate-interval-updates valid-steps eval-steps",
        "--validation-bleu": "eval-bleu decode-and-evaluate",
        "--best-by": "best-checkpoint-metric early-stopping-criteria optimized-metric",
        "--init-from": "finetune-from-model",
        "--freeze": "freeze-encoder freeze-decoder freeze-word-vecs-enc fixed-param-names fixed-param-strategy",
        "--patience": "early-stopping max-num-checkpoint-not-improved",
        "RUN/metrics.jsonl, which has the figures of every log line": "tensorboard tensorboard-logdir wandb-project "
        "report-to",
        "--log-every": "log-interval report-every logging-steps",
        "--clip-norm": "max-grad-norm gradient-clipping-threshold",
        "--precision bfloat16": "fp16 bf16 amp dtype model-dtype",
        "--device": "cpu use-cpu gpu gpuid device-id device-ids",
        "--label-smoothing": "label-smoothing-epsilon",
        "--num-layers": "encoder-layers enc-layers layers",
        "--num-decoder-layers": "decoder-layers dec-layers",
        "--d-model": "encoder-embed-dim decoder-embed-dim hidden-size rnn-size word-vec-size transformer-model-size",
        "--d-ff": "encoder-ffn-embed-dim decoder-ffn-embed-dim transformer-ff transformer-feed-forward-num-hidden",
        "--num-heads": "encoder-attention-heads decoder-attention-heads heads transformer-attention-heads",
        "--feed-forward-dropout": "activation-dropout relu-dropout transformer-dropout-act",
        "--activation": "activation-fn pos-ffn-activation-fn transformer-activation-type",
        "--norm pre": "encoder-normalize-before decoder-normalize-before",
        "--positions learned": "encoder-learned-pos decoder-learned-pos",
        "--attention relative --clipping-distance": "max-relative-positions",
        "--import MODULE": "user-dir",
        "--beta1 and --beta2": "adam-betas adam-beta1 adam-beta2 optimizer-betas",
        "--epsilon": "adam-eps optimizer-eps",
        _LANGUAGES: "source-lang target-lang src-lang tgt-lang src tgt s t",
        "`nmt prepare`: embeddings are shared unless it is given --separate-vocabularies": "share-all-embeddings "
        "share-decoder-input-output-embed share-embeddings share-decoder-embeddings weight-tying-type",
    },
    "average": {
        "--out": "output",
        "--last": "n num num-epoch-checkpoints num-update-checkpoints",
        "RUN or CHECKPOINT, without a flag": "inputs models m model",
    },
    "translate": {
        "--beam": "beam-size num-beams b",
        "--beam 1": "greedy",
        "--alpha": "lenpen length-penalty length-penalty-alpha",
        "--nbest": "n-best nbest-size",
        "--max-length-offset": "max-len-a max-len-b",
        "--max-length": "max-output-length",
        "--no-repeat-ngram": "no-repeat-ngram-size block-ngram-repeat",
        "--sample": "sampling random-sampling",
        "--top-k": "sampling-topk random-sampling-topk",
        "--top-p": "sampling-topp random-sampling-topp",
        "--temperature": "random-sampling-temp softmax-temperature",
        "`nmt attention`": "attention print-alignment report-align return-attention",
        "--replace-unknown, and --dictionary FILE for a dictionary": "replace-unk phrase-table",
        "--prefix FILE": "prefix-size tgt-prefix tgt-file-prefix target-prefix",
        "--min-length": "min-len",
        "CHECKPOINT, without a flag": "path model models m checkpoint",
        "--input": "src source-file",
        "--output": "out output-file results-path",
        "--format json": "output-type",
        "`nmt score-targets`": "score-reference score-target",
        "--shard I/N": "shard-id num-shards",
        "the text as it is: its words are whole": "remove-bpe post-process",
        "--dtype": "fp16 bf16 amp precision compute-type quantization",
        "--workers": "threads cpu-threads inter-threads intra-threads num-workers",
        "--batch-tokens": "max-tokens batch-size max-sentences",
        "--read-ahead": "buffer-size chunk-size shard-size",
        "--device": "cpu use-cpu gpu gpuid device-id device-ids",
        _LANGUAGES: "source-lang target-lang src-lang tgt-lang s t",
        "`nmt score`": "scoring sacrebleu ref reference tgt",
    },
    "score": {
        "HYPOTHESES, without a flag": "sys s hypothesis hypotheses input i",
        "--ref FILE": "r reference references t test-set",
        "--metric": "m metrics sentence-level",
        "--metric sacrebleu-intl or sacrebleu-char; 13a is the default": "tok tokenize",
        "--metric sacrebleu-13a-lc": "lc lowercase",
        "--json": "b score-only",
        "--target-lang": "l language-pair lang tgt-lang",
        "--test": "paired-bs paired-ar significance",
    },
}

NOT_IMPLEMENTED = frozenset(
    "bpe-dropout constraints coverage-penalty decoder-layerdrop diverse-beam-groups diverse-beam-strength ema-decay "
    "encoder-embed-path encoder-layerdrop layerdrop min-lr pre-word-vecs-dec pre-word-vecs-enc tf32 unkpen "
    "weight-decay".split()
)
"""Flags without a counterpart in any command."""

FOREIGN_FLAGS = {
    command: {name: ours for ours, names in table.items() for name in names.split()}
    for command, table in _TABLES.items()
}
"""By command, and by the flag without its leading hyphens: what to use instead."""


def instead_of(name: str, command: str) -> str:
    """Return what to use instead of the flag `name` of another toolkit or of another command, or ""."""
    if name in NOT_IMPLEMENTED:
        return "it is not implemented"
    if name in FOREIGN_FLAGS.get(command, {}):
        return f"use {FOREIGN_FLAGS[command][name]}"
    for other, table in _TABLES.items() if len(name) > 1 else ():
        for ours, names in table.items():
            if ours.startswith("-") and name in [ours.split()[0].lstrip("-"), *names.split()]:
                return f"it belongs to nmt {other}: {ours}"
    return ""
