#!/usr/bin/env bash
# Spelling to phones, SIGMORPHON 2021: a word to phones, such as 가곡 to "k a̠ ɡ o̞ k̚".
#
#   recipes/tasks/g2p.sh DIR LANGUAGE [--seeds N] [--out DIR] [-- FLAGS OF nmt train]
#
# Published: the task's baseline, an ensemble of neural transducers with edit actions, no Transformer. Its word error
# rate is 100 - exact. Compare it with the ensemble, not with the mean. Letters are decomposed (NFD). A phone is one
# symbol.
#
#   DIR        has LANGUAGE_train.tsv, _dev.tsv and _test.tsv: github.com/sigmorphon/2021-task1
#   LANGUAGE   eng_us, hbs_latn, jpn_hira, kor, ady, khm or slv
#   --seeds N  models (default 3); with several also their ensemble
#
# Environment: STEPS (default 4000) of each training.

source "$(dirname "${BASH_SOURCE[0]}")/task.sh"

seeds=3
read_flags "seeds out ..." "$@"
((${#words[@]} == 2)) || usage_error "give the directory of the files and a language"
language="${words[1]}" out="${out:-$checkout/runs/g2p-${words[1]}}" measures=exact,per
declare -A error=([eng_us]=41.94 [hbs_latn]=32.10 [jpn_hira]=5.20 [kor]=16.30 [ady]=22 [khm]=34 [slv]=49)
known="${error[$language]-}"
train=("${characters[@]}" "${more_dropout[@]}")

# Spaces between the letters of the first column.
letters() {
  text "$1" | "$python" -c 'import sys, unicodedata
for line in sys.stdin:
    word, tab, phones = line.partition("\t")
    print(*unicodedata.normalize("NFD", word), end=tab + phones)'
}

for part in train dev test; do table_of "${part/dev/valid}" letters "${language}_$part.tsv"; done
if (($(wc -l <"$out/train.tsv") < 2000)); then # the task has languages of 800 and of 8,000 words, and more
  train+=(--norm pre --batch-sentences 32)
else
  train+=(--d-model 256 --d-ff 1024 --batch-sentences 128)
fi
data --subwords none --separate-vocabularies --normalization nfc
systems "${STEPS:-4000}" "exact=${known:+$(awk "BEGIN { print 100 - $known }")}"
