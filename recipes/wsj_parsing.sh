#!/usr/bin/env bash
# Constituency parsing (section 6.3 of the paper): from a treebank to labelled bracketing F1 beside the paper's.
#
#   recipes/wsj_parsing.sh --ldc DIR | --treebank PATH... | --smoke  [FLAG ...] [-- FLAGS OF nmt train]
#
# The paper's parser: 4 layers, d_model 1024, 16,000 subwords. Sweeps dropout and learning rate and chooses them on the
# dev set (WSJ: section 22), trains the model, averages its last 5 checkpoints, and parses the test set (section 23) with
# beam 21 and alpha 0.3, with malformed output repaired and with --constrained. Ends with a table beside the paper's
# 91.3. An interrupted recipe resumes when it is run again.
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
#   --out DIR                 output directory
#   --smoke                   try the whole recipe with a tiny model, on made-up trees or the first trees of --treebank;
#                             shows that the recipe works, and nothing about quality

source "$(dirname "${BASH_SOURCE[0]}")/stages.sh"

ldc="" treebank=() silver="" sentences="" form=vinyals dropouts="0.1 0.2 0.3" scales="0.5 1 2" sweep_steps=20000
preset=parsing_wsj smoke="" train_flags=() most=0 last=5 vocabulary=16000 small=() search=()
while (($#)); do
  case "$1" in
    -h | --help) show_help && stage_flags_help && exit ;;
    --from | --to | --redo | --list) stage_flag "$@" && shift "$stage_flag_words" && continue ;;
    --smoke) smoke=yes && shift && continue ;;
    --) shift && train_flags=("$@") && break ;;
    --treebank)
      shift
      while (($#)) && [[ "$1" != -* ]]; do treebank+=("$1") && shift; done
      ((${#treebank[@]})) || usage_error "--treebank needs a directory or files"
      continue
      ;;
  esac
  (($# > 1)) || usage_error "$1 is unknown, or needs a value"
  case "$1" in
    --ldc) ldc="$2" ;;
    --semi-supervised) silver="$2" ;;
    --make-silver) sentences="$2" ;;
    --linearisation) form="$2" ;;
    --dropouts) dropouts="$2" ;;
    --scales) scales="$2" ;;
    --sweep-steps) sweep_steps="$2" ;;
    --preset) preset="$2" ;;
    --out) out="$2" ;;
    *) usage_error "unknown argument $1" ;;
  esac
  shift 2
done
[[ -z "$ldc" || ${#treebank[@]} -eq 0 ]] || usage_error "--ldc or --treebank, not both"
[[ -n "$ldc$smoke" || ${#treebank[@]} -gt 0 ]] ||
  usage_error "which treebank? --ldc DIR, --treebank PATH..., or --smoke"
for path in ${ldc:+"$ldc"} "${treebank[@]}" ${silver:+"$silver"} ${sentences:+"$sentences"}; do
  [[ -e "$path" ]] || usage_error "$path: there is no such file or directory"
done
[[ -z "$sentences" || -f "$sentences" ]] || usage_error "--make-silver $sentences is not a file"
# Stages run in the output directory. A link keeps its name, which may name the split.
whole() { realpath --no-symlinks -- "$1"; }
for i in "${!treebank[@]}"; do treebank[i]="$(whole "${treebank[i]}")"; done
[[ -z "$ldc" ]] || ldc="$(whole "$ldc")"
[[ -z "$silver" ]] || silver="$(whole "$silver")"
[[ -z "$sentences" ]] || sentences="$(whole "$sentences")"
out="${out:-$checkout/runs/parsing${silver:+-semi-supervised}${smoke:+-smoke}}"
find_nmt
mkdir -p "$out"
out="$(cd "$out" && pwd)"

if [[ -n "$smoke" ]]; then
  export PROCESSES="${PROCESSES:-1}" OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
  if [[ -z "$ldc" && ${#treebank[@]} -eq 0 ]]; then
    [[ -e "$out/toy/train.ptb" ]] ||
      "$python" "$checkout/recipes/toy_trees.py" --train 300 --dev 8 --test 8 --out "$out/toy"
    treebank=("$out/toy")
  fi
  dropouts="0.1" scales="0.5 1" sweep_steps=4 preset=parsing_small most=300 vocabulary=100
  small=(--num-layers 1 --d-model 32 --d-ff 64 --num-heads 2 --batch-tokens 1024 --warmup-steps 4 --max-steps 8)
  small+=(--save-every 1 --validate-every 4 --log-every 2 --precision float32)
  search=(--max-length-offset 30) # an untrained model does not end its output
  [[ -n "$sentences" ]] || sentences="$out/smoke.txt"
  printf 'the cat sees the dog .\n\nthe old bird likes the song of the child .\n' >"$out/smoke.txt"
fi
[[ -z "$silver" || -n "$smoke" ]] || vocabulary=32000
kind=named
[[ -z "$ldc" ]] || { kind=wsj && treebank=("$ldc"); }
# state_of KIND PATH...: a line that changes when the files do.
state_of() { "$python" "$checkout/recipes/treebank.py" state "$@"; }

trees_state="$(state_of "$kind" "${treebank[@]}")" || exit $?
silver_state=""
[[ -z "$silver" ]] || silver_state="$(state_of all "$silver")" || exit $?
sentences_state=""
[[ -z "$sentences" ]] || sentences_state="$(state_of all "$sentences")" || exit $?

# The commands of the stages.

collect_trees() { "$python" "$checkout/recipes/treebank.py" collect "$kind" "$1" "$out/trees" "${treebank[@]}"; }

# prepare_trees LINEARISATION VOCABULARY STATE OF THE SILVER TREES
prepare_trees() {
  cd "$out"
  run "$nmt" prepare --task parsing --train trees/train.ptb ${silver:+--train "$silver"} --valid trees/dev.ptb \
    --test trees/test.ptb --keep-duplicates --linearisation "$1" --vocab-size "$2" --out data
}

# sweep_point NAME DROPOUT SCALE FLAGS OF nmt train...: trains and scores the dev set, parsed greedily. The training runs
# in the directory of the caller, so that relative paths in FLAGS (--config) are valid.
sweep_point() {
  train_everywhere "$out/data" --out "$out/sweep/$1/run" --preset "$preset" --dropout "$2" --attention-dropout "$2" \
    --learning-rate-scale "$3" --keep-last 1 "${@:4}"
  parse "sweep/$1/run" dev "sweep/$1/dev" --greedy
}

# choose POINT...: writes the settings with the best F1 on the dev set.
choose() {
  cd "$out"
  to_file chosen.json "$python" "$checkout/recipes/parsing_table.py" choose "$@"
}

# train_chosen FLAGS OF nmt train...
train_chosen() {
  local chosen
  chosen="$("$python" "$checkout/recipes/parsing_table.py" flags "$out/chosen.json")"
  # shellcheck disable=SC2086  # several flags
  train_everywhere "$out/data" --out "$out/run" --preset "$preset" $chosen "$@"
}

average_run() { run "$nmt" average "$out/run" --last "$1" --out "$out/averaged"; }

# parse CHECKPOINT SPLIT PREFIX FLAGS OF nmt translate...: writes PREFIX.ptb, PREFIX.log and the score, PREFIX.json.
parse() {
  local sentences="data/${2/dev/valid}.source.txt"
  cd "$out"
  run "$nmt" translate "$1" --input "$sentences" --output "$3.ptb" "${search[@]}" "${@:4}" 2>&1 |
    tee "$3.log" >&2
  to_file "$3.json" "$nmt" score-trees "$3.ptb" --ref "trees/$2.ptb" --gold-tags --json
}

make_silver() {
  run "$nmt" translate "$out/averaged" --input "$sentences" --output "$out/silver.unsorted" --constrained --beam 4 \
    "${search[@]}"
  grep . "$out/silver.unsorted" >"$out/silver.ptb" # an empty line has no tree
  rm "$out/silver.unsorted"
}

make_table() {
  cd "$out"
  to_file table.md "$python" "$checkout/recipes/parsing_table.py" table "$@"
}

stage treebank "the trees, cleaned, one a line" "" trees collect_trees "$most" "$kind" "$trees_state"
stage prepare "text to ids" treebank data prepare_trees "$form" "$vocabulary" \
  ${silver:+"$silver_state"}
points=()
for dropout in $dropouts; do
  for scale in $scales; do
    point="dropout-$dropout-scale-$scale"
    points+=("$point")
    stage --resumes "sweep-$point" "a short training, scored on the dev set" prepare "sweep/$point/dev.json" \
      sweep_point "$point" "$dropout" "$scale" "${small[@]}" --max-steps "$sweep_steps" "${train_flags[@]}"
  done
done
stage choose "dropout and learning rate that are best on the dev set" "${points[*]/#/sweep-}" chosen.json \
  choose "${points[@]}"
stage --resumes train "preset $preset, as chosen" "prepare choose" "run/checkpoints" \
  train_chosen "${small[@]}" "${train_flags[@]}"
stage average "the mean of the last $last checkpoints" train averaged average_run "$last"
for split in dev test; do
  stage "parse-$split" "beam 21, alpha 0.3, malformed trees repaired" "prepare average" "$split.ptb $split.log $split.json" \
    parse averaged "$split" "$split"
  stage "constrain-$split" "the same, constrained to well-formed trees" "prepare average" \
    "$split.constrained.ptb $split.constrained.log $split.constrained.json" \
    parse averaged "$split" "$split.constrained" --constrained
done
[[ -z "$sentences" ]] || stage silver "silver trees for a semi-supervised run" average silver.ptb make_silver \
  "$sentences_state"
stage table "the paper, this run, the difference" "prepare choose parse-dev constrain-dev parse-test constrain-test" \
  table.md make_table "$kind" "${silver:+semi-supervised}" "${smoke:+smoke}"
run_stages
[[ -n "$stage_only_list" || ! -e "$out/table.md" ]] || { say "$(short "$out")/table.md" && cat "$out/table.md"; }
