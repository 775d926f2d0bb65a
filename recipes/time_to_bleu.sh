#!/usr/bin/env bash
# The time of a training to 25.0 BLEU, by the rules of MLPerf v0.7's Transformer: eight A100 took 7.84 minutes.
#
#   recipes/time_to_bleu.sh [--bleu N] [FLAG ...] [-- FLAGS OF nmt train]
#
# The pre-norm big model on WMT17 English to German (Europarl v7, Common Crawl, News Commentary v12), one vocabulary of
# 33,000 pieces. The measure is BLEU of newstest2014, lower case. It is of greedy outputs here, and of a beam of 4 there,
# which has more BLEU. The clock runs from the start of nmt train to the first validation with so much BLEU, with all
# that is before it. Then the training is stopped. A run that was stopped before does not count, so it is not continued.
#
#   --bleu N      default 25.0
#   --out DIR     directory for all results; default runs/time-to-bleu
#   --local DIR   use the archives in DIR, or the text files out of them; download nothing
#   --smoke DIR   try everything on a CPU: a small model on Multi30k's captions, to 20 BLEU
#
# Environment: as of wmt14_en_de.sh.

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

bleu="" local="" smoke=""
read_flags "bleu out local smoke" "$@"
out="${out:-$checkout/runs/time-to-bleu${smoke:+-smoke}}" bleu="${bleu:-${smoke:+20}}" bleu="${bleu:-25.0}"
[[ ! -e "$out/run" ]] || usage_error "$out/run exists: the clock counts a whole training, give another --out"
train=(--preset mlperf --device cuda --max-steps 20000 --validate-every 400)
if [[ -n "$smoke" ]]; then
  train=("${captions[@]}" --device cpu --dropout 0.1 --learning-rate-scale 1 --max-steps 1000 --validate-every 50)
  text=(--train "$smoke/train" --valid "$smoke/val" --vocab-size 1000)
else
  [[ -e "$out/text" ]] || script corpora.py wmt17_en_de.json "$out" "$local" ""
  text=(--train "$out/text/europarl-v7" --train "$out/text/commoncrawl" --train "$out/text/news-commentary-v12"
    --valid "$out/text/newstest2014" --keep-duplicates --vocab-size 33000)
fi
[[ -e "$out/data" ]] || nmt prepare --source-lang en --target-lang de "${text[@]}" --normalization none \
  --out "$out/data"
made_from data "$smoke" "$local"

began="$(date +%s)"
"$recipes/train.sh" "$out/data" --out "$out/run" "${train[@]}" --best-by bleu-lc "${train_flags[@]}" &
while kill -0 "$!" 2>/dev/null; do
  sleep 1
  script time_to_bleu.py reached "$out/run" "$bleu" || continue
  seconds="$(($(date +%s) - began))" && pkill -TERM -P "$!" && break
done
wait "$!" || [[ -n "${seconds-}" ]]
[[ -n "${seconds-}" ]] || die "no validation had $bleu BLEU: see $out/run/metrics.jsonl"
script time_to_bleu.py table "$out/run" "$bleu" "$seconds" | tee "$out/table.md"
