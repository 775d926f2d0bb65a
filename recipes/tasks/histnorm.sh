#!/usr/bin/env bash
# Historical spelling, word by word (Bollmann 2019): an old spelling to the modern one, such as "uala" to "vala".
#
#   recipes/tasks/histnorm.sh DIR LANGUAGE [--tokens N] [--seeds N] [--out DIR] [-- FLAGS OF nmt train]
#
# Published, for 25,000 training tokens: NMT-2, and the best system (cSMTiser with a language model), means of ten
# samples, each of consecutive tokens, evenly spaced in the training text. The table does not say whether they are of
# the dev or the test text. Here: the test text, and a seed for each sample. A model of all tokens has to beat the words
# that were learned by heart: German 83.84, Hungarian 74.60, Slovene 81.73 (bohoric) and 93.90 (gaj).
#
#   DIR         the checkout of github.com/coastalcph/histnorm, with its preprocess.py
#   LANGUAGE    german-anselm, hungarian-hgds, slovene-goo300k-bohoric or slovene-goo300k-gaj
#   --tokens N  training tokens (default 25000)
#   --seeds N   samples, with a model each (default 3)
#
# Environment: STEPS (default 2500) of each training.

source "$(dirname "${BASH_SOURCE[0]}")/task.sh"

tokens=25000 seeds=3
read_flags "tokens seeds out ..." "$@"
((${#words[@]} == 2)) || usage_error "give the directory of the files and a language"
language="${words[1]}" folder="${out:-$checkout/runs/histnorm-${words[1]}}"
declare -A known=([german-anselm]=78.09 [hungarian-hgds]=64.53 [slovene-goo300k-bohoric]=89.77 [slovene-goo300k-gaj]=93.72)
declare -A best=([german-anselm]=81.25 [hungarian-hgds]=69.84 [slovene-goo300k-bohoric]=91.05 [slovene-goo300k-gaj]=94.69)
train=("${characters[@]}" --batch-sentences 256 --weight-decay 0.3)
translate=(--beam 1)

clean() {
  text "$language.$1.txt" >"$folder/raw.part" && text preprocess.py | "$python" - --all "$folder/raw.part"
}
part() { awk "NR > $1 && NR <= $1 + $tokens" <"$folder/train.txt"; }

out="$folder" && made_from "" "${words[@]}"
for name in train dev test; do [[ -e "$folder/$name.txt" ]] || to_file "$folder/$name.txt" clean "$name"; done
left="$(($(wc -l <"$folder/train.txt") - tokens))" # the last sample begins after them
((left < 9 * tokens)) || left="$((9 * tokens))"    # the first tokens of a long text, if ten samples fit
for ((sample = 0; sample < seeds; sample++)); do
  before="$((left > 0 && seeds > 1 ? sample * left / (seeds - 1) : 0))"
  out="$folder/$tokens-after-$before"
  table_of train part "$before"
  table_of valid awk 'NR % 8 == 0' <"$folder/dev.txt"
  table_of test cat "$folder/test.txt"
  data --subwords character --normalization none
  model "${STEPS:-2500}" "$((sample + 1))"
done
((tokens == 25000)) || known=() best=()
out="$folder" && scores_table --published "exact=${known[$language]-}"
[[ -z "${best[$language]-}" ]] || echo "The best published system: ${best[$language]}"
