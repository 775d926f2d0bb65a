#!/usr/bin/env bash
# WMT14 English to French, from the raw downloads to Table 2 of the paper.
#
#   recipes/wmt14_en_fr.sh [--model base|big] [FLAG ...] [-- FLAGS OF nmt train]
#
# Europarl v7, Common Crawl, the UN's corpus, News Commentary v9 and the 10^9 corpus, 40.8 million pairs, of which a
# filter (at most 175 words, one side at most 1.5 times the other) leaves about 35.5 million; 32,000 word pieces; dev
# set newstest2013, test set newstest2014 (3003 lines). 25,000 + 25,000 tokens a batch on any number of GPUs. base:
# 100,000 steps, the last 5 checkpoints averaged; big (P_drop 0.1): 300,000 and 20. Beam 4, alpha 0.6. 6.6 GB are
# downloaded; the results take about 45 GB (base) or 90 GB (big). Ends with a table: the paper, this run, the
# difference. Run it again to continue after a stop.
#
#   --model NAME   base (the default) or big
#   --smoke-gpu [DIR]   as --smoke, but with this model on all GPUs, for 100 steps: the first command on a new machine

source "$(dirname "${BASH_SOURCE[0]}")/wmt14_stages.sh"

wmt14_define en fr --subwords wordpiece --vocab-size 32000 --character-coverage 0.9999 \
  --max-words 175 --max-ratio 1.5 --ratio-unit words
wmt14_main wmt14-en-fr transformer_base transformer_big_en_fr "$@"
