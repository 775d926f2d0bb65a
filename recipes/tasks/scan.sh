#!/usr/bin/env bash
# SCAN (Lake and Baroni 2018): commands such as "jump twice" to actions, with four ways to know positions side by side.
#
#   recipes/tasks/scan.sh DIR SPLIT [--seeds N] [--out DIR] [-- FLAGS OF nmt train]
#
# The repository has no figures. The best LSTM of the paper has (quoted elsewhere) 99.8 on simple, 13.8 on length, 0.08
# on jump and 90.3 on turn_left. One in twenty training commands is for validation.
#
#   DIR        has tasks_train_length.txt, tasks_test_length.txt and so on: github.com/brendenlake/SCAN
#   SPLIT      simple, length, addprim_jump or addprim_turn_left
#   --seeds N  models of each kind (default 5)
#
# Environment: STEPS (default 1000) of each training.

source "$(dirname "${BASH_SOURCE[0]}")/task.sh"

seeds=5
read_flags "seeds out ..." "$@"
((${#words[@]} == 2)) || usage_error "give the directory of the files and a split"
split="${words[1]}" folder="${out:-$checkout/runs/scan-${words[1]}}"
declare -A kinds=(
  [absolute]="" [relative]="--attention relative --positions none" [rotary]="--attention rotary --positions none"
  [none]="--positions none"
)
translate=(--beam 1)

table() { text "tasks_$1_$split.txt" | sed 's/^IN: //; s/ OUT: /\t/' | awk "$2"; }

for kind in absolute relative rotary none; do
  out="$folder/$kind"
  read -ra positions <<<"${kinds[$kind]}"
  train=(--preset multi30k --num-layers 2 --dropout 0.1 --optimizer muon --zero-sublayers --schedule linear_decay
    --warmup-steps 100 --learning-rate-scale 0.3 --batch-sentences 128 "${positions[@]}")
  table_of train table train "NR % 20"
  table_of valid table train "NR % 20 == 0"
  table_of test table test 1
  data --subwords none --normalization none
  printf '\nPositions: %s\n\n' "$kind"
  systems "${STEPS:-1000}"
done
