#!/usr/bin/env bash
# Table 3 of the paper: variations on the base model, English to German, on newstest2013.
#
#   recipes/table3.sh [--rows "ROW ..."] [FLAG ...] [-- FLAGS OF nmt train]
#   recipes/table3.sh --multi30k DIR [--steps N] [--rows "ROW ..."] [FLAG ...] [-- FLAGS OF nmt train]
#
# Each row is trained (100,000 steps; big 300,000), translates the dev set with beam 4 and alpha 0.6 without
# averaging, and is scored; dev perplexity is that of the last step. Text and base model are shared with
# recipes/wmt14_en_de.sh, in the same directory. Ends with a table: the paper, this run, the difference. Run it again
# to continue after a stop.
#
# With --multi30k, the rows are made small enough for a CPU: d_model, d_ff, d_k and d_v are a quarter, N is half; h,
# dropout, label smoothing and positions are the paper's; 4,000 BPE pieces; 2048 tokens a batch; dev set val. The
# table then compares each row's difference to the base model with that in the paper.
#
#   --rows LIST     of these (default: all): base A_h1 A_h4 A_h16 A_h32 B_dk16 B_dk32 C_N2 C_N4 C_N8 C_d256 C_d1024
#                   C_dff1024 C_dff4096 D_dropout0.0 D_dropout0.2 D_smoothing0.0 D_smoothing0.2 E big
#   --multi30k DIR  has train, val and test_2016_flickr, each .en and .de, plain or .gz
#   --steps N       with --multi30k: steps of each row; 400 by default, and big three times as many

source "$(dirname "${BASH_SOURCE[0]}")/wmt14_stages.sh"

rows=() multi30k="" row_steps="" note="" name=wmt14-en-de
while (($#)); do
  case "$1" in
    --rows | --multi30k | --steps)
      (($# > 1)) || usage_error "$1 needs a value"
      stage_flag_words=2
      ;;&
    --rows) read -ra rows <<<"${2//,/ }" ;;
    --multi30k) multi30k="$2" ;;
    --steps) row_steps="$2" ;;
    *) wmt14_flag "$@" ;;
  esac
  shift "$stage_flag_words"
done
[[ -z "$row_steps" || "$row_steps" =~ ^[1-9][0-9]*$ ]] || usage_error "--steps needs a number, not $row_steps"
wmt14_define en de --subwords bpe --vocab-size 37000
if [[ -n "$multi30k" ]]; then
  [[ -z "$smoke${NMT_LOCAL-}" ]] || usage_error "--multi30k excludes --smoke and --local"
  wmt14_flag --local "$multi30k"
  prepare_flags=(--subwords bpe --vocab-size 4000)
  name=table3-multi30k table=multi30k_en_de.json row_steps="${row_steps:-400}"
  note="Multi30k English to German, $row_steps steps a row, and not WMT14: no figure is comparable with the paper's."
elif [[ -n "$row_steps" ]]; then
  usage_error "--steps is for --multi30k; at full size: -- --max-steps N"
elif [[ -n "$smoke" ]]; then
  export PROCESSES="${PROCESSES:-1}"
  name=table3 row_steps=2
  note="A smoke test, with tiny models on a little text: it shows that the recipe works, and nothing about quality."
  ((${#rows[@]})) || rows=(base B_dk16)
fi

wmt14_data_stages "$name"
mapfile -t known < <(recipe_script paper_tables.py rows)
((${#rows[@]})) || rows=("${known[@]}")
for row in "${rows[@]}"; do
  [[ " ${known[*]} " == *" $row "* ]] || usage_error "there is no row $row; rows: ${known[*]}"
done
# Differences to the base model need the base model.
[[ -z "$row_steps" || " ${rows[*]} " == *" base "* ]] || rows=(base "${rows[@]}")

[[ -n "$row_steps" ]] || needs_gpu=yes
scored=() scale=full
[[ -z "$row_steps" ]] || scale=small
for row in "${rows[@]}"; do
  small_flags=()
  [[ -z "$row_steps" ]] || mapfile -t small_flags < <(recipe_script paper_tables.py flags "$row" "$row_steps")
  [[ -z "$smoke" ]] || small_flags+=(--batch-tokens 512 --device cpu)
  preset="table3_$row"
  [[ "$row" != base && "$row" != big ]] || preset="transformer_$row"
  train_stage "train-$row" "$row/run" "preset $preset" --preset "$preset" "${small_flags[@]}"
  translate_stage "dev-$row" "the dev set, with the last checkpoint" "train-$row" "$row/run" valid "$row/dev.de"
  score_stage "dev-score-$row" "its BLEU" "dev-$row" "$row/dev.de" valid "$row/dev-score.json" \
    --metric paper --metric bleu
  scored+=("train-$row" "dev-score-$row")
done
table_stage table3 "${scored[*]}" table3 "$scale" "${rows[*]}" ${note:+"$note"}
run_stages
show_table table3
