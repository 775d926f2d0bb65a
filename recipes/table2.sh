#!/usr/bin/env bash
# Table 2 of the paper: the Transformer and the systems it was compared with, on the same text, by the same training loop
# and the same search.
#
#   recipes/table2.sh [--target de|fr] [--systems "SYSTEM ..."] [--seeds N] [FLAG ...] [-- FLAGS OF nmt train]
#   recipes/table2.sh --multi30k DIR [--minutes M] [--systems ...] [--seeds N] [FLAG ...] [-- FLAGS OF nmt train]
#
# Each system is trained at its published size (presets NAME_paper, transformer_base, transformer_big), for a machine with
# 8 GPUs; the last checkpoint (Transformers: the mean of the last 5 or 20) translates newstest2014 with beam 4 and alpha
# 0.6. GNMT goes on with the criterion expected_reward for a tenth of its steps (GNMT + RL). ByteNet has characters, and
# Deep-Att words; unknown words of its output are replaced by the source words that it attends to (PosUnk). With several
# seeds, Deep-Att, GNMT + RL and ConvS2S are also an ensemble, as in Table 2. Text and Transformers are shared with
# recipes/wmt14_en_de.sh (or wmt14_en_fr.sh), in the same directory. Ends with a table: the paper, this run, the
# difference; costs; speed. Run it again to continue after a stop.
#
# With --multi30k, all systems are small and have the same number of parameters (presets NAME_small and multi30k, 2.6
# million) and the same time: 80 steps measure a system's speed, which gives the number of steps of its training. The
# learning rate rises to the preset's highest one in the first eighth of the steps and falls to zero. GNMT has four
# fifths of the time, and its RL, with 256 tokens a batch, one fifth. The mean of the last 5 checkpoints translates
# test_2016_flickr. Two processes of one thread (PROCESSES, OMP_NUM_THREADS). With matplotlib, curves.svg has the
# learning curves.
#
#   --target LANG   de (the default) or fr
#   --systems LIST  of these (default: all): bytenet deep_att gnmt convs2s moe base big; --multi30k has no big. At full
#                   size moe must be named, as each GPU needs 140 GB for its weights, gradients and optimizer. SYSTEM*N
#                   has N seeds: "gnmt*3 base*3 moe"
#   --seeds N       train each system with N seeds (default 1); the table shows means and standard deviations
#   --multi30k DIR  has train, val and test_2016_flickr, each .en and .de, plain or .gz
#   --minutes M     with --multi30k: minutes of training of each system and seed; default 30

source "$(dirname "${BASH_SOURCE[0]}")/wmt14_stages.sh"

target=de systems=() multi30k="" minutes="" seeds=1 note=""
while (($#)); do
  case "$1" in
    --target | --systems | --multi30k | --minutes | --seeds)
      (($# > 1)) || usage_error "$1 needs a value"
      stage_flag_words=2
      ;;&
    --target) target="$2" ;;
    --systems) read -ra systems <<<"${2//,/ }" ;;
    --multi30k) multi30k="$2" ;;
    --minutes) minutes="$2" ;;
    --seeds) seeds="$2" ;;
    --smoke) usage_error "a smoke test: --multi30k DIR --minutes 1" ;;
    *) wmt14_flag "$@" ;;
  esac
  shift "$stage_flag_words"
done
suffix="" # of presets for English to French
declare -A vocabulary=([bytenet]=characters [deep_att]=words) # of systems that have their own
characters=(--subwords character --vocab-size 400)
words=(--moses --subwords none --vocab-size 80000 --separate-vocabularies)
case "$target" in
  de) wmt14_define en de --subwords bpe --vocab-size 37000 ;;
  fr)
    suffix=_en_fr
    wmt14_define en fr --subwords wordpiece --vocab-size 32000 --character-coverage 0.9999 \
      --max-words 175 --max-ratio 1.5 --ratio-unit words
    ;;
  *) usage_error "--target is de or fr, not $target" ;;
esac
find_nmt
known="$(recipe_script table2.py systems)"
defaults="${known/ moe/}" name="wmt14-en-$target" scale=full measures="--metric decomposition"
if [[ -n "$multi30k" ]]; then
  [[ "$target" == de ]] || usage_error "--multi30k is English to German"
  minutes="${minutes:-30}" name=table2-multi30k scale=small measures="--metric multi30k --metric bleu-lc"
  [[ "$minutes" =~ ^[1-9][0-9]*$ ]] || usage_error "--minutes needs a whole number, not $minutes"
  multi30k_define "$multi30k"
  known="${known% big}" defaults="${known% big}" vocabulary=([deep_att]=words) words=(--subwords none)
  note="Multi30k English to German, small models, $minutes minutes of training each: not comparable with the paper's."
elif [[ -n "$minutes" ]]; then
  usage_error "--minutes is for --multi30k; at full size: -- --max-steps N"
else
  needs_gpu=yes
fi
# shellcheck disable=SC2086  # names without spaces
((${#systems[@]})) || systems=($defaults)
read_items system "$seeds" "$known" "${systems[@]}"

# train_from DATA RUN CHECKPOINT SETTINGS FLAG...: nmt train with the settings, and from the checkpoint unless it is empty.
train_from() {
  train_everywhere "$1" --out "$2" ${3:+--init-from "$PWD/$3"} --config "$PWD/$4" "${@:5}"
}

# settings_stage NAME NEEDS FILE ARGUMENTS OF table2.py settings...
settings_stage() { stage "$1" "settings of a training" "table2.py $2" "$3" to_file "$3" recipe_script table2.py settings "${@:4}"; }

# train_from_stage RUN NEEDS CHECKPOINT SETTINGS FLAG...
train_from_stage() {
  stage --resumes "train-$1" "with $4" "$prepare $2" "$1/run/checkpoints/step-*/model.safetensors" \
    train_from "$data" "$1/run" "$3" "$4" "${@:5}"
}

# trial_stage NAME NEEDS COMMAND...: measure the speed of a system.
trial_stage() {
  stage "trial-$1" "$trial_steps steps, to measure the speed" "$prepare $2" "$1/trial" "${@:3}" --max-steps "$trial_steps" \
    --log-every "$((trial_steps / 4))" --save-every "$trial_steps" --validate-every 1000000 --keep-last 1
}

# minutes_of TENTHS: print so many tenths of --minutes.
minutes_of() { printf '%d.%dm' "$((minutes * $1 / 10))" "$((minutes * $1 % 10))"; }

# system_stages NAME: train and test a system with each of its seeds, and GNMT + RL after GNMT.
system_stages() {
  local own="${vocabulary[$1]:+-${vocabulary[$1]}}" preset="$1_paper" last=1 keep=(--keep-last 1) tenths=10
  local flags=() seed seed_flags run data="data$own" prepare="prepare$own"
  [[ "$1" != deep_att ]] || flags=(--replace-unknown)
  [[ "$scale $1" != "full bytenet" ]] || flags=(--max-length-offset 200) # characters
  [[ "$1" != gnmt ]] || tenths=8
  case "$scale $1" in
    "full base") preset=transformer_base last=5 keep=() ;;
    "full big") preset="transformer_big$suffix" last=20 keep=() ;;
    "full convs2s" | "full gnmt") preset="$1_paper$suffix" ;;
    "small base") preset=multi30k last=5 ;;
    small*) preset="$1_small" last=5 ;;
  esac
  if [[ "$scale" == small ]]; then
    trial_stage "$1" "" train_everywhere "$data" --out "$1/trial" --preset "$preset" "${train_flags[@]}"
    settings_stage "settings-$1" "trial-$1" "$1/settings.json" "$1/trial" "$(minutes_of "$tenths")"
  fi
  for ((seed = 1; seed <= item_seeds[$1]; seed++)); do
    run="$(run_of "$1" "$seed")" seed_flags=()
    ((seed == 1)) || seed_flags=(--seed "$seed")
    if [[ "$scale" == small ]]; then
      train_from_stage "$run" "settings-$1" "" "$1/settings.json" "${seed_flags[@]}"
    else
      stage --resumes "train-$run" "preset $preset" "$prepare" "$run/run/checkpoints/step-*/model.safetensors" \
        train_everywhere "$data" --out "$run/run" --preset "$preset" "${keep[@]}" "${seed_flags[@]}" \
        "${train_flags[@]}"
    fi
    test_stages "$run" "$last" "$measures" "${flags[@]}"
    needed+=("train-$run" "score-$run")
    [[ "$1" != gnmt ]] || reward_stages "$run" "$(run_of gnmt_rl "$seed")" "$last" "${seed_flags[@]}"
  done
  if ((item_seeds[$1] > 1)) && [[ "$1" == deep_att || "$1" == gnmt || "$1" == convs2s ]]; then
    ensemble_stages "${1/gnmt/gnmt_rl}" "${item_seeds[$1]}" "${flags[@]}"
  fi
}

# reward_stages GNMT_RUN RUN LAST FLAG...: train a trained model with the criterion expected_reward.
reward_stages() {
  local settings="settings-$2" file="$2/settings.json"
  local trial_steps=16 # each takes as long as dozens by likelihood, so the batch is small, too
  if [[ "$scale" == full ]]; then
    settings_stage "$settings" "train-$1" "$file" "$1/run" 10% reward
  elif [[ "$2" == gnmt_rl ]]; then
    settings_stage trial-settings-gnmt_rl "train-$1" gnmt_rl/trial.json "$1/run" "$trial_steps" reward
    trial_stage gnmt_rl "average-$1 trial-settings-gnmt_rl" train_from data gnmt_rl/trial "$1/averaged" gnmt_rl/trial.json \
      --batch-tokens 256
    settings_stage "$settings" trial-gnmt_rl "$file" gnmt_rl/trial "$(minutes_of 2)"
  else
    settings=settings-gnmt_rl file=gnmt_rl/settings.json # those of the first seed
  fi
  train_from_stage "$2" "average-$1 $settings" "$1/averaged" "$file" "${@:4}"
  test_stages "$2" "$3" "$measures"
  needed+=("train-$2" "score-$2")
}

# ensemble_stages NAME SEEDS FLAGS OF nmt translate...
ensemble_stages() {
  local seed needs="" checkpoints="" score_flags
  for ((seed = 1; seed <= $2; seed++)); do
    needs+=" average-$(run_of "$1" "$seed")" checkpoints+=" $(run_of "$1" "$seed")/averaged"
  done
  read -ra score_flags <<<"$measures"
  translate_stage "translate-$1-ensemble" "the test set, with $2 models" "$needs" "$checkpoints" test \
    "$1-ensemble/test.$target" "${@:3}"
  score_stage "score-$1-ensemble" "its BLEU" "translate-$1-ensemble" "$1-ensemble/test.$target" test \
    "$1-ensemble/score.json" "${score_flags[@]}"
  needed+=("score-$1-ensemble")
}

wmt14_data_stages "$name"
needed=() trial_steps=80
for system in "${item_names[@]}"; do
  case "${vocabulary[$system]-}" in
    characters) prepare_stage prepare-characters data-characters "${characters[@]}" ;;
    words) prepare_stage prepare-words data-words "${words[@]}" ;;
  esac
  system_stages "$system"
done
table_stage "table2-$target" "table2.py ${needed[*]}" table2.py table "$scale" "$target" "$(shown_items)" ${note:+"$note"}
if [[ "$scale" == small ]]; then
  stage curve-points "dev BLEU against minutes" "table2.py ${needed[*]}" curves.json \
    to_file curves.json recipe_script table2.py curves "$(shown_items)"
  figure_stage curves "learning curves" curve-points learning
fi
run_stages
show_table "table2-$target"
show_figure curves
