#!/usr/bin/env bash
# Constituency parsing (section 6.3 of the paper): from a treebank to labelled bracketing F1 beside the paper's.
#
#   recipes/wsj_parsing.sh --ldc DIR | --treebank PATH... | --smoke  [FLAG ...] [-- FLAGS OF nmt train]
#
# The paper's parser: 4 layers, d_model 1024, 16,000 subwords. Sweeps dropout and learning rate and chooses them on the
# dev set (WSJ: section 22), trains the model, averages its last 5 checkpoints, and parses dev and test set (section 23)
# with beam 21 and alpha 0.3, with malformed output repaired and with --constrained. Ends with a table beside the
# paper's 91.3. Run it again to continue after a stop.
#
#   --ldc DIR                 your copy of the Penn Treebank (LDC99T42): WSJ sections 02-21, 22, 23
#   --treebank PATH...        another treebank in Penn style: files or directories named train, dev and test
#   --semi-supervised TREES   train on these trees, too, with 32,000 subwords, beside the paper's 92.7. The paper's
#                             17 million trees are not public: bring your own, or make them with --make-silver
#   --make-silver SENTENCES   at the end, parse this file (a sentence a line, spaces between words) with the trained
#                             model: OUT/silver.ptb can be the --semi-supervised of another run
#   --linearisation FORM      vinyals, (NP XX )NP, the default; or authors, NP NN /NP
#   --dropouts "D ..."        dropouts of the sweep, for attention and residuals; default "0.1 0.2 0.3"
#   --scales "S ..."          learning rate factors of the sweep; default "0.5 1 2"
#   --sweep-steps N           training steps for each point of the sweep; default 20000
#   --preset NAME             default parsing_wsj; parsing_small for a CPU
#   --out DIR                 directory for all results
#   --smoke                   try the whole recipe with a tiny model, on made-up trees or the first trees of --treebank;
#                             shows that the recipe works, and nothing about quality

source "$(dirname "${BASH_SOURCE[0]}")/stages.sh"

ldc="" treebank=() silver="" sentences="" form=vinyals dropouts="0.1 0.2 0.3" scales="0.5 1 2" sweep_steps=20000
preset=parsing_wsj smoke="" most=0 last=5 vocabulary=16000 small=() search=()
while (($#)); do
  stage_flag_words=2
  case "$1" in
    --ldc | --semi-supervised | --make-silver | --linearisation | --dropouts | --scales | --sweep-steps | --preset)
      (($# > 1)) || usage_error "$1 needs a value"
      ;;&
    --ldc) ldc="$2" ;;
    --semi-supervised) silver="$2" ;;
    --make-silver) sentences="$2" ;;
    --linearisation) form="$2" ;;
    --dropouts) dropouts="$2" ;;
    --scales) scales="$2" ;;
    --sweep-steps) sweep_steps="$2" ;;
    --preset) preset="$2" ;;
    --smoke) smoke=yes stage_flag_words=1 ;;
    --treebank)
      stage_flag_words=0
      shift
      while (($#)) && [[ "$1" != -* ]]; do treebank+=("$1") && shift; done
      ((${#treebank[@]})) || usage_error "--treebank needs files or a directory"
      ;;
    *) stage_flag "$@" ;;
  esac
  shift "$stage_flag_words"
done
[[ -z "$ldc" || ${#treebank[@]} -eq 0 ]] || usage_error "--ldc or --treebank, not both"
[[ -n "$ldc$smoke" || ${#treebank[@]} -gt 0 ]] ||
  usage_error "which treebank? --ldc DIR, --treebank PATH..., or --smoke"
for path in ${ldc:+"$ldc"} "${treebank[@]}" ${silver:+"$silver"} ${sentences:+"$sentences"}; do
  [[ -e "$path" ]] || usage_error "$path: there is no such file or directory"
done
[[ -z "$sentences" || -f "$sentences" ]] || usage_error "--make-silver $sentences is not a file"
# Stages run in the directory of the results. A link keeps its name, which may name the split.
whole() { realpath --no-symlinks -- "$1"; }
kind=named treebank_needs=treebank.py
[[ -z "$ldc" ]] || kind=wsj treebank=("$ldc")
for i in "${!treebank[@]}"; do treebank[i]="$(whole "${treebank[i]}")"; done
[[ -z "$silver" ]] || silver="$(whole "$silver")" vocabulary=32000
[[ -z "$sentences" ]] || sentences="$(whole "$sentences")"
stage_inputs=([treebank]="${treebank[*]@Q}" [prepare]="${silver:+${silver@Q}}"
  [parse-silver]="${sentences:+${sentences@Q}}")
begin_stages "$checkout/runs/parsing${silver:+-semi-supervised}${smoke:+-smoke}"

if [[ -n "$smoke" ]]; then
  export PROCESSES="${PROCESSES:-1}" OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
  dropouts=0.1 scales=1 sweep_steps=4 preset=parsing_small most=300 vocabulary=100
  small=(--num-layers 1 --d-model 32 --d-ff 64 --num-heads 2 --batch-tokens 1024 --warmup-steps 4 --max-steps 8)
  small+=(--save-every 1 --validate-every 4 --log-every 2 --precision float32)
  search=(--max-length-offset 30) # an untrained model does not end its output
  sentences="${sentences:-data/test.source.txt}"
  if ((${#treebank[@]} == 0)); then
    stage toy "made-up trees" toy_trees.py toy recipe_script toy_trees.py --train 300 --dev 8 --test 8 --out toy
    treebank=(toy) treebank_needs+=" toy"
  fi
fi

# train_chosen FLAGS OF nmt train...: train with the settings that the sweep chose.
train_chosen() {
  local chosen
  read -ra chosen <<<"$(recipe_script parsing_table.py flags chosen.json)"
  train_everywhere data --out run --preset "$preset" "${chosen[@]}" "$@"
}

# parse_stages NAME NEEDS CHECKPOINT SPLIT PREFIX FLAGS OF nmt translate...: make PREFIX.ptb, PREFIX.log and the score,
# PREFIX.json.
parse_stages() {
  stage "parse-$1" "trees of the $4 set" "prepare $2" "$5.ptb $5.log" with_log "$5.log" \
    nmt translate "$3" --input "data/${4/dev/valid}.source.txt" --output "$5.ptb" "${search[@]}" "${@:6}"
  stage "score-$1" "labelled bracketing" "treebank parse-$1" "$5.json" to_file "$5.json" \
    nmt score-trees "$5.ptb" --ref "trees/$4.ptb" --gold-tags --json
}

stage treebank "the trees, cleaned, one a line" "$treebank_needs" trees \
  recipe_script treebank.py "$kind" "$most" trees "${treebank[@]}"
stage prepare "text to ids" treebank data nmt prepare --task parsing --train trees/train.ptb \
  ${silver:+--train "$silver"} --valid trees/dev.ptb --test trees/test.ptb --keep-duplicates \
  --linearisation "$form" --vocab-size "$vocabulary" --out data
points=() scores=()
for dropout in $dropouts; do
  for scale in $scales; do
    point="dropout-$dropout-scale-$scale"
    points+=("$point") scores+=("score-$point")
    train_stage "sweep-$point" "sweep/$point/run" "a short training" --preset "$preset" --keep-last 1 "${small[@]}" \
      --dropout "$dropout" --attention-dropout "$dropout" --learning-rate-scale "$scale" --max-steps "$sweep_steps"
    parse_stages "$point" "sweep-$point" "sweep/$point/run" dev "sweep/$point/dev" --greedy
  done
done
stage choose "the best dropout and learning rate on the dev set" "parsing_table.py ${scores[*]}" chosen.json \
  to_file chosen.json recipe_script parsing_table.py choose "${points[@]}"
stage --resumes train "preset $preset, as chosen" "prepare choose" "run/checkpoints/step-*/model.safetensors" \
  train_chosen "${small[@]}" "${train_flags[@]}"
stage average "the mean of the last $last checkpoints" train averaged nmt average run --last "$last" --out averaged
for split in dev test; do
  parse_stages "$split" average averaged "$split" "$split"
  parse_stages "$split-constrained" average averaged "$split" "$split.constrained" --constrained
done
if [[ -n "$sentences" ]]; then
  stage parse-silver "trees for a semi-supervised run" average silver.all \
    nmt translate averaged --input "$sentences" --output silver.all --constrained --beam 4 "${search[@]}"
  stage silver "without empty lines" parse-silver silver.ptb to_file silver.ptb grep . silver.all
fi
stage table "the paper, this run, the difference" \
  "parsing_table.py prepare choose average score-dev score-dev-constrained score-test score-test-constrained" table.md \
  to_file table.md recipe_script parsing_table.py table "$kind" "${silver:+semi-supervised}" "${smoke:+smoke}"
run_stages
say "$(short "$out")/table.md" && cat "$out/table.md"
