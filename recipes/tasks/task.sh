# shellcheck shell=bash disable=SC2034  # recipes read what is set
# What the recipes of small tasks share: models of several seeds, their ensemble, and a table.

source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

seeds=1 measures=exact
export PROCESSES="${PROCESSES:-1}"
translate=() models=() references=()
finish() { cat; } # what outputs go through
# Models of characters: a half of the preset's width, and what was best on dev with little time (benchmarks/reports).
characters=(--preset transduction --d-model 128 --d-ff 512 --norm post --attention-dropout 0 --feed-forward-dropout 0
  --attention rotary --positions none --optimizer muon --weight-decay 1 --zero-sublayers --schedule linear_decay
  --warmup-steps 100 --learning-rate-scale 0.3)
# Best on dev for few or irregular words.
more_dropout=(--attention-dropout 0.3 --feed-forward-dropout 0.3 --weight-decay 0.3)
# Models of sentences, programs and molecules: as of captions, and twice as wide.
sentences=("${captions[@]}" --d-model 256 --d-ff 1024)
# Without filters: every line counts, and repeated ones are frequent words.
prepare=(--max-words 0 --max-characters 0 --max-ratio 0 --keep-duplicates)

# table_of PART COMMAND...: the output of the command is the table of train, valid or test.
table_of() {
  [[ " ${train_flags[*]}" != *" --seed"* ]] || usage_error "--seed is the recipe's own: give --seeds before --"
  made_from "" "${words[@]}" "${size-}${tokens-}${PIECES-}"
  [[ -e "$out/$1.tsv" ]] || to_file "$out/$1.tsv" "${@:2}"
}

# data FLAGS OF nmt prepare...: ids of the tables of train, valid and test.
data() {
  [[ -e "$out/data" ]] || nmt prepare --train "$out/train.tsv" --valid "$out/valid.tsv" --test "$out/test.tsv" \
    "${prepare[@]}" "$@" --out "$out/data"
}

finished() { "$@" | finish; }

# outputs NAME CHECKPOINT...: the outputs for the test text, and their scores, also for the groups in labels.
outputs() {
  local result="$out/$1" groups=() checkpoint
  [[ ! -e "$out/labels" ]] || groups=(--group-by "$out/labels")
  for checkpoint in "${@:2}"; do [[ "$result.output" -nt "$checkpoint" ]] || rm -f "$result.output"; done
  [[ -e "$result.output" ]] || to_file "$result.output" finished \
    nmt translate "${@:2}" --input "$out/data/test.source.txt" "${translate[@]}" --quiet
  ((${#references[@]})) || references=("$out/data/test.target.txt")
  [[ "$result.json" -nt "$result.output" ]] || to_file "$result.json" \
    nmt score "$result.output" "${references[@]/#/--ref=}" --metric "$measures" "${groups[@]}" --json
}

# model STEPS SEED: train it, in $out/seed-N, and score its outputs.
model() {
  train_and_average "$out/data" "$out/seed-$2" "$1" --seed "$2"
  outputs "seed-$2" "$out/seed-$2/averaged"
  models+=("$out/seed-$2")
}

# scores_table FLAGS OF table.py...: of all models.
scores_table() { to_file "$out/table.md" script tasks/table.py "${models[@]}" "$@" && cat "$out/table.md"; }

# systems STEPS MEASURE=PUBLISHED...: a model for each seed, the ensemble of all, and the table.
systems() {
  local seed together=()
  models=()
  for ((seed = 1; seed <= seeds; seed++)); do model "$1" "$seed"; done
  ((seeds == 1)) || outputs "ensemble-$seeds" "${models[@]/%//averaged}"
  ((seeds == 1)) || together=(--ensemble "$out/ensemble-$seeds")
  scores_table "${together[@]}" --published "${@:2}"
}
