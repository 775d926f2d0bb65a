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
# label smoothing and positions are the paper's; dropout is 0.1 higher where there is any; the learning rate falls to
# zero; 10,000 BPE pieces of lower-cased Moses tokens; 2048 tokens a batch; dev set val. The table then compares each
# row's difference to the base model with that in the paper.
#
#   --rows LIST     of these (default: all): base A_h1 A_h4 A_h16 A_h32 B_dk16 B_dk32 C_N2 C_N4 C_N8 C_d256 C_d1024
#                   C_dff1024 C_dff4096 D_dropout0.0 D_dropout0.2 D_smoothing0.0 D_smoothing0.2 E big; ROW*N has N seeds,
#                   and the table their mean and standard deviation
#   --multi30k DIR  has train, val and test_2016_flickr, each .en and .de, plain or .gz
#   --steps N       with --multi30k: steps of each row; 3200 by default, and big three times as many
#   --out DIR, --local DIR, --smoke [DIR]   as for recipes/wmt14_en_de.sh

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

rows="" multi30k="" steps="" local="" smoke="" note="" scale=full name=wmt14-en-de
read_flags "rows multi30k steps out local smoke?" "$@"
measures=(--metric paper --metric bleu) train=(--device cuda)
if [[ -n "$multi30k" ]]; then
  [[ -z "$local$smoke" ]] || usage_error "--multi30k cannot be used with --local and --smoke"
  scale=small name=table3-multi30k steps="${steps:-3200}" measures=(--metric multi30k --metric bleu-lc) train=()
  note="Multi30k English to German, $steps steps a row (big: three times as many), and not WMT14: "
  note+="no figure is comparable with the paper's."
  export PROCESSES="${PROCESSES:-2}" OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
elif [[ -n "$steps" ]]; then
  usage_error "--steps is for --multi30k; at full size: -- --max-steps N"
elif [[ -n "$smoke" ]]; then
  scale=small name=table3-smoke steps=2 rows="${rows:-base B_dk16}" train=(--batch-tokens 512 --device cpu)
  note="A smoke test, with tiny models on a little text: it shows that the recipe works, and nothing about quality."
  export PROCESSES="${PROCESSES:-1}"
fi
items="$(script table3.py items "$scale" "$rows")"
out="${out:-$checkout/runs/$name}"

if [[ -z "$multi30k" ]]; then
  "$recipes/wmt14_en_de.sh" --data-only --out "$out" ${local:+--local "$local"} ${smoke:+--smoke "$smoke"}
else
  [[ -e "$out/data" ]] || nmt prepare --source-lang en --target-lang de --train "$multi30k/train" \
    --valid "$multi30k/val" --test "$multi30k/test_2016_flickr" --keep-duplicates --normalization none --moses \
    --lowercase --subwords bpe --vocab-size 10000 --out "$out/data"
  made_from data "$multi30k" "$steps steps"
fi
for item in $items; do
  row="${item%\**}" preset="table3_${item%\**}" flags=(--keep-last 1)
  [[ "$row" != base && "$row" != big ]] || preset="transformer_$row" flags=()
  [[ "$scale" == full ]] || mapfile -t flags < <(script table3.py flags "$row" "$steps")
  for ((seed = 1; seed <= ${item#*\*}; seed++)); do
    result="$out/$row" seed_flags=()
    ((seed == 1)) || result+="-$seed" seed_flags=(--seed "$seed")
    "$recipes/train.sh" "$out/data" --out "$result/run" --preset "$preset" "${flags[@]}" "${seed_flags[@]}" \
      "${train[@]}" "${train_flags[@]}"
    [[ "$result/dev.de" -nt "$result/run/checkpoints" ]] || to_file "$result/dev.de" \
      nmt translate "$result/run" --input "$out/data/valid.source.txt" --beam 4 --alpha 0.6 --exact-stopping
    [[ "$result/dev-score.json" -nt "$result/dev.de" ]] || to_file "$result/dev-score.json" \
      nmt score "$result/dev.de" --ref "$out/data/valid.target.txt" --target-lang de "${measures[@]}" --json
  done
done
cd "$out"
script table3.py table "$scale" "$items" "$note" | tee table3.md
