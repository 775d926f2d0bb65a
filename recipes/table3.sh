#!/usr/bin/env bash
# Table 3 of the paper: variations on the base model, English to German, on newstest2013.
#
#   recipes/table3.sh [--rows "ROW ..."] [FLAG ...] [-- FLAGS OF nmt train]
#   recipes/table3.sh --multi30k FOLDER [--steps N] [--rows "ROW ..."] [FLAG ...] [-- FLAGS OF nmt train]
#
# Each row is trained (100,000 steps; big 300,000), translates the dev set with beam 4 and alpha 0.6 without averaging, and
# is scored; dev perplexity is that of the last step. Data and folder are those of recipes/wmt14_en_de.sh: what one has
# done the other does not repeat. Ends with a table: the paper, this run, the difference. Interrupted, it goes on where it
# stopped when it is run again.
#
# With --multi30k, the rows are made small enough for a CPU: d_model, d_ff, d_k and d_v are a quarter, N is half, h,
# dropout, label smoothing and positions are as in the paper; 4,000 BPE pieces; 2048 tokens a batch; dev set val. The table
# then compares the difference that each row makes to the base model with the difference in the paper.
#
#   --rows LIST        of these (by default all): base A_h1 A_h4 A_h16 A_h32 B_dk16 B_dk32 C_N2 C_N4 C_N8 C_d256 C_d1024
#                      C_dff1024 C_dff4096 D_dropout0.0 D_dropout0.2 D_smoothing0.0 D_smoothing0.2 E big
#   --multi30k FOLDER  holds train, val and test_2016_flickr, each .en and .de, plain or .gz
#   --steps N          with --multi30k: how long each row is trained; 400 by default, and big three times as long

source "$(dirname "${BASH_SOURCE[0]}")/wmt14_stages.sh"

rows=() multi30k="" row_steps="" note=""
while (($#)); do
  case "$1" in
    -h | --help) show_help && wmt14_flags_help && exit ;;
    --rows | --multi30k | --steps) (($# > 1)) || usage_error "$1 needs a value" ;;&
    --rows) read -ra rows <<<"${2//,/ }" && shift 2 ;;
    --multi30k) multi30k="$2" && shift 2 ;;
    --steps) row_steps="$2" && shift 2 ;;
    *) wmt14_flag "$@" && shift "$taken" ;;
  esac
done
[[ -z "$multi30k" || -z "$smoke$local_folder" ]] || usage_error "--multi30k goes with neither --smoke nor --local"
[[ -z "$multi30k" || -d "$multi30k" ]] || usage_error "--multi30k $multi30k: there is no such folder"
[[ -n "$multi30k" || -z "$row_steps" ]] || usage_error "--steps is for --multi30k; at full size: -- --max-steps N"
[[ -z "$row_steps" || "$row_steps" =~ ^[1-9][0-9]*$ ]] || usage_error "--steps needs a number, not $row_steps"

if [[ -n "$multi30k" ]]; then
  local_folder="$multi30k" row_steps="${row_steps:-400}"
  note="Multi30k English to German, $row_steps steps a row, and not WMT14: no figure is comparable with the paper's."
  wmt14_define de --subwords bpe --vocab-size 4000
  wmt14_table="$checkout/recipes/multi30k_en_de.json"
  wmt14_begin table3-multi30k
else
  wmt14_define de --subwords bpe --vocab-size 37000
  # The smoke test has a folder of its own; at full size, text and base model are those of wmt14_en_de.sh.
  if [[ -n "$smoke" ]]; then
    PROCESSES="${PROCESSES:-1}" && wmt14_begin table3
  else
    wmt14_begin wmt14-en-de
  fi
fi
if [[ -n "$smoke" ]]; then
  row_steps=2 note="A smoke test, with tiny models on a little text: it shows that the recipe works, and nothing about quality."
fi

mapfile -t known < <(paper_tables rows)
if [[ -n "$smoke" && ${#rows[@]} == 0 ]]; then rows=(base B_dk16); fi
((${#rows[@]})) || rows=("${known[@]}")
for row in "${rows[@]}"; do
  [[ " ${known[*]} " == *" $row "* ]] || usage_error "there is no row $row, only ${known[*]}"
done
# Differences to the base model need the base model.
[[ -z "$row_steps" || " ${rows[*]} " == *" base "* ]] || rows=(base "${rows[@]}")

wmt14_data_stages
scored=()
for row in "${rows[@]}"; do
  small_flags=()
  [[ -z "$row_steps" ]] || mapfile -t small_flags < <(paper_tables flags "$row" "$row_steps")
  [[ -z "$smoke" ]] || small_flags+=(--batch-tokens 512 --device cpu)
  train_stage "$row" "$(paper_tables preset "$row")" "${small_flags[@]}"
  stage "dev-$row" "the dev set, with the last checkpoint" "extract train-$row" "$row/dev.$target_language" \
    translate_split valid "$row/run" "$row/dev.$target_language"
  stage "dev-score-$row" "its BLEU" "extract dev-$row" "$row/dev-score.json" \
    score_split valid "$row/dev.$target_language" "$row/dev-score.json" paper sacrebleu-13a
  scored+=("train-$row" "dev-score-$row")
done
scale=full
[[ -z "$row_steps" ]] || scale=small
table_stage table3 "${scored[*]}" table3 "$scale" "$note" "${rows[@]}"
run_stages
show_table table3
