#!/usr/bin/env bash
# A model for your own language pair, from text to BLEU. Copy this file, change the settings, run it with bash.
# After a stop, the same command continues the training. Other data or settings need another `out`.
set -euo pipefail

source=en
target=de
train=corpus/train             # corpus/train.en and corpus/train.de: a sentence a line, plain or .gz
valid=corpus/valid             # a few thousand pairs that are not in the training text
test=corpus/test.en            # what to translate, plain text, and its reference
reference=corpus/test.de
vocabulary=32000               # subwords; fewer for a small corpus, see docs/own-data.md
preset=transformer_base        # all of them: nmt train --list-presets
steps=100000
save_every=1500                # steps between checkpoints
last=5                         # number of checkpoints to average
out=runs/$source-$target       # directory for all results

if (( (steps + save_every - 1) / save_every < last )); then
  echo "$steps steps, saved every $save_every, give fewer than $last checkpoints: lower save_every or last" >&2
  exit 2
fi
[[ -e $out/data ]] || nmt prepare --source-lang "$source" --target-lang "$target" \
  --train "$train" --valid "$valid" --vocab-size "$vocabulary" --out "$out/data"
# On a machine with 8 GPUs: torchrun --standalone --nproc-per-node 8 -m nmt_cli train ...
nmt train "$out/data" --preset "$preset" --max-steps "$steps" --save-every "$save_every" --out "$out/run" &
trap 'kill "$!"; wait "$!"' INT TERM # a stopped training saves a checkpoint
wait "$!"
trap - INT TERM
nmt average "$out/run" --last "$last" --out "$out/averaged" --overwrite
nmt translate "$out/averaged" --input "$test" --output "$out/test.$target"
nmt score "$out/test.$target" --ref "$reference" --target-lang "$target"
