#!/usr/bin/env bash
# Tagged back-translation, one round, on Tatoeba, English to German: few pairs, and more text in German alone.
#
#   recipes/back_translation.sh DIR [--out DIR] [-- FLAGS OF nmt train]
#
# The first 10,000 pairs of the training text are the pairs. The German side of the next 40,000 is the text in German
# alone. A model from German to English, trained on the pairs, translates it (Sennrich et al. 2016), by beam search:
# with few pairs, sampled sources are too bad (Edunov et al. 2018). The tag <bt> before these sources tells them from
# those people wrote (Caswell et al. 2019). An epoch has as many pairs of each kind. All models are Transformers of
# about 2 million parameters, with the same vocabulary, learned on the pairs, and the same number of updates. The dev
# text is divided: its first half is for validation, its second half for the test. Takes less than two hours on a CPU.
# Ends with a table of expected and actual BLEU. Run it again to continue after a stop.
#
#   DIR             has train and dev, or en-de.train and en-de.dev, each .en and .de, plain or .gz
#   --out DIR       directory for all results; default runs/back-translation
#
# Environment: PAIRS (default 10000), MONOLINGUAL (40000), HELD_OUT (1000: for validation, and as many for the test),
# PIECES (4000) of the vocabulary, and STEPS (3100) of each training.

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

read_flags "out ..." "$@"
((${#words[@]} == 1)) || usage_error "give the directory of the text"
text="${words[0]}" out="${out:-$checkout/runs/back-translation}"
pairs="${PAIRS:-10000}" monolingual="${MONOLINGUAL:-40000}" held_out="${HELD_OUT:-1000}" steps="${STEPS:-3100}"
export PROCESSES="${PROCESSES:-1}"
train=(--preset multi30k --schedule linear_decay --warmup-steps 600 --learning-rate-scale 0.8 --seed 1)

# lines NAME LANGUAGE PART FIRST NUMBER: lines of a file in DIR as a file of the recipe.
lines() {
  local file
  file="$(compgen -G "$text/$3.$2*" || compgen -G "$text/en-de.$3.$2*")" || die "$text has no $3.$2"
  [[ -e "$out/text/$1.$2" ]] ||
    gzip -dcf "${file%%$'\n'*}" | to_file "$out/text/$1.$2" sed -n "$4,$(($4 + $5 - 1))p"
}
# model NAME FROM TO FLAGS OF nmt prepare...
model() {
  [[ -e "$out/$1/data" ]] || nmt prepare --source-lang "$2" --target-lang "$3" --train "$out/text/pairs${weight-}" \
    --valid "$out/text/valid" "${@:4}" --out "$out/$1/data"
  train_and_average "$out/$1/data" "$out/$1" "$steps"
  [[ "$out/$1/test.$3" -nt "$out/$1/averaged" ]] || to_file "$out/$1/test.$3" \
    nmt translate "$out/$1/averaged" --input "$out/text/test.$2"
  [[ "$out/$1/score" -nt "$out/$1/test.$3" ]] || to_file "$out/$1/score" \
    nmt score "$out/$1/test.$3" --ref "$out/text/test.$3" --metric bleu
}
bleu() { awk '{ printf "%.2f", $2 }' "$out/$1/score"; }

for language in en de; do
  lines pairs "$language" train 1 "$pairs"
  lines valid "$language" dev 1 "$held_out"
  lines test "$language" dev "$((held_out + 1))" "$held_out"
done
lines monolingual de train "$((pairs + 1))" "$monolingual"
made_from text "$text" "$pairs" "$monolingual" "$held_out" "${PIECES:-4000} pieces"
model baseline en de --symbols "<bt>" --vocab-size "${PIECES:-4000}"
model reverse de en --subwords-from "$out/baseline/data"
[[ -e "$out/text/monolingual.en" ]] || to_file "$out/text/monolingual.en" \
  nmt translate "$out/reverse/averaged" --input "$out/text/monolingual.de"
weight="*$((monolingual > pairs ? monolingual / pairs : 1))"
model tagged en de --train "$out/text/monolingual@<bt>" --subwords-from "$out/baseline/data"

difference="$(awk "BEGIN { printf \"%+.2f\", $(bleu tagged) - $(bleu baseline) }")"
to_file "$out/table.md" cat <<END
| BLEU | expected | got |
|---|---:|---:|
| German to English | 25.34 | $(bleu reverse) |
| English to German, the pairs alone | 22.01 | $(bleu baseline) |
| English to German, with back-translation | 23.93 | $(bleu tagged) |
| difference | +1.92 | $difference |
END
cat "$out/table.md"
