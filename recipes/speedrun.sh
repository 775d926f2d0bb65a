#!/usr/bin/env bash
# Multi30k, English to German, to a BLEU in the fewest minutes of two CPU cores: the current record of benchmarks/speedrun.md.
#
#   recipes/speedrun.sh DIR [--seed N] [--out DIR] [-- FLAGS OF nmt train]
#
# Ends with the BLEU of test_2016_flickr and the minutes of nmt train. Do not use the machine for anything else. A run
# that was stopped does not count, so it is not continued.
#
#   DIR             has train, val and test_2016_flickr, each .en and .de, plain or .gz
#   --seed N        default 1
#   --out DIR       directory for all results; default runs/speedrun-N
#
# Environment: AVERAGED (default 5), the last checkpoints of which the mean is scored.

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

seed=1
read_flags "seed out ..." "$@"
((${#words[@]} == 1)) || usage_error "give the directory of the Multi30k files"
text="${words[0]}" out="${out:-$checkout/runs/speedrun-$seed}"
[[ ! -e "$out/run" ]] || usage_error "$out/run exists: the clock counts a whole training, give another --out"
export PROCESSES="${PROCESSES:-2}" OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
train=("${captions[@]}" --num-layers 3 --dropout 0.1 --criterion sampled_cross_entropy --label-smoothing 0.04
  --warmup-steps 80 --learning-rate-scale 0.7 --decay-steps 1300 --max-steps 1300 --save-every 50 --validate-every 1000)

[[ -e "$out/data" ]] || nmt prepare --source-lang en --target-lang de --train "$text/train" --valid "$text/val" \
  --test "$text/test_2016_flickr" --normalization none --moses --lowercase --vocab-size 10000 --out "$out/data"
made_from data "$text"
began="$(date +%s)"
"$recipes/train.sh" "$out/data" --out "$out/run" "${train[@]}" --seed "$seed" "${train_flags[@]}"
seconds="$(($(date +%s) - began))"
nmt average "$out/run" --last "${AVERAGED:-5}" --out "$out/averaged"
nmt translate "$out/averaged" --input "$out/data/test.source.txt" --beam 12 --alpha 2 --output "$out/hypotheses"
nmt score "$out/hypotheses" --ref "$out/data/test.target.txt" --target-lang de --metric multi30k
printf 'minutes of nmt train: %d.%d\n' "$((seconds / 60))" "$((seconds % 60 / 6))"
printf 'seconds of nmt train: %d\n' "$seconds"
