#!/usr/bin/env bash
# Inflection, SIGMORPHON 2022: a lemma and features to a form, such as "maraton N;TERM;PL" to "maratonokig".
#
#   recipes/tasks/inflection.sh DIR LANGUAGE [--size large] [--seeds N] [--out DIR] [-- FLAGS OF nmt train]
#
# Published: the task's neural Transformer, for the same 7,000 (large) or 700 (small) training forms: as the preset
# transduction, or with features marked as such (which of them is not said), after 20,000 updates of 400 words, the best
# checkpoint on dev. Here: `characters` in task.sh (small: pre-norm, more dropout), fewer and smaller updates, the mean
# of the last checkpoints. Characters are decomposed (NFD), and features that no training form has are left out. The
# published system seems never to have written a space, so compare languages with spaces in their forms (tur, asm) by
# the groups.
#
#   DIR        has hun_large.train, hun.dev and hun.gold, and so on: github.com/sigmorphon/2022InflectionST
#   LANGUAGE   ara, got, hun, kat, khk, kor and so on
#   --seeds N  models (default 1); with several also their ensemble
#
# Environment: STEPS (default 2000, small 2500) of each training.

source "$(dirname "${BASH_SOURCE[0]}")/task.sh"

size=large
read_flags "size seeds out ..." "$@"
((${#words[@]} == 2)) || usage_error "give the directory of the files and a language"
language="${words[1]}" out="${out:-$checkout/runs/inflection-${words[1]}-$size}" measures=exact
declare -A published=(
  [ara_large]=78.546 [asm_large]=76.784 [got_large]=72.166 [hun_large]=77.2 [kat_large]=87.25 [khk_large]=49.141
  [kor_large]=56.161 [tur_large]=39.65 [ara_small]=65.965 [asm_small]=54.673 [got_small]=60.582 [hun_small]=65.0
  [kat_small]=60.2 [khk_small]=41.616 [kor_small]=23.523 [tur_small]=34.6
)
train=("${characters[@]}" --batch-sentences 128) steps=2000
[[ "$size" != small ]] || { train+=("${more_dropout[@]}" --norm pre) && steps=2500; }
translate=(--beam 1)

spaces() { awk -F '\t' '{ print $2 ~ / |\302\240/ ? "with spaces" : "no spaces" }' <"$out/test.tsv"; }

table_of train text "${language}_$size.train"
table_of valid text "$language.dev"
table_of test text "$language.gold"
data --tags 3 --subwords character --normalization nfd
to_file "$out/labels" spaces
systems "${STEPS:-$steps}" "exact=${published[${language}_$size]-}"
