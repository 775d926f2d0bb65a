#!/usr/bin/env bash
# WMT14 English to German, from the raw downloads to Table 2 of the paper.
#
#   recipes/wmt14_en_de.sh [--model base|big] [FLAG ...] [-- FLAGS OF nmt train]
#
# Europarl v7, Common Crawl and News Commentary v9, 4.5 million pairs; a joint vocabulary of 37,000 BPE pieces; dev
# set newstest2013, test set newstest2014 (3003 lines). 25,000 + 25,000 tokens a batch on any number of GPUs. base:
# 100,000 steps, the last 5 checkpoints averaged; big: 300,000 and 20. Beam 4, alpha 0.6. 1.7 GB are downloaded; the
# results take about 25 GB (base) or 70 GB (big). Ends with a table: the paper, this run, the difference.
# Run it again to continue after a stop.
#
#   --model NAME   base (the default) or big
#   --smoke-gpu [DIR]   as --smoke, but with this model on all GPUs, for 100 steps: the first command on a new machine

source "$(dirname "${BASH_SOURCE[0]}")/wmt14_stages.sh"

wmt14_define en de --subwords bpe --vocab-size 37000
wmt14_main wmt14-en-de transformer_base transformer_big "$@"
