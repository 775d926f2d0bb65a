"""Flags of other toolkits, and the flags here in their place, for messages about unknown flags."""

from __future__ import annotations

_LANGUAGES = "`nmt prepare --source-lang L --target-lang L`; prepared data and checkpoints contain the languages"
_DEVICE = {"--device": "cpu use-cpu gpu gpuid device-id device-ids"}

_TABLES = {
    "prepare": {
        "--source-lang": "src-lang source-language s src",
        "--target-lang": "tgt-lang trg-lang target-language t tgt",
        "--train PREFIX": "trainpref train-src",
        "--valid PREFIX": "validpref valid-src",
        "--test PREFIX": "testpref",
        "--out": "destdir save-data output",
        "--vocab-size": "nwordssrc nwordstgt src-vocab-size tgt-vocab-size num-words",
        "--subwords-from": "srcdict tgtdict src-vocab tgt-vocab",
        "--separate-vocabularies; by default there is one vocabulary": "joined-dictionary share-vocab shared-vocab",
    },
    "train": {
        "--learning-rate-scale (the peak x sqrt(d_model x warmup steps)), or --schedule constant --learning-rate": "lr "
        "initial-learning-rate learn-rate",
        "--warmup-steps": "warmup-updates learning-rate-warmup lr-warmup",
        "--clip-norm": "max-grad-norm gradient-clipping-threshold",
        "--patience": "early-stopping max-num-checkpoint-not-improved",
        "--schedule": "lr-scheduler decay-method",
        # One answer for both: there, the batch of a device is accumulated; here, an update is cut.
        "--batch-tokens, the tokens of a whole update: max-tokens x update-freq x GPUs": "max-tokens batch-size "
        "max-sentences batch-type update-freq accum-count update-interval mini-batch mini-batch-words optimizer-delay",
        "`torchrun --nproc-per-node N -m nmt_cli train`, a process for each GPU": "world-size gpu-ranks "
        "distributed-world-size",
        "--max-steps": "max-update max-updates train-steps",
        "--max-epochs": "max-epoch epochs max-num-epochs",
        "--max-steps or --max-epochs": "after",
        "--preset": "arch a",
        "--out": "save-dir save-model output",
        "--resume": "restore-file train-from",
        "--save-every": "save-interval save-interval-updates save-checkpoint-steps checkpoint-interval save-freq",
        "--precision bfloat16": "fp16 bf16 amp model-dtype",
        "--ema-decay": "average-decay exponential-smoothing",
        "--bpe-dropout, or --unigram-sampling": "src-subword-alpha tgt-subword-alpha",
        "--tensorboard": "tensorboard-logdir tensorboard-log-dir",
        "--num-layers": "encoder-layers enc-layers layers enc-depth",
        "--d-model": "encoder-embed-dim hidden-size rnn-size word-vec-size transformer-model-size dim-emb",
        "--d-ff": "encoder-ffn-embed-dim transformer-ff transformer-feed-forward-num-hidden transformer-dim-ffn",
        "--num-heads": "encoder-attention-heads heads transformer-attention-heads transformer-heads",
        "--norm pre": "encoder-normalize-before decoder-normalize-before transformer-preprocess",
        "`nmt prepare --task`": "task",
        _LANGUAGES: "source-lang target-lang src-lang tgt-lang src tgt s t",
        **_DEVICE,
    },
    "translate": {
        "--beam": "beam-size num-beams b",
        "--beam 1": "greedy",
        "--alpha": "lenpen length-penalty length-penalty-alpha normalize",
        "--nbest": "n-best nbest-size",
        "`nmt attention`": "attention",
        "--alignments FILE": "print-alignment report-align alignment",
        "CHECKPOINT, without a flag": "path model models m",
        "--input": "src source-file",
        "--output": "out output-file results-path",
        "--dtype": "fp16 bf16 amp precision compute-type",
        "--workers": "threads cpu-threads num-workers",
        "--batch-tokens": "max-tokens batch-size",
        _LANGUAGES: "source-lang target-lang src-lang tgt-lang s t",
        **_DEVICE,
    },
    "score": {
        "--ref": "r reference references t",
        "--metric, such as sacrebleu-intl": "m metrics tok tokenize",
    },
}

HINTS = {
    command: {name: ours for ours, names in table.items() for name in names.split()}
    for command, table in _TABLES.items()
}
"""By command, and by the flag without its leading hyphens: what to use instead."""
