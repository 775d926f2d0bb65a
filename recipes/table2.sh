#!/usr/bin/env bash
# Table 2 of the paper: the Transformer and the systems that it was compared with, on the same text, by the same
# training loop and the same search.
#
#   recipes/table2.sh [--target de|fr] [--systems "SYSTEM ..."] [FLAG ...] [-- FLAGS OF nmt train]
#   recipes/table2.sh --multi30k DIR [--minutes M] [--systems ...] [FLAG ...] [-- FLAGS OF nmt train]
#
# Each system is trained at its published size (presets NAME_paper, transformer_base, transformer_big), on a machine
# with 8 GPUs; the last checkpoint (Transformers: the mean of the last 5 or 20) translates newstest2014 with beam 4
# and alpha 0.6. GNMT goes on with the criterion expected_reward for a tenth of its steps (GNMT + RL). ByteNet has
# characters, and Deep-Att words; unknown words of its output are replaced by the source words that it attends to
# (PosUnk). With several seeds, Deep-Att, GNMT + RL and ConvS2S are also an ensemble, as in Table 2. Text and
# Transformers are shared with recipes/wmt14_en_de.sh (or wmt14_en_fr.sh), in the same directory. Ends with a table:
# the paper, this run, the difference; costs; speed. Run it again to continue after a stop.
#
# With --multi30k, all systems are small and have the same number of parameters (presets NAME_small and multi30k, 2.6
# million) and the same time: 80 steps measure a system's speed, which gives the number of steps of its training. The
# learning rate rises to the preset's highest one in the first eighth of the steps and falls to zero. GNMT has four
# fifths of the time, and its RL, with 256 tokens a batch, one fifth. The mean of the last 5 checkpoints translates
# test_2016_flickr. Two processes of one thread (PROCESSES, OMP_NUM_THREADS).
#
#   --target LANG   de (the default) or fr
#   --systems LIST  of these (default: all): bytenet deep_att gnmt convs2s moe base big; --multi30k has no big. At full
#                   size moe must be named, as each GPU needs 140 GB for its weights, gradients and optimizer. SYSTEM*N
#                   has N seeds: "gnmt*3 base*3 moe". Their table shows means and standard deviations
#   --multi30k DIR  has train, val and test_2016_flickr, each .en and .de, plain or .gz
#   --minutes M     with --multi30k: minutes of training of each system and seed; default 30
#   --out DIR, --local DIR   as for recipes/wmt14_en_de.sh

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

target=de systems="" multi30k="" minutes="" local="" note=""
read_flags "target systems multi30k minutes out local" "$@"
[[ "$target" == de || "$target" == fr ]] || usage_error "--target is de or fr, not $target"
scale=full name="wmt14-en-$target" suffix="" measures=(--metric decomposition) train=(--device cuda "${train_flags[@]}")
[[ "$target" == de ]] || suffix=_en_fr # of presets
if [[ -n "$multi30k" ]]; then
  [[ "$target" == de && -z "$local" ]] || usage_error "--multi30k is English to German, without --local"
  scale=small name=table2-multi30k minutes="${minutes:-30}" train=("${train_flags[@]}")
  measures=(--metric multi30k --metric bleu-lc)
  note="Multi30k English to German, small models, $minutes minutes of training each: not comparable with the paper's."
  export PROCESSES="${PROCESSES:-2}" OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
elif [[ -n "$minutes" ]]; then
  usage_error "--minutes is for --multi30k; at full size: -- --max-steps N"
fi
items="$(script table2.py items "$scale" "$systems")"
out="${out:-$checkout/runs/$name}"

# preset_of SYSTEM: print its preset.
preset_of() {
  case "$scale $1" in
    "small base") echo multi30k ;;
    small*) echo "$1_small" ;;
    *base) echo transformer_base ;;
    *big) echo "transformer_big$suffix" ;;
    *convs2s | *gnmt) echo "$1_paper$suffix" ;;
    *) echo "$1_paper" ;;
  esac
}

# prepared DATA FLAG...: the text as ids.
prepared() {
  [[ -e "$out/$1" ]] || nmt prepare --source-lang en --target-lang "$target" "${text[@]}" --normalization none \
    --keep-duplicates "${@:2}" --out "$out/$1"
}

# trained RUN FLAG...: nmt train, which goes on or has ended.
trained() { "$recipes/train.sh" "$out/$data" --out "$out/$1/run" "${@:2}"; }

# settings_of FILE RUN AMOUNT [reward]: the settings of a training, by the speed or the length of another.
settings_of() { [[ -e "$out/$1" ]] || to_file "$out/$1" script table2.py settings "$out/$2" "${@:3}"; }

# trial SYSTEM STEPS FLAG...: a short training, to measure the speed.
trial() {
  "$recipes/train.sh" "$out/$data" --out "$out/$1/trial" "${@:3}" --max-steps "$2" --log-every "$(($2 / 4))" \
    --save-every "$2" --validate-every 1000000 --keep-last 1
}

# minutes_of TENTHS: print so many tenths of --minutes.
minutes_of() { printf '%d.%dm' "$((minutes * $1 / 10))" "$((minutes * $1 % 10))"; }

# tested RUN FLAG...: average the last checkpoints, translate and score.
tested() {
  [[ "$out/$1/averaged" -nt "$out/$1/run/checkpoints" ]] ||
    nmt average "$out/$1/run" --last "$last" --out "$out/$1/averaged" --overwrite
  scored "$1" "$out/$1/averaged" "${@:2}"
}

# scored RESULT MODEL... FLAG...: translate the test set, with the speed in a log, and score it.
scored() {
  local hypotheses="$out/$1/test.$target"
  [[ "$hypotheses" -nt "$2" ]] || to_file "$hypotheses" with_log "$hypotheses.log" \
    nmt translate "${@:2}" --input "$out/data/test.source.txt" --beam 4 --alpha 0.6 --exact-stopping
  [[ "$out/$1/score.json" -nt "$hypotheses" ]] || to_file "$out/$1/score.json" \
    nmt score "$hypotheses" --ref "$out/data/test.target.txt" --target-lang "$target" "${measures[@]}" --json
}

# reward GNMT_RUN RUN FLAG...: train a trained model with the criterion expected_reward.
reward() {
  local settings="$2/settings.json"
  if [[ "$scale" == full ]]; then
    settings_of "$settings" "$1/run" 10% reward
  else
    # Few steps and a small batch, as a step takes as long as dozens by likelihood. All seeds have the first's settings.
    settings=gnmt_rl/settings.json
    settings_of gnmt_rl/trial.json "$1/run" 16 reward
    [[ -e "$out/gnmt_rl/trial/summary.json" ]] ||
      trial gnmt_rl 16 --init-from "$out/$1/averaged" --config "$out/gnmt_rl/trial.json" --batch-tokens 256
    settings_of "$settings" gnmt_rl/trial "$(minutes_of 2)"
  fi
  trained "$2" --init-from "$out/$1/averaged" --config "$out/$settings" "${@:3}"
  tested "$2"
}

# Wrong flags, and the lack of a GPU, end the recipe here.
for item in $items; do
  [[ -e "$out/data" ]] ||
    nmt train --dry-run --vocab-size 1000 --preset "$(preset_of "${item%\**}")" "${train[@]}" >/dev/null
done

# The text. ByteNet has characters, Deep-Att words
if [[ "$scale" == small ]]; then
  text=(--train "$multi30k/train" --valid "$multi30k/val" --test "$multi30k/test_2016_flickr" --moses --lowercase)
  prepared data --subwords bpe --vocab-size 10000
  made_from data "$multi30k" "$minutes minutes"
  words=(--subwords none --vocab-size 10000)
else
  "$recipes/wmt14_en_$target.sh" --data-only --out "$out" ${local:+--local "$local"}
  text=(--valid "$out/text/newstest2013" --test "$out/text/newstest2014")
  corpora=(europarl-v7 commoncrawl news-commentary-v9)
  if [[ "$target" == fr ]]; then
    text+=(--character-coverage 0.9999 --max-words 175 --max-ratio 1.5 --ratio-unit words)
    corpora=(europarl-v7 commoncrawl un-2000 news-commentary-v9 giga-fren)
  fi
  for corpus in "${corpora[@]}"; do text+=(--train "$out/text/$corpus"); done
  words=(--moses --subwords none --vocab-size 80000 --separate-vocabularies)
  [[ " $items" != *" bytenet"* ]] || prepared data-characters --subwords character --vocab-size 400
fi
[[ " $items" != *" deep_att"* ]] || prepared data-words "${words[@]}"

for item in $items; do
  system="${item%\**}" seeds="${item#*\*}" data=data last=5 keep=() flags=() models=()
  case "$scale $system" in
    *" deep_att") data=data-words flags=(--replace-unknown) ;;
    "full bytenet") data=data-characters flags=(--max-length-offset 200) ;;
    "full big") last=20 ;;
  esac
  [[ "$scale" == small || "$system" == base || "$system" == big ]] || last=1 keep=(--keep-last 1)
  settings=(--preset "$(preset_of "$system")" "${keep[@]}")
  if [[ "$scale" == small ]]; then
    trial "$system" 80 "${settings[@]}" "${train[@]}"
    share=10
    [[ "$system" != gnmt ]] || share=8
    settings_of "$system/settings.json" "$system/trial" "$(minutes_of "$share")"
    settings=(--config "$out/$system/settings.json")
  else
    settings+=("${train[@]}")
  fi
  for ((seed = 1; seed <= seeds; seed++)); do
    number="" seed_flags=()
    ((seed == 1)) || number="-$seed" seed_flags=(--seed "$seed")
    trained "$system$number" "${settings[@]}" "${seed_flags[@]}"
    tested "$system$number" "${flags[@]}"
    [[ "$system" != gnmt ]] || reward "gnmt$number" "gnmt_rl$number" "${seed_flags[@]}"
    models+=("$out/${system/gnmt/gnmt_rl}$number/averaged")
  done
  [[ "$seeds" == 1 || ! "$system" =~ ^(deep_att|gnmt|convs2s)$ ]] ||
    scored "${system/gnmt/gnmt_rl}-ensemble" "${models[@]}" "${flags[@]}"
done
cd "$out"
script table2.py table "$scale" "$target" "$items" "$note" | tee "table2-$target.md"
