#!/usr/bin/env bash
# Historical spelling, word by word (Bollmann 2019): an old spelling to the modern one, such as "uala" to "vala".
#
#   recipes/tasks/histnorm.sh DIR LANGUAGE [--tokens N] [--seeds N] [--out DIR] [-- FLAGS OF nmt train]
#
# Published, for 25,000 training tokens: NMT-2, and the best system (cSMTiser with a language model), means of ten
# samples of the training text. The table does not say whether they are of the dev or the test text. Here: one sample,
# the first tokens, and the test text. A model of all tokens has to beat the words that were learned by heart: German
# 83.84, Hungarian 74.60, Slovene 81.73 (bohoric) and 93.90 (gaj).
#
#   DIR         the checkout of github.com/coastalcph/histnorm, with its preprocess.py
#   LANGUAGE    german-anselm, hungarian-hgds, slovene-goo300k-bohoric or slovene-goo300k-gaj
#   --tokens N  training tokens (default 25000)
#   --seeds N   models (default 1); with several also their ensemble
#
# Environment: STEPS (default 4000) of each training.

source "$(dirname "${BASH_SOURCE[0]}")/task.sh"

tokens=25000
read_flags "tokens seeds out ..." "$@"
((${#words[@]} == 2)) || usage_error "give the directory of the files and a language"
language="${words[1]}" out="${out:-$checkout/runs/histnorm-${words[1]}-$tokens}"
declare -A known=([german-anselm]=78.09 [hungarian-hgds]=64.53 [slovene-goo300k-bohoric]=89.77 [slovene-goo300k-gaj]=93.72)
declare -A best=([german-anselm]=81.25 [hungarian-hgds]=69.84 [slovene-goo300k-bohoric]=91.05 [slovene-goo300k-gaj]=94.69)
train=(--preset transduction --schedule linear_decay --warmup-steps 400 --batch-sentences 256)
translate=(--beam 1)

clean() { text "$language.$1.txt" >"$out/raw" && text preprocess.py | "$python" - --all "$out/raw" | sed -n "1,$2p"; }

mkdir -p "$out"
table_of train clean train "$tokens"
table_of valid clean dev 2000
table_of test clean test '$'
data --subwords character --normalization none
((tokens == 25000)) || known=() best=()
systems "${STEPS:-4000}" "exact=${known[$language]-}"
[[ -z "${best[$language]-}" ]] || echo "The best published system: ${best[$language]}"
