#!/usr/bin/env bash
# Multi30k, captions of images, English to German or French: from its files to its published score, on a CPU.
#
#   recipes/multi30k.sh DIR [--target de] [--out DIR] [FLAG ...] [-- FLAGS OF nmt train]
#
# A Transformer of about 2.6 million parameters: 4 + 4 layers, d_model 128, d_ff 256, 4 heads, dropout 0.3; a joint
# vocabulary of about 10,000 BPE pieces over lower-cased Moses tokens. Takes about an hour on a CPU. Ends with a
# table of expected and actual figures. Run it again to continue after a stop.
#
#   DIR             has train, val and test_2016_flickr, each .en and .de (or .fr), plain or .gz
#   --target LANG   de or fr
#   --out DIR       directory for all results; default runs/multi30k-en-TARGET

source "$(dirname "${BASH_SOURCE[0]}")/stages.sh"

text="" target=de
while (($#)); do
  case "$1" in
    --target)
      (($# > 1)) || usage_error "$1 needs a value"
      target="$2" stage_flag_words=2
      ;;
    -*) stage_flag "$@" ;;
    *)
      [[ -z "$text" ]] || usage_error "give one directory, not $text and $1"
      text="$(realpath -m -- "$1")" stage_flag_words=1
      ;;
  esac
  shift "$stage_flag_words"
done
[[ -n "$text" ]] || usage_error "give the directory of the Multi30k files"
[[ "$target" == de || "$target" == fr ]] || usage_error "--target is de or fr, not $target"
declare -A files=()
for name in {train,val,test_2016_flickr}.{en,"$target"}; do
  files[$name]="$text/$name"
  [[ -f "${files[$name]}" ]] || files[$name]+=.gz
  [[ -f "${files[$name]}" ]] || die "$text/$name: there is no such file, nor $name.gz"
done
stage_inputs=([prepare]="${files[*]@Q}" [translate]="${files[test_2016_flickr.en]@Q}"
  [score]="${files[test_2016_flickr.$target]@Q}")
begin_stages "$checkout/runs/multi30k-en-$target"
export PROCESSES="${PROCESSES:-1}"

stage prepare "text to ids" "" data nmt prepare --source-lang en --target-lang "$target" --train "$text/train" \
  --valid "$text/val" --test "$text/test_2016_flickr" --normalization none --moses --lowercase \
  --subwords bpe --vocab-size 10000 --out data
train_stage train run "train" --preset multi30k --seed 1
stage average "the mean of the last 10 checkpoints" train averaged nmt average run --last 10 --out averaged
stage translate "test_2016_flickr" average hypotheses \
  nmt translate averaged --input "${files[test_2016_flickr.en]}" --output hypotheses --beam 4 --alpha 0.6
stage score "against the references" translate score.json \
  to_file score.json nmt score hypotheses --ref "${files[test_2016_flickr.$target]}" --target-lang "$target" \
  --metric multi30k --metric bleu --metric bleu-lc --metric chrf --json
run_stages
report multi30k en "$target"
