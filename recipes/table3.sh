#!/usr/bin/env bash
# Table 3 of the paper: variations on the base model, English to German, on newstest2013.
#
#   recipes/table3.sh [--rows "ROW ..."] [--seeds N] [FLAG ...] [-- FLAGS OF nmt train]
#   recipes/table3.sh --multi30k DIR [--steps N] [--rows "ROW ..."] [--seeds N] [FLAG ...] [-- FLAGS OF nmt train]
#
# Each row is trained (100,000 steps; big 300,000), translates the dev set with beam 4 and alpha 0.6 without
# averaging, and is scored; dev perplexity is that of the last step. Text and base model are shared with
# recipes/wmt14_en_de.sh, in the same directory. Ends with a table: the paper, this run, the difference. Run it again
# to continue after a stop.
#
# With --multi30k, the rows are made small enough for a CPU: d_model, d_ff, d_k and d_v are a quarter, N is half; h,
# label smoothing and positions are the paper's; dropout is 0.1 higher where there is any; the learning rate falls to
# zero; 10,000 BPE pieces of lower-cased Moses tokens; 2048 tokens a batch; dev set val. The table then compares each
# row's difference to the base model with that in the paper. With matplotlib, differences.svg shows them.
#
#   --rows LIST     of these (default: all): base A_h1 A_h4 A_h16 A_h32 B_dk16 B_dk32 C_N2 C_N4 C_N8 C_d256 C_d1024
#                   C_dff1024 C_dff4096 D_dropout0.0 D_dropout0.2 D_smoothing0.0 D_smoothing0.2 E big; ROW*N has N seeds
#   --seeds N       train each row with N seeds (default 1); the table shows means and standard deviations
#   --multi30k DIR  has train, val and test_2016_flickr, each .en and .de, plain or .gz
#   --steps N       with --multi30k: steps of each row; 3200 by default, and big three times as many

source "$(dirname "${BASH_SOURCE[0]}")/wmt14_stages.sh"

rows=() multi30k="" row_steps="" seeds=1 note="" name=wmt14-en-de
while (($#)); do
  case "$1" in
    --rows | --multi30k | --steps | --seeds)
      (($# > 1)) || usage_error "$1 needs a value"
      stage_flag_words=2
      ;;&
    --rows) read -ra rows <<<"${2//,/ }" ;;
    --multi30k) multi30k="$2" ;;
    --steps) row_steps="$2" ;;
    --seeds) seeds="$2" ;;
    *) wmt14_flag "$@" ;;
  esac
  shift "$stage_flag_words"
done
[[ -z "$row_steps" || "$row_steps" =~ ^[1-9][0-9]*$ ]] || usage_error "--steps needs a number, not $row_steps"
wmt14_define en de --subwords bpe --vocab-size 37000
measures=(--metric paper --metric bleu)
if [[ -n "$multi30k" ]]; then
  multi30k_define "$multi30k"
  name=table3-multi30k row_steps="${row_steps:-3200}" measures=(--metric multi30k --metric bleu-lc)
  note="Multi30k English to German, $row_steps steps a row (big: three times as many), and not WMT14: "
  note+="no figure is comparable with the paper's."
elif [[ -n "$row_steps" ]]; then
  usage_error "--steps is for --multi30k; at full size: -- --max-steps N"
elif [[ -n "$smoke" ]]; then
  export PROCESSES="${PROCESSES:-1}"
  name=table3 row_steps=2
  note="A smoke test, with tiny models on a little text: it shows that the recipe works, and nothing about quality."
  ((${#rows[@]})) || rows=(base B_dk16)
fi
find_nmt
known="$(recipe_script table3.py rows)"
# Differences to the base model need the base model.
[[ -z "$row_steps" || ${#rows[@]} -eq 0 || " ${rows[*]}" == *" base"* ]] || rows=(base "${rows[@]}")
# shellcheck disable=SC2086  # names without spaces
((${#rows[@]})) || rows=($known)
read_items row "$seeds" "$known" "${rows[@]}"

wmt14_data_stages "$name"
[[ -n "$row_steps" ]] || needs_gpu=yes
scored=() scale=full
[[ -z "$row_steps" ]] || scale=small
for row in "${item_names[@]}"; do
  row_flags=()
  [[ -z "$row_steps" ]] || mapfile -t row_flags < <(recipe_script table3.py flags "$row" "$row_steps")
  [[ -z "$smoke" ]] || row_flags+=(--batch-tokens 512 --device cpu)
  if [[ "$row" == base || "$row" == big ]]; then
    preset="transformer_$row"
  else
    preset="table3_$row"
    [[ "$scale" == small ]] || row_flags=(--keep-last 1)
  fi
  for ((seed = 1; seed <= item_seeds[$row]; seed++)); do
    run="$(run_of "$row" "$seed")" seed_flags=()
    ((seed == 1)) || seed_flags=(--seed "$seed")
    train_stage "train-$run" "$run/run" "preset $preset" --preset "$preset" "${row_flags[@]}" "${seed_flags[@]}"
    translate_stage "dev-$run" "the dev set, with the last checkpoint" "train-$run" "$run/run" valid "$run/dev.de"
    score_stage "dev-score-$run" "its BLEU" "dev-$run" "$run/dev.de" valid "$run/dev-score.json" "${measures[@]}"
    scored+=("train-$run" "dev-score-$run")
  done
done
table_stage table3 "${scored[*]}" table3.py "$scale" "$(shown_items)" ${note:+"$note"}
if [[ "$scale" == small ]]; then
  stage points "differences to the base model" "table3.py ${scored[*]}" differences.json \
    to_file differences.json recipe_script table3.py differences "$(shown_items)"
  figure_stage differences "their figure" points differences
fi
run_stages
show_table table3
show_figure differences
