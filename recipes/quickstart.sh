#!/usr/bin/env bash
# Learns to translate the names of numbers and shows how well: prepare, train, average, translate, score.
#
#   recipes/quickstart.sh [--source en] [--target de] [--out DIR] [-- FLAGS OF nmt train]
#
#   --source, --target   two of de, en, fr
#   --out                folder for everything that is made; the default is runs/quickstart-SOURCE-TARGET
#
# Takes a few minutes on two CPU cores. No download: the text is generated, and the numbers that are scored were never
# seen in training. Interrupted, it goes on where it stopped when it is run again.

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

source_language=en target_language=de out="" train_flags=()
while (($#)); do
  case "$1" in
    -h | --help) show_help && exit ;;
    --) shift && train_flags=("$@") && break ;;
    --source | --target | --out) (($# > 1)) || usage_error "$1 needs a value" ;;&
    --source) source_language="$2" ;;
    --target) target_language="$2" ;;
    --out) out="$2" ;;
    *) usage_error "unknown argument $1" ;;
  esac
  shift 2
done
out="${out:-$checkout/runs/quickstart-$source_language-$target_language}"
corpus="$out/corpus" data="$out/data" run="$out/run" averaged="$out/averaged"

find_nmt
remember "$out" "quickstart $source_language-$target_language ${train_flags[*]-}"
started=$SECONDS

# The model is so small that threads would wait for one another more than they work, the more so on a busy machine.
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"

say "1/5 text: number names, $source_language to $target_language"
[[ -e "$corpus/train.$target_language" ]] ||
  "$python" "$checkout/recipes/number_names.py" --source "$source_language" --target "$target_language" --out "$corpus"
wc -l "$corpus"/*."$target_language" >&2

say "2/5 prepare: text to ids"
[[ -e "$data/manifest.json" ]] ||
  "$nmt" prepare --source-lang "$source_language" --target-lang "$target_language" \
    --train "$corpus/train" --valid "$corpus/valid" --test "$corpus/test" \
    --keep-duplicates --subwords bpe --vocab-size 240 --out "$data"

say "3/5 train and average"
"$nmt" train "$data" --preset quickstart --seed 1 --out "$run" "${train_flags[@]}"
average_last 5 "$run" "$averaged"

say "4/5 translate the held-out numbers"
if ! fresh "$out/hypotheses" "$averaged/model.safetensors"; then
  to_file "$out/hypotheses" "$nmt" translate "$averaged" --beam 4 --alpha 0.6 <"$corpus/test.$source_language"
fi

say "5/5 score"
# A German number is one word, so it has no 4-grams of words: BLEU counts characters there.
metrics=(--metric sacrebleu-char --metric chrf)
[[ "$target_language" == de ]] || metrics+=(--metric sacrebleu-13a)
to_file "$out/score.json" "$nmt" score "$out/hypotheses" --ref "$corpus/test.$target_language" "${metrics[@]}" --json
verdict=0
"$python" "$checkout/recipes/report.py" quickstart "$out" "$source_language" "$target_language" || verdict=$?

((verdict == 0)) || printf 'A figure is not as expected: see the table.\n' >&2
printf '\nTook %d s. Translate a number of your own:\n\n  %s translate %s --interactive\n' \
  $((SECONDS - started)) "$(short "$nmt")" "$(short "$averaged")"
exit "$verdict"
