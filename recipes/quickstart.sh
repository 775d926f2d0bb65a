#!/usr/bin/env bash
# Train a model that translates the names of numbers, and score it: prepare, train, average, translate, score.
#
#   recipes/quickstart.sh [--source en] [--target de] [--out DIR] [FLAG ...] [-- FLAGS OF nmt train]
#
# Takes a few minutes on two CPU cores. The text is generated, and the scored numbers do not occur in training. Run it
# again to continue after a stop.
#
#   --source, --target   two languages of the package num2words (pip install num2words), such as de, en, fr
#   --out DIR            directory for all results; default runs/quickstart-SOURCE-TARGET

source "$(dirname "${BASH_SOURCE[0]}")/stages.sh"

source=en target=de
while (($#)); do
  case "$1" in
    --source | --target) (($# > 1)) || usage_error "$1 needs a value" ;;&
    --source) source="$2" stage_flag_words=2 ;;
    --target) target="$2" stage_flag_words=2 ;;
    *) stage_flag "$@" ;;
  esac
  shift "$stage_flag_words"
done
begin_stages "$checkout/runs/quickstart-$source-$target"
# One thread: so small a model gains nothing from more.
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" PROCESSES="${PROCESSES:-1}"
# A German number is one word, without 4-grams of words: sacrebleu-char counts characters.
metrics=(--metric sacrebleu-char --metric chrf)
[[ "$target" == de ]] || metrics+=(--metric bleu)

stage corpus "number names, $source to $target" "" corpus \
  recipe_script number_names.py --source "$source" --target "$target" --out corpus
stage prepare "text to ids" corpus data nmt prepare --source-lang "$source" --target-lang "$target" \
  --train corpus/train --valid corpus/valid --test corpus/test \
  --keep-duplicates --subwords bpe --vocab-size 240 --out data
train_stage train run "train" --preset quickstart --seed 1
stage average "the mean of the last 5 checkpoints" train averaged nmt average run --last 5 --out averaged
stage translate "the held-out numbers" "corpus average" hypotheses \
  nmt translate averaged --input "corpus/test.$source" --output hypotheses --beam 4 --alpha 0.6
stage score "against the references" "corpus translate" score.json \
  to_file score.json nmt score hypotheses --ref "corpus/test.$target" "${metrics[@]}" --json
run_stages
report quickstart "$source" "$target"
