# shellcheck shell=bash
# What the recipes for WMT14 share; they source it. A recipe says which text and vocabulary (wmt14_define), which model
# (wmt14_data_stages, train_stage, ...), and calls run_stages.

source "$(dirname "${BASH_SOURCE[0]}")/stages.sh"

local_folder="" smoke="" smoke_corpus="" train_flags=()
wmt14_table="" source_language=en target_language="" prepare_flags=()

# wmt14_define TARGET FLAGS OF nmt prepare...
wmt14_define() {
  target_language="$1"
  wmt14_table="$checkout/recipes/wmt14_en_$1.json"
  prepare_flags=("${@:2}")
}

# The flags that these recipes share, for their help texts.
wmt14_flags_help() {
  cat <<'HELP'
  --out DIR      folder for everything that is made
  --local DIR    use the archives (or the text files out of them) in DIR; download nothing
  --smoke [DIR]  try the whole recipe on the first lines of the parallel text in DIR (train, valid and test; by default
                 the names of numbers) with a tiny model; says whether the recipe works, and nothing about quality
HELP
  stage_flags_help
  cat <<'HELP'
  -- FLAG ...    further flags of nmt train

Environment: NMT_MIRROR, where the archives are instead of https://www.statmt.org (several: tried in turn); PROCESSES, how
many processes train on this machine (default: one for each GPU); NNODES, NODE_RANK, MASTER_ADDR, MASTER_PORT, to train on
several machines (recipes/slurm shows how); TORCHRUN_FLAGS.
HELP
}

# Takes one of the shared flags; how many words it took is then in taken.
wmt14_flag() {
  taken=2
  case "$1" in
    --smoke)
      smoke=yes
      if [[ -n "${2-}" && "$2" != -* ]]; then smoke_corpus="$2"; else taken=1; fi
      ;;
    --from | --to | --redo | --list) stage_flag "$@" && taken="$stage_flag_words" ;;
    --out | --local)
      (($# > 1)) || usage_error "$1 needs a folder"
      [[ "$1" == --out ]] && out="$2" || local_folder="$2"
      ;;
    --) train_flags=("${@:2}") taken=$# ;;
    *) usage_error "unknown argument $1" ;;
  esac
}

# wmt14_begin NAME: checks what the flags said and, for --smoke, makes the small corpus.
wmt14_begin() {
  out="${out:-$checkout/runs/$1${smoke:+-smoke}}"
  [[ -z "$local_folder" || -d "$local_folder" ]] || usage_error "--local $local_folder: there is no such folder"
  find_nmt
  mkdir -p "$out"
  out="$(cd "$out" && pwd)"
  [[ -z "$smoke" ]] || begin_smoke
}

# A small corpus in archives like the real ones; their own table replaces the recipe's. Two processes train a tiny model.
begin_smoke() {
  local corpus="${smoke_corpus:-$out/smoke/numbers}"
  [[ -n "$stage_only_list" ]] || lock_folder
  remember "$out/smoke" "a small copy of ${smoke_corpus:-the names of numbers}"
  if [[ ! -e "$out/smoke/$(basename "$wmt14_table")" ]]; then
    say "smoke: a small corpus"
    [[ -n "$smoke_corpus" ]] || "$python" "$checkout/recipes/number_names.py" --source "$source_language" \
      --target "$target_language" --train 2000 --valid 50 --test 50 --out "$corpus"
    "$python" "$checkout/recipes/corpora.py" small "$wmt14_table" "$corpus" "$out/smoke"
  fi
  wmt14_table="$out/smoke/$(basename "$wmt14_table")"
  export PROCESSES="${PROCESSES:-2}" OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
  prepare_flags+=(--vocab-size 300 --character-coverage 0.995)
}

# What the table says is a setting of these stages, too: a checksum of the part that each reads is its first argument.
wmt14_data_stages() {
  local archives members splits sums
  sums="$("$python" "$checkout/recipes/corpora.py" settings "$wmt14_table")"
  read -r archives members splits <<<"$sums"
  stage --resumes download "the public archives, or links to --local" "" downloads fetch_archives "$archives"
  stage extract "text out of the archives, lines counted" download text extract_text "$members"
  stage prepare "text to ids" extract data prepare_text "$splits" "${prepare_flags[@]}"
}

fetch_archives() {
  "$python" "$checkout/recipes/corpora.py" fetch "$wmt14_table" "$out" ${local_folder:+--local "$local_folder"}
}

extract_text() { "$python" "$checkout/recipes/corpora.py" extract "$wmt14_table" "$out"; }

# The prefixes of a split's text in $out.
corpora_of() { "$python" "$checkout/recipes/corpora.py" prefixes "$wmt14_table" "$1" | sed 's|^|text/|'; }

# prepare_text SETTINGS FLAGS OF nmt prepare...
prepare_text() {
  local prefixes=() prefix valid test
  cd "$out"
  for prefix in $(corpora_of train); do prefixes+=(--train "$prefix"); done
  valid="$(corpora_of valid)" test="$(corpora_of test)"
  run "$nmt" prepare --source-lang "$source_language" --target-lang "$target_language" "${prefixes[@]}" \
    --valid "$valid" --test "$test" --keep-duplicates "${@:2}" --out data
}

# train_stage MODEL PRESET FLAGS OF nmt train...
train_stage() {
  stage --resumes "train-$1" "preset $2" prepare "$1/run/checkpoints/step-*/model.safetensors" \
    train_model "$1" --preset "$2" "${@:3}" "${train_flags[@]}"
}

# Trains, or goes on; a checkpoint that is not as recorded is trained again, and so is what came after it.
train_model() {
  local file damaged="" folder
  [[ "$stage_state" != again ]] || die "to train anew, remove $(short "$out/$1/run") by hand, and leave --redo out"
  for file in ${stage_damaged-}; do
    [[ "$file" != "$1"/run/checkpoints/step-*/* ]] || { damaged="$out/${file%/*}" && break; }
  done
  for folder in "$out/$1"/run/checkpoints/step-*; do
    [[ -z "$damaged" || ! -d "$folder" || "$folder" < "$damaged" || ${NODE_RANK:-0} -gt 0 ]] || rm -rf "$folder"
  done
  train_everywhere "$out/data" --out "$out/$1/run" "${@:2}" # not from within $out: the user's flags may name files
}

# average_stages MODEL LAST: average, translate the test set, score it.
average_stages() {
  stage "average-$1" "the mean of the last $2 checkpoints" "train-$1" "$1/averaged" average_run "$1" "$2"
  stage "translate-$1" "the test set, with the averaged model" "extract average-$1" "$1/test.$target_language" \
    translate_split test "$1/averaged" "$1/test.$target_language"
  stage "score-$1" "every BLEU, by its full name" "extract translate-$1" "$1/score.json" \
    score_split test "$1/test.$target_language" "$1/score.json" decomposition
}

average_run() { run "$nmt" average "$out/$1/run" --last "$2" --out "$out/$1/averaged"; }

# translate_split SPLIT CHECKPOINT HYPOTHESES
translate_split() {
  cd "$out"
  run "$nmt" translate "$2" --input "$(corpora_of "$1").$source_language" --output "$3" --beam 4 --alpha 0.6
}

# score_split SPLIT HYPOTHESES SCORES METRIC...
score_split() {
  local metric metrics=()
  cd "$out"
  for metric in "${@:4}"; do metrics+=(--metric "$metric"); done
  to_file "$3" "$nmt" score "$2" --ref "$(corpora_of "$1").$target_language" --target-lang "$target_language" \
    "${metrics[@]}" --json
}

# table_stage NAME NEEDS COMMAND OF paper_tables.py...: what the paper says, what came out, and the difference.
table_stage() { stage "$1" "paper, this run, difference" "$2" "$1.md" make_table "$1" "${@:3}"; }

make_table() {
  cd "$out"
  to_file "$1.md" paper_tables "${@:2}"
}

paper_tables() { "$python" "$checkout/recipes/paper_tables.py" "$@"; }

# show_table NAME: on standard output, where it has been made.
show_table() {
  [[ -n "$stage_only_list" || ! -e "$out/$1.md" ]] || { say "$(short "$out")/$1.md" && cat "$out/$1.md"; }
}

# The whole of recipes/wmt14_en_de.sh and wmt14_en_fr.sh, once they have defined their text.
# wmt14_main NAME BASE_PRESET BIG_PRESET ARGUMENTS...
wmt14_main() {
  local name="$1" model=base taken base_preset="$2" big_preset="$3" last=5 flags=() note=""
  shift 3
  while (($#)); do
    case "$1" in
      -h | --help) show_help && wmt14_flags_help && exit ;;
      --model) (($# > 1)) || usage_error "--model needs base or big" ; model="$2" && shift 2 ;;
      *) wmt14_flag "$@" && shift "$taken" ;;
    esac
  done
  [[ "$model" == base || "$model" == big ]] || usage_error "--model is base or big, not $model"
  [[ "$model" == base ]] || last=20
  wmt14_begin "$name"
  if [[ -n "$smoke" ]]; then
    flags=(--num-layers 1 --d-model 32 --d-ff 64 --num-heads 2 --batch-tokens 512 --warmup-steps 4)
    flags+=(--max-steps "$((last + 3))" --save-every 1 --validate-every 4 --log-every 2 --device cpu)
    note="A smoke test, with a tiny model on a little text: it shows that the recipe works, and nothing about quality."
  fi
  wmt14_data_stages
  if [[ "$model" == base ]]; then train_stage base "$base_preset" "${flags[@]}"; else
    train_stage big "$big_preset" "${flags[@]}"
  fi
  average_stages "$model" "$last"
  table_stage "table-$model" "extract prepare train-$model score-$model" wmt14 "$target_language" "$model" "$last" "$note"
  run_stages
  show_table "table-$model"
}
