#!/usr/bin/env bash
# Multi30k, captions of images, English to German or French: from its files to its published score, on a CPU.
#
#   recipes/multi30k.sh DIR [--target de] [--out DIR] [-- FLAGS OF nmt train]
#
# A Transformer of about 2.6 million parameters: 4 + 4 layers, d_model 128, d_ff 256, 4 heads, dropout 0.3; a joint
# vocabulary of about 10,000 BPE pieces over lower-cased Moses tokens. Takes about an hour on a CPU. Ends with a
# table of expected and actual figures. Run it again to continue after a stop.
#
#   DIR             has train, val and test_2016_flickr, each .en and .de (or .fr), plain or .gz
#   --target LANG   de or fr
#   --out DIR       directory for all results; default runs/multi30k-en-TARGET

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

target=de
read_flags "target out ..." "$@"
((${#words[@]} == 1)) || usage_error "give the directory of the Multi30k files"
text="${words[0]}"
[[ "$target" == de || "$target" == fr ]] || usage_error "--target is de or fr, not $target"
out="${out:-$checkout/runs/multi30k-en-$target}"
export PROCESSES="${PROCESSES:-1}"
train=(--preset multi30k --seed 1 "${train_flags[@]}")

[[ -e "$out/data" ]] || nmt prepare --source-lang en --target-lang "$target" --train "$text/train" --valid "$text/val" \
  --test "$text/test_2016_flickr" --normalization none --moses --lowercase --subwords bpe --vocab-size 10000 \
  --out "$out/data"
made_from data "$text" "$target"
"$recipes/train.sh" "$out/data" --out "$out/run" "${train[@]}"
[[ "$out/averaged" -nt "$out/run/checkpoints" ]] ||
  nmt average "$out/run" --last 10 --out "$out/averaged" --overwrite
[[ "$out/hypotheses" -nt "$out/averaged" ]] || to_file "$out/hypotheses" \
  nmt translate "$out/averaged" --input "$out/data/test.source.txt" --beam 4 --alpha 0.6
[[ "$out/score.json" -nt "$out/hypotheses" ]] || to_file "$out/score.json" nmt score "$out/hypotheses" \
  --ref "$out/data/test.target.txt" --target-lang "$target" --metric multi30k --metric bleu --metric bleu-lc \
  --metric chrf --json
script report.py multi30k en "$target" "$out"
