# shellcheck shell=bash
# Functions that the WMT14 recipes share. A recipe calls wmt14_define (text and vocabulary) and wmt14_main (models). Any
# language pair works that has a table recipes/wmt14_SOURCE_TARGET.json.

source "$(dirname "${BASH_SOURCE[0]}")/stages.sh"

smoke="" smoke_corpus="" table="" source_language="" target_language="" prepare_flags=() split_flags=()
declare -A text=() # the prefix of the validation and of the test text
item_names=()      # of a recipe for several models
declare -A item_seeds=()

# wmt14_define SOURCE TARGET FLAGS OF nmt prepare...
wmt14_define() {
  source_language="$1" target_language="$2" table="wmt14_$1_$2.json"
  prepare_flags=(--normalization none "${@:3}") # as the paper and the systems it compares with
}

# multi30k_define DIR: the Multi30k files in DIR instead of WMT14's, prepared as by recipes/multi30k.sh; for two cores.
multi30k_define() {
  [[ -z "$smoke${NMT_LOCAL-}" ]] || usage_error "--multi30k excludes --smoke and --local"
  wmt14_flag --local "$1"
  wmt14_define en de --moses --lowercase --subwords bpe --vocab-size 10000
  table=multi30k_en_de.json
  export PROCESSES="${PROCESSES:-2}" OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
}

# read_items KIND SEEDS "KNOWN ..." ITEM...: set item_names and item_seeds. An ITEM is a known name, trained with SEEDS
# seeds, or NAME*N, with N.
read_items() {
  local item name
  for item in "${@:4}"; do
    name="${item%%\**}"
    [[ " $3 " == *" $name "* ]] || usage_error "there is no $1 $name; known: $3"
    [[ -z "${item_seeds[$name]-}" ]] || usage_error "$1 $name is given twice"
    [[ "$item" == *\** ]] || item+="*$2"
    [[ "${item#*\*}" =~ ^[1-9][0-9]*$ ]] || usage_error "$item: write $1*N for N seeds"
    item_names+=("$name") item_seeds[$name]="${item#*\*}"
  done
}

# shown_items: print the items as paper_tables.py takes them.
shown_items() {
  local name
  for name in "${item_names[@]}"; do printf '%s*%s ' "$name" "${item_seeds[$name]}"; done
}

# run_of NAME SEED: print the directory of the run with this seed.
run_of() { printf '%s' "$1" && (($2 == 1)) || printf -- '-%s' "$2"; }

wmt14_flags_help() {
  cat <<'HELP'
  --out DIR      directory for all results
  --local DIR    use the archives in DIR, or the text files out of them; download nothing
  --smoke [DIR]  try the whole recipe with a tiny model on the first lines of the parallel text in DIR (train, valid and
                 test; by default number names). This shows that the recipe works, and nothing about quality
HELP
  stage_flags_help
  cat <<'HELP'
  -- FLAG ...    further flags of nmt train

Environment: NMT_MIRROR, where the archives are instead of https://www.statmt.org (several are tried in turn); PROCESSES,
the number of training processes on this machine (default: one for each GPU); NNODES, NODE_RANK, MASTER_ADDR,
MASTER_PORT, to train on several machines (example: recipes/slurm); TORCHRUN_FLAGS.
HELP
}

# wmt14_flag FLAG ...: read a flag that these recipes have. stage_flag_words is then the number of words that it took.
wmt14_flag() {
  case "$1" in
    -h | --help) show_help && wmt14_flags_help && exit ;;
    --smoke)
      smoke=smoke stage_flag_words=1
      [[ -z "${2-}" || "$2" == -* ]] || smoke_corpus="$(realpath -- "$2")" stage_flag_words=2
      ;;
    --local)
      [[ -d "${2-}" ]] || usage_error "--local: ${2-} is not a directory"
      NMT_LOCAL="$(realpath -- "$2")" stage_flag_words=2
      export NMT_LOCAL
      ;;
    *) stage_flag "$@" ;;
  esac
}

# wmt14_data_stages NAME: the stages from the archives to ids, in runs/NAME. A smoke test makes the text, as if by --local.
wmt14_data_stages() {
  local split corpus corpora needs="$table"
  begin_stages "$checkout/runs/$1${smoke:+-$smoke}"
  if [[ -n "$smoke" ]]; then
    stage smoke "a little text" "$table" smoke \
      recipe_script corpora.py small "$table" smoke ${smoke_corpus:+"$smoke_corpus"}
    [[ "$smoke" == smoke-gpu ]] || export PROCESSES="${PROCESSES:-2}" OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
    prepare_flags+=(--vocab-size 300 --character-coverage 0.995)
    needs+=" smoke"
    export NMT_LOCAL="$out/smoke"
  fi
  prepare_flags+=(--source-lang "$source_language" --target-lang "$target_language" --keep-duplicates)
  [[ -n "$stage_only_list" || -e "$out/stages/prepare" ]] || check_flags prepare "${prepare_flags[@]}"
  corpora="$("$python" "$checkout/recipes/corpora.py" list "$table")"
  while read -r split corpus; do
    text[$split]="text/$corpus"
    split_flags+=("--$split" "text/$corpus")
  done <<<"$corpora"
  stage --resumes download "the public archives, or links to --local" "$needs" downloads \
    recipe_script corpora.py fetch "$table"
  stage extract "text out of the archives, lines counted" "$table download" text \
    recipe_script corpora.py extract "$table"
  prepare_stage prepare data
}

# prepare_stage NAME DATA FLAGS OF nmt prepare...
prepare_stage() {
  stage "$1" "text to ids" extract "$2" nmt prepare "${split_flags[@]}" "${prepare_flags[@]}" "${@:3}" --out "$2"
}

# translate_stage NAME TITLE NEEDS "CHECKPOINT ..." SPLIT HYPOTHESES FLAGS OF nmt translate...: HYPOTHESES.log has the speed.
translate_stage() {
  local checkpoints
  read -ra checkpoints <<<"$4"
  stage "$1" "$2" "extract $3" "$6" with_log "$6.log" \
    nmt translate "${checkpoints[@]}" --input "${text[$5]}.$source_language" --output "$6" --beam 4 --alpha 0.6 "${@:7}"
}

# score_stage NAME TITLE NEEDS HYPOTHESES SPLIT SCORES METRIC...
score_stage() {
  stage "$1" "$2" "extract $3" "$6" to_file "$6" \
    nmt score "$4" --ref "${text[$5]}.$target_language" --target-lang "$target_language" "${@:7}" --json
}

# test_stages RUN LAST "FLAGS OF nmt score": from the checkpoints in RUN/run to RUN/score.json.
test_stages() {
  local measures
  read -ra measures <<<"$3"
  stage "average-$1" "the last checkpoints, averaged: $2" "train-$1" "$1/averaged" \
    nmt average "$1/run" --last "$2" --out "$1/averaged"
  translate_stage "translate-$1" "the test set, with the averaged model" "average-$1" \
    "$1/averaged" test "$1/test.$target_language" "${@:4}"
  score_stage "score-$1" "every BLEU, by its full name" "translate-$1" \
    "$1/test.$target_language" test "$1/score.json" "${measures[@]}"
}

# table_stage NAME NEEDS SCRIPT OF recipes/ ARGUMENT...
table_stage() {
  stage "$1" "paper, this run, difference" "$2" "$1.md" to_file "$1.md" recipe_script "${@:3}"
}

# show_table NAME: print the table.
show_table() { say "$(short "$out")/$1.md" && cat "$out/$1.md"; }

# figure_stage NAME TITLE NEEDS PROGRAM: NAME.svg from NAME.json by a program of benchmarks/, if matplotlib is installed.
figure_stage() {
  ! "$python" -c 'import matplotlib' 2>/dev/null || stage "$1" "$2" "$3" "$1.svg" benchmark "$4" "$1.json" "$1.svg"
}

# show_figure NAME: print where the figure is, if there is one.
show_figure() { [[ ! -e "$out/$1.svg" ]] || say "$(short "$out")/$1.svg"; }

# wmt14_main NAME BASE_PRESET BIG_PRESET ARGUMENTS...: the whole recipe, from its command line.
wmt14_main() {
  local name="$1" model=base preset="$2" big_preset="$3" last=5 small_flags=() note=""
  shift 3
  while (($#)); do
    case "$1" in
      --model)
        (($# > 1)) || usage_error "--model needs base or big"
        model="$2" stage_flag_words=2
        ;;
      --smoke-gpu) wmt14_flag --smoke "${@:2}" && smoke=smoke-gpu ;;
      *) wmt14_flag "$@" ;;
    esac
    shift "$stage_flag_words"
  done
  [[ "$model" == base || "$model" == big ]] || usage_error "--model is base or big, not '$model'"
  [[ "$model" == base ]] || { last=20 && preset="$big_preset"; }
  [[ "$smoke" == smoke ]] || needs_gpu=yes
  if [[ "$smoke" == smoke ]]; then
    small_flags=(--num-layers 1 --d-model 32 --d-ff 64 --num-heads 2 --batch-tokens 512 --micro-batches 2)
    small_flags+=(--warmup-steps 4 --max-steps "$((last + 3))" --save-every 1 --validate-every 4 --log-every 2 --device cpu)
    note="A smoke test, with a tiny model on a little text: it shows that the recipe works, and nothing about quality."
  elif [[ "$smoke" == smoke-gpu ]]; then
    last=2 small_flags=(--warmup-steps 40 --max-steps 100 --save-every 50 --validate-every 50 --log-every 10)
    note="A smoke test on a little text: it shows that the recipe works on these GPUs, and nothing about quality."
  fi
  wmt14_data_stages "$name"
  train_stage "train-$model" "$model/run" "preset $preset" --preset "$preset" "${small_flags[@]}"
  test_stages "$model" "$last" "--metric decomposition"
  table_stage "table-$model" "extract prepare train-$model score-$model" \
    paper_tables.py "$source_language" "$target_language" "$model" "$last" ${note:+"$note"}
  run_stages
  show_table "table-$model"
}
