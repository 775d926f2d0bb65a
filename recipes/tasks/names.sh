#!/usr/bin/env bash
# Names of people in another script (COLING 2018): an English name to Hebrew, Katakana or Russian, such as rudyard to
# "р е д ь я р д".
#
#   recipes/tasks/names.sh DIR LANGUAGE [--seeds N] [--out DIR] [-- FLAGS OF nmt train]
#
# Published: the example of the task's own README, for Russian, of a system that it does not name: 59.65, 71.05 and
# 75.33 % of the names right among the first 1, 2 and 3 outputs.
#
#   DIR        has wd_russian_64, _16 and _20 (training, dev, test): github.com/steveash/NETransliteration-COLING2018,
#              data; or russian.train, .dev and .test
#   LANGUAGE   hebrew, katakana, russian, or another of the task
#   --seeds N  models (default 3); with several also their ensemble
#
# Environment: STEPS of each training (default: ten epochs, as the task's own Transformer).

source "$(dirname "${BASH_SOURCE[0]}")/task.sh"

seeds=3 batch=256
read_flags "seeds out ..." "$@"
((${#words[@]} == 2)) || usage_error "give the directory of the files and a language"
language="${words[1]}" out="${out:-$checkout/runs/names-${words[1]}}" measures=top-1,top-2,top-3
train=("${characters[@]}" --d-model 256 --d-ff 1024 --batch-sentences "$batch")
translate=(--beam 5 --nbest 3 --format tsv)
published=()
[[ "$language" != russian ]] || published=(top-1=59.65 top-2=71.05 top-3=75.33)

# Name, tab, letters separated by spaces, tab, a number that does not count.
letters() {
  local file && file="$(find -L "${words[0]}" -name "$1" -o -name "$1.gz" | head -n 1)"
  text "$([[ -n "$file" ]] && echo "$1" || echo "$2")" | cut -f 1,2 |
    "$python" -c 'import sys
for line in sys.stdin:
    name, tab, letters = line.partition("\t")
    print(*name, end=tab + letters)'
}

table_of train letters "wd_${language}_64" "$language.train"
table_of valid letters "wd_${language}_16" "$language.dev"
table_of test letters "wd_${language}_20" "$language.test"
data --subwords none --separate-vocabularies --normalization none
systems "${STEPS:-$(($(wc -l <"$out/train.tsv") * 10 / batch))}" "${published[@]}"
