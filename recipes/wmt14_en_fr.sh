#!/usr/bin/env bash
# WMT14 English to French, from the raw downloads to Table 2 of the paper.
#
#   recipes/wmt14_en_fr.sh [--model base|big] [FLAG ...] [-- FLAGS OF nmt train]
#
# Europarl v7, Common Crawl, UN, News Commentary v9 and 10^9, 40.8 million pairs. At most 175 words and a ratio of 1.5
# leave 35.5 million; 32,000 word pieces; dev set newstest2013, test set newstest2014. 25,000 + 25,000 tokens a batch
# on any number of GPUs. base: 100,000 steps, the last 5 checkpoints averaged; big: 300,000 and 20. Beam 4, alpha 0.6.
# 6.6 GB are downloaded; the results take about 45 GB (base) or 90 GB (big). Run it again to continue after a stop.
#
#   --model NAME        base (the default) or big
#   --out DIR           directory for all results; default runs/wmt14-en-fr
#   --local DIR         use the archives in DIR, or the text files out of them; download nothing
#   --data-only         stop before the training
#   --smoke [DIR]       try everything with a tiny model on a CPU, on the first lines of the parallel text in DIR
#                       (train, valid and test; by default number names)
#   --smoke-gpu [DIR]   the same with this model on all GPUs, for 100 steps: the first command on a new machine
#
# Environment: NMT_MIRROR, where the archives are instead of https://www.statmt.org, and that of recipes/train.sh.

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

model=base local="" data_only="" smoke="" smoke_gpu="" note=""
read_flags "model out local data_only? smoke? smoke_gpu?" "$@"
case "$model" in
  base) preset=transformer_base last=5 ;;
  big) preset=transformer_big_en_fr last=20 ;;
  *) usage_error "--model is base or big, not '$model'" ;;
esac
out="${out:-$checkout/runs/wmt14-en-fr${smoke:+-smoke}${smoke_gpu:+-smoke-gpu}}"
vocabulary=(--vocab-size 32000 --character-coverage 0.9999) train=(--preset "$preset" --device cuda)
[[ -z "$smoke$smoke_gpu" ]] || smoke_settings
train+=("${train_flags[@]}")
# Wrong flags, and the lack of a GPU, end the recipe here.
[[ -e "$out/data" ]] || nmt train --dry-run "${vocabulary[@]:0:2}" "${train[@]}" ${data_only:+--device cpu} >/dev/null

# Section 5.1: the text, and one vocabulary for both languages
((${NODE_RANK:-0} == 0)) || [[ -e "$out/data" ]] || die "on several machines, run this with --data-only first" 2
[[ -e "$out/text" ]] || script corpora.py wmt14_en_fr.json "$out" "$local" "$smoke$smoke_gpu"
made_from text WMT14 "${vocabulary[@]}" ${local:+--local "$local"} ${note:+--smoke "$smoke$smoke_gpu"}
[[ -e "$out/data" ]] || nmt prepare --source-lang en --target-lang fr --train "$out/text/europarl-v7" \
  --train "$out/text/commoncrawl" --train "$out/text/un-2000" --train "$out/text/news-commentary-v9" \
  --train "$out/text/giga-fren" --valid "$out/text/newstest2013" --test "$out/text/newstest2014" --out "$out/data" \
  --max-words 175 --max-ratio 1.5 --ratio-unit words --keep-duplicates --normalization none --subwords wordpiece \
  "${vocabulary[@]}"
[[ -z "$data_only" ]] || exit 0

# Sections 5.2 to 5.4; the first of several machines does the rest
"$recipes/train.sh" "$out/data" --out "$out/$model/run" "${train[@]}"
((${NODE_RANK:-0} == 0)) || exit 0

# Section 6.1
results="$out/$model" test="$out/text/newstest2014"
[[ "$results/averaged" -nt "$results/run/checkpoints" ]] ||
  nmt average "$results/run" --last "$last" --out "$results/averaged" --overwrite
[[ "$results/test.fr" -nt "$results/averaged" ]] ||
  to_file "$results/test.fr" nmt translate "$results/averaged" --input "$test.en" --beam 4 --alpha 0.6 --exact-stopping
[[ "$results/score.json" -nt "$results/test.fr" ]] || to_file "$results/score.json" \
  nmt score "$results/test.fr" --ref "$test.fr" --target-lang fr --metric decomposition --json
cd "$out" && script paper_tables.py en fr "$model" "$last" "$note" | tee "table-$model.md"
