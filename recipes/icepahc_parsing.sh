#!/usr/bin/env bash
# Constituency parsing of Icelandic on a free treebank as large as the WSJ: the steps of wsj_parsing.sh, and a table
# beside the Berkeley parser of the corpus's authors.
#
#   recipes/icepahc_parsing.sh --corpus DIR [FLAG ...] [-- FLAGS OF nmt train]
#
# On a CPU: -- --preset parsing_small. The flags of docs/results.md, an hour on a core:
#   --linearisation authors --dropouts 0.1 --scales 1 -- --preset parsing_small --optimizer muon --attention rotary \
#   --positions none --zero-sublayers --schedule linear_decay --warmup-steps 200 --batch-tokens 2048 \
#   --max-steps 12000 --decay-steps 12000 --save-every 100
# Run it again after a stop.
#
#   --corpus DIR              a clone of https://github.com/antonkarl/icecorpus (CC BY 4.0), with the authors' outputs
#   --same-texts              train on the texts that the authors' parser was trained on, less those of the dev set
#   --linearisation, --dropouts, --scales, --sweep-steps   as in wsj_parsing.sh
#   --out DIR                 directory for all results
#   --smoke                   try everything with a tiny model on the first trees

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

corpus="" same_texts="" linearisation="" dropouts="" scales="" sweep_steps="" smoke=""
read_flags "corpus same_texts? linearisation dropouts scales sweep_steps out smoke?" "$@"
[[ -n "$corpus" ]] || usage_error "give --corpus"
out="${out:-$checkout/runs/icepahc${same_texts:+-same-texts}${smoke:+-smoke}}"

[[ -e "$out/treebank" ]] || script icepahc.py treebank "$corpus" "$out/treebank" ${same_texts:+same-texts}
made_from treebank "$corpus" "${same_texts:+same-texts}"
"$recipes/wsj_parsing.sh" --treebank "$out/treebank" --out "$out" ${linearisation:+--linearisation "$linearisation"} \
  ${dropouts:+--dropouts "$dropouts"} ${scales:+--scales "$scales"} ${sweep_steps:+--sweep-steps "$sweep_steps"} \
  ${smoke:+--smoke} -- "${train_flags[@]}"
cd "$out" && script icepahc.py compare "$corpus" | tee -a table.md
