#!/usr/bin/env bash
# Several languages in one model, on the captions of Multi30k, beside a model for each direction.
#
#   recipes/multilingual.sh DIR [--both] [--out DIR] [-- FLAGS OF nmt train]
#
# English to German, French and Czech in one model, whose sources begin with a tag such as <2de> (Johnson et al. 2017).
# With --both also the way back, six directions in one model. A Transformer of about 2.5 million parameters, cased text,
# a joint vocabulary of 8,000 BPE pieces for each direction and of 12,000 for all. Not as in the paper: rotary
# positions, Muon and sub-layers that begin at zero. Without them, six directions in one model failed (benchmarks/reports).
# Takes a few hours on a CPU. Ends with a table of BLEU. Run it again to continue after a stop.
#
#   DIR             has train, val and test_2016_flickr, each .en, .de, .fr and .cs, plain or .gz, or in folders below
#   --out DIR       directory for all results; default runs/multilingual
#
# Environment: PIECES (default 8000) and STEPS (default 2000) of a model for one direction.

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

both=""
read_flags "both? out ..." "$@"
((${#words[@]} == 1)) || usage_error "give the directory of the Multi30k files"
out="${out:-$checkout/runs/multilingual}"
pieces="${PIECES:-8000}" steps="${STEPS:-2000}"
export PROCESSES="${PROCESSES:-1}"
directions=("en de" "en fr" "en cs") && [[ -z "$both" ]] || directions+=("de en" "fr en" "cs en")

tagged() { pairs "$1.$2" "$1.$3" | sed "s/\$/\t2$3/"; } # source, target, tag
together() {
  for direction in "${directions[@]}"; do read -r from to <<<"$direction" && tagged "$1" "$from" "$to" || return; done
}

# model NAME STEPS DROPOUT FLAGS OF nmt prepare...: a model for the tables NAME.train.tsv and NAME.val.tsv.
model() {
  [[ -e "$out/$1/data" ]] || nmt prepare --train "$out/$1.train.tsv" --valid "$out/$1.val.tsv" --tags 3 "${@:4}" \
    --out "$out/$1/data"
  train=("${captions[@]}" --dropout "$3" --seed 1)
  train_and_average "$out/$1/data" "$out/$1" "$2"
}
# bleu MODEL FROM TO: of the test set.
bleu() {
  to_file "$out/$1/$2-$3" nmt translate "$out/$1/averaged" --input "$out/test.$2" --tag "<2$3>" --quiet &&
    nmt score "$out/$1/$2-$3" --ref "$out/test.$3" --metric bleu | awk '{ print $2 }'
}

for language in en de fr cs; do
  [[ -e "$out/test.$language" ]] || to_file "$out/test.$language" text "test_2016_flickr.$language"
done
made_from "" "${words[@]}" "$both" "$pieces pieces"
for part in train val; do [[ -e "$out/all.$part.tsv" ]] || to_file "$out/all.$part.tsv" together "$part"; done
# It sees each direction as often as the direction's own model, and more text in all, so it needs less dropout.
model all "$((${#directions[@]} * steps))" 0.1 --vocab-size "$((pieces * 3 / 2))"
printf '| direction | own model | one model | difference |\n|---|---:|---:|---:|\n' >"$out/table.md"
for direction in "${directions[@]}"; do
  read -r from to <<<"$direction"
  for part in train val; do
    [[ -e "$out/$from-$to.$part.tsv" ]] || to_file "$out/$from-$to.$part.tsv" tagged "$part" "$from" "$to"
  done
  model "$from-$to" "$steps" 0.2 --vocab-size "$pieces"
  own="$(bleu "$from-$to" "$from" "$to")"
  one="$(bleu all "$from" "$to")"
  printf "| $from-$to | %.2f | %.2f | %+.2f |\n" "$own" "$one" "$(awk "BEGIN { print $one - $own }")" >>"$out/table.md"
done
cat "$out/table.md"
