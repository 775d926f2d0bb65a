#!/usr/bin/env bash
# Multi30k, from its files to its published score: captions of images, English to German or French, on a CPU.
#
#   recipes/multi30k.sh FOLDER [--target de] [--out DIR] [-- FLAGS OF nmt train]
#
#   FOLDER     holds train, val and test_2016_flickr, each .en and .de (or .fr), plain or .gz
#   --target   de or fr
#   --out      folder for everything that is made; the default is runs/multi30k-en-TARGET
#
# A Transformer of about 2.6 million parameters: 4 + 4 layers, d_model 128, d_ff 256, 4 heads, dropout 0.3, a joint
# vocabulary of about 10,000 BPE pieces over lower-cased Moses tokens. Takes one to two hours on two CPU cores. Ends with a
# table of what was expected and what came out. Interrupted, it goes on where it stopped when it is run again.

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

folder="" target_language=de out="" train_flags=()
while (($#)); do
  case "$1" in
    -h | --help) show_help && exit ;;
    --) shift && train_flags=("$@") && break ;;
    --target | --out) (($# > 1)) || usage_error "$1 needs a value" ;;&
    --target) target_language="$2" && shift 2 ;;
    --out) out="$2" && shift 2 ;;
    -*) usage_error "unknown argument $1" ;;
    *) [[ -z "$folder" ]] || usage_error "one folder is enough: $folder or $1?" ; folder="$1" && shift ;;
  esac
done
[[ -n "$folder" ]] || usage_error "which folder holds the Multi30k files?"
[[ "$target_language" == de || "$target_language" == fr ]] || usage_error "--target is de or fr, not $target_language"
out="${out:-$checkout/runs/multi30k-en-$target_language}"
data="$out/data" run="$out/run" averaged="$out/averaged"

# The file FOLDER/NAME, plain or .gz.
file() {
  local path
  for path in "$folder/$1" "$folder/$1.gz"; do [[ ! -f "$path" ]] || { printf '%s' "$path" && return; }; done
  die "$folder/$1: there is no such file, nor $1.gz. Give the folder that holds Multi30k's text files"
}
for name in train val test_2016_flickr; do file "$name.en" >/dev/null && file "$name.$target_language" >/dev/null; done

find_nmt
remember "$out" "multi30k en-$target_language ${train_flags[*]-}"
started=$SECONDS

say "1/5 prepare: text to ids"
[[ -e "$data/manifest.json" ]] ||
  "$nmt" prepare --source-lang en --target-lang "$target_language" \
    --train "$folder/train" --valid "$folder/val" --test "$folder/test_2016_flickr" \
    --moses --lowercase --subwords bpe --vocab-size 10000 --out "$data"

say "2/5 train"
"$nmt" train "$data" --preset multi30k --seed 1 --out "$run" "${train_flags[@]}"

say "3/5 average"
average_last 10 "$run" "$averaged"

say "4/5 translate test_2016_flickr"
source_file="$(file test_2016_flickr.en)" reference="$(file "test_2016_flickr.$target_language")"
if ! fresh "$out/hypotheses" "$averaged/model.safetensors"; then
  # gzip reads plain files too when told to force
  gzip --decompress --stdout --force <"$source_file" |
    to_file "$out/hypotheses" "$nmt" translate "$averaged" --beam 4 --alpha 0.6
fi

say "5/5 score"
to_file "$out/score.json" "$nmt" score "$out/hypotheses" --ref "$reference" --target-lang "$target_language" \
  --metric multi30k --metric sacrebleu-13a --metric sacrebleu-13a-lc --metric chrf --json
verdict=0
"$python" "$checkout/recipes/report.py" multi30k "$out" en "$target_language" || verdict=$?
((verdict == 0)) || printf 'A figure is not as expected: see the table.\n' >&2
printf '\nTook %d s. Translate a sentence of your own:\n\n  %s translate %s --interactive\n' \
  $((SECONDS - started)) "$(short "$nmt")" "$(short "$averaged")"
exit "$verdict"
