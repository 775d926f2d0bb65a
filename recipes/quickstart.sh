#!/usr/bin/env bash
# Train a model that translates the names of numbers, and score it: prepare, train, average, translate, score.
#
#   recipes/quickstart.sh [--source en] [--target de] [--out DIR] [-- FLAGS OF nmt train]
#
# Takes a few minutes on two CPU cores. The text is generated, and the scored numbers do not occur in training. Run it
# again to continue after a stop.
#
#   --source, --target   two languages of the package num2words (pip install num2words), such as de, en, fr
#   --out DIR            directory for all results; default runs/quickstart-SOURCE-TARGET

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

source=en target=de
read_flags "source target out" "$@"
out="${out:-$checkout/runs/quickstart-$source-$target}"
# One thread: so small a model gains nothing from more.
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" PROCESSES="${PROCESSES:-1}"
train=(--preset quickstart --seed 1 "${train_flags[@]}")
# A German number is one word, without 4-grams of words: sacrebleu-char counts characters.
metrics=(--metric sacrebleu-char --metric chrf)
[[ "$target" == de ]] || metrics+=(--metric bleu)

[[ -e "$out/corpus" ]] || {
  script number_names.py "$out/corpus.part" "$source" "$target"
  mv "$out/corpus.part" "$out/corpus"
}
made_from corpus "$source-$target"
[[ -e "$out/data" ]] || nmt prepare --source-lang "$source" --target-lang "$target" --train "$out/corpus/train" \
  --valid "$out/corpus/valid" --test "$out/corpus/test" --keep-duplicates --subwords bpe --vocab-size 240 \
  --out "$out/data"
"$recipes/train.sh" "$out/data" --out "$out/run" "${train[@]}"
[[ "$out/averaged" -nt "$out/run/checkpoints" ]] ||
  nmt average "$out/run" --last 5 --out "$out/averaged" --overwrite
[[ "$out/hypotheses" -nt "$out/averaged" ]] || to_file "$out/hypotheses" \
  nmt translate "$out/averaged" --input "$out/corpus/test.$source" --beam 4 --alpha 0.6
[[ "$out/score.json" -nt "$out/hypotheses" ]] || to_file "$out/score.json" \
  nmt score "$out/hypotheses" --ref "$out/corpus/test.$target" "${metrics[@]}" --json
script report.py quickstart "$source" "$target" "$out"
