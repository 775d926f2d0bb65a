#!/usr/bin/env bash
# Constituency parsing (section 6.3 of the paper): from a treebank to labelled bracketing F1 beside the paper's.
#
#   recipes/wsj_parsing.sh --ldc DIR | --treebank PATH... | --smoke  [FLAG ...] [-- FLAGS OF nmt train]
#
# Chooses dropout and learning rate on the dev set, trains, averages the last 5 checkpoints, and parses dev and test
# set, also with --constrained. Ends with a table. On a CPU: -- --preset parsing_small. Run it again after a stop.
#
#   --ldc DIR                 your copy of the Penn Treebank (LDC99T42): WSJ sections 02-21, 22, 23
#   --treebank PATH...        another treebank in Penn style: files or directories named train, dev and test
#   --semi-supervised TREES   train on these trees, too, with 32,000 subwords, beside the paper's 92.7
#   --linearisation FORM      vinyals, (NP XX )NP, the default; or authors, NP NN /NP
#   --dropouts, --scales      those to choose from: "0.1 0.2 0.3", and of the learning rate "0.5 1 2"; one of each is taken
#   --sweep-steps N           training steps for each pair of them; default 20000
#   --out DIR                 directory for all results
#   --smoke                   try everything with a tiny model on made-up trees, or on the first ones of --treebank

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

ldc="" treebank="" semi_supervised="" linearisation=vinyals dropouts="0.1 0.2 0.3" scales="0.5 1 2" sweep_steps=20000
smoke="" subwords=16000 train=(--preset parsing_wsj) most=0
read_flags "ldc treebank semi_supervised linearisation dropouts scales sweep_steps out smoke? ..." "$@"
kind="${ldc:+wsj}${treebank:+named}" kind="${kind:-${smoke:+toy}}"
[[ "$kind" =~ ^(wsj|named|toy)$ ]] || usage_error "give --ldc, --treebank or --smoke"
[[ -z "$semi_supervised" ]] || subwords=32000
out="${out:-$checkout/runs/parsing${semi_supervised:+-semi-supervised}${smoke:+-smoke}}"
if [[ -n "$smoke" ]]; then
  export PROCESSES="${PROCESSES:-1}" dropouts=0.1 scales="0.5 1" sweep_steps=4 subwords=100 most=300
  train=(--preset parsing_small --num-layers 1 --d-model 32 --d-ff 64 --max-steps 8 --save-every 1 --precision float32)
fi
train+=("${train_flags[@]}")
# parse MODEL SPLIT NAME FLAGS...: NAME.ptb, NAME.log, and the score, NAME.json
parse() {
  local weights="$1" && [[ ! -e "$1/checkpoints" ]] || weights="$1/checkpoints"
  [[ "$3.ptb" -nt "$weights" ]] || to_file "$3.ptb" with_log "$3.log" \
    nmt translate "$1" --input "$out/data/${2/dev/valid}.source.txt" --exact-stopping ${smoke:+--max-length-offset 30} "${@:4}"
  [[ "$3.json" -nt "$3.ptb" ]] ||
    to_file "$3.json" nmt score-trees "$3.ptb" --ref "$out/trees/$2.ptb" --gold-tags --json
}
[[ -e "$out/trees" ]] || script treebank.py "$kind" "$most" "$out/trees" "$ldc$treebank" "${words[@]}"
made_from trees "$ldc$treebank" "${words[@]}" ${semi_supervised:+--semi-supervised "$semi_supervised"} "$linearisation"
[[ -e "$out/data" ]] || nmt prepare --task parsing --train "$out/trees/train.ptb" --valid "$out/trees/dev.ptb" \
  --test "$out/trees/test.ptb" ${semi_supervised:+--train "$semi_supervised"} --keep-duplicates \
  --linearisation "$linearisation" --vocab-size "$subwords" --out "$out/data"
for dropout in $dropouts; do
  for scale in $scales; do
    point="$out/sweep/dropout-$dropout-scale-$scale"
    mkdir -p "$point" && [[ "$dropouts$scales" == *" "* ]] || continue # there is nothing to choose
    "$recipes/train.sh" "$out/data" --out "$point/run" "${train[@]}" --max-steps "$sweep_steps" --keep-last 1 \
      --dropout "$dropout" --attention-dropout "$dropout" --learning-rate-scale "$scale"
    parse "$point/run" dev "$point/dev" --beam 1
  done
done
read -ra chosen <<<"$(cd "$out" && script parsing_table.py flags)"
"$recipes/train.sh" "$out/data" --out "$out/run" "${train[@]}" "${chosen[@]}"
[[ "$out/averaged" -nt "$out/run/checkpoints" ]] || nmt average "$out/run" --last 5 --out "$out/averaged" --overwrite
for split in dev test; do
  parse "$out/averaged" "$split" "$out/$split"
  parse "$out/averaged" "$split" "$out/$split.constrained" --constrained
done
cd "$out" && script parsing_table.py "$kind" "${semi_supervised:+semi-supervised}" "${smoke:+smoke}" | tee table.md
