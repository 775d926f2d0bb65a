# shellcheck shell=bash
# A recipe as named stages. A stage is skipped while its results are as recorded.
#
#   source "$(dirname "${BASH_SOURCE[0]}")/stages.sh"
#   ...                                                # read the flags; stage_flag reads those of stages.sh
#   begin_stages runs/mine                             # the directory of all results
#   stage prepare "text to ids" "" data nmt prepare --source-lang en ... --out data
#   stage --resumes train "train" prepare "run/checkpoints/step-*/model.safetensors" train_everywhere data --out run ...
#   run_stages
#
#   stage NAME TITLE NEEDS RESULTS COMMAND...
#
# NEEDS     the earlier stages whose results this one reads, and files of recipes/. For the user's own files:
#           stage_inputs[NAME]="${files[*]@Q}" with absolute paths; directories include everything below
# RESULTS   the files and directories that it makes in $out; patterns, no spaces
# COMMAND   nmt, train_everywhere (nmt train on all GPUs), recipe_script (a Python file of recipes/), to_file FILE
#           COMMAND, with_log FILE COMMAND, or a function of the recipe. It runs in $out
#
# $out/stages/NAME records the command and the SHA-256 of what the stage needed and of its results. The stage runs
# again if one of them differs. Its results are removed first, except with --resumes: that command continues from
# what it finds.
#
# One recipe at a time works in $out. On TERM, INT, HUP and USR1, the stage's command gets TERM and time to save. With
# NODE_RANK above 0, on a further machine that shares $out, nothing is locked, removed or recorded.

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

train_flags=()
stage_names=() stage_from="" stage_to="" stage_redo="" stage_only_list=""
needs_gpu="" # set: no stage trains on a CPU, unless the flags of nmt train have a --device
declare -A stage_title stage_needs stage_inputs stage_results stage_command stage_resumes

# stage_flag FLAG ...: read a flag that all recipes have. stage_flag_words is then the number of words that it took.
# shellcheck disable=SC2034  # the recipes read it
stage_flag() {
  stage_flag_words=2
  case "$1" in
    -h | --help) show_help && stage_flags_help && exit ;;
    --list) stage_only_list=yes stage_flag_words=1 && return ;;
    --) train_flags=("${@:2}") stage_flag_words=$# && return ;;
    --out | --from | --to | --redo) (($# > 1)) || usage_error "$1 needs a value" ;;&
    --out) out="$2" ;;
    --from) stage_from="$2" ;;
    --to) stage_to="$2" ;;
    --redo) stage_redo="$2" ;;
    *) usage_error "unknown argument $1" ;;
  esac
}

stage_flags_help() {
  cat <<'HELP'
  --list         show the stages, the commands they run, and which are done
  --from STAGE   start there; earlier stages must be done and are not checked
  --to STAGE     stop after it
  --redo STAGE   run it again although it is done
HELP
}

# begin_stages DIR: set the directory of the results, unless --out did.
begin_stages() {
  find_nmt
  out="$(realpath -m -- "${out:-$1}")"
}

stage() {
  local resumes=""
  [[ "$1" != --resumes ]] || { resumes=yes && shift; }
  stage_names+=("$1") stage_title[$1]="$2" stage_needs[$1]="$3" stage_results[$1]="$4"
  stage_command[$1]="$(printf '%q ' "${@:5}")" stage_resumes[$1]="$resumes"
}

# train_stage NAME RUN TITLE FLAGS OF nmt train...: a stage that trains on data/ with these flags and those of the user.
train_stage() {
  stage --resumes "$1" "$3" prepare "$2/checkpoints/step-*/model.safetensors" \
    train_everywhere data --out "$2" "${@:4}" "${train_flags[@]}"
}

run_stages() {
  local name selected=() begun=""
  for name in "${stage_names[@]}"; do
    [[ -n "$stage_from" && "$name" != "$stage_from" ]] || begun=yes
    [[ -z "$begun" ]] || selected+=("$name")
    [[ "$name" != "$stage_to" ]] || break
  done
  for name in $stage_from $stage_to $stage_redo; do
    [[ " ${selected[*]} " == *" $name "* ]] ||
      usage_error "$name is not among the stages to run. All stages: ${stage_names[*]}"
  done
  [[ -z "$stage_only_list" ]] || { list_stages; exit; }
  ((${NODE_RANK:-0} == 0)) || [[ -n "$stage_from" && -n "$stage_to" ]] ||
    die "NODE_RANK is $NODE_RANK: give the stage to share with --from and --to" 2
  for name in "${stage_names[@]}"; do
    [[ "$name" != "${selected[0]}" ]] || break
    [[ -e "$out/stages/$name" ]] || die "--from $stage_from: stage $name is not done in $(short "$out")" 2
  done
  ((${NODE_RANK:-0} > 0)) || check_training
  check_gpus "${selected[@]}"
  ((${NODE_RANK:-0} > 0)) || lock_directory
  for name in "${selected[@]}"; do
    find_stage_state "$name"
    [[ "$name" != "$stage_redo" ]] || stage_state="again: --redo"
    if [[ "$stage_state" == "done" ]]; then
      say "$name: done already"
    else
      [[ "$stage_state" == "to do" ]] && stage_state="" || stage_state=" ($stage_state)"
      say "$name: ${stage_title[$name]}$stage_state"
      run_stage "$name"
    fi
  done
  [[ -z "$stage_to" ]] || { say "stopped after $stage_to" && exit; }
}

# End the recipe before its first stage if flags of nmt train are wrong. Others than the first training differ in the
# preset, so they are checked only if the user gave flags, which must suit all presets.
check_training() {
  local name command
  for name in "${stage_names[@]}"; do
    eval "command=(${stage_command[$name]})"
    [[ "${command[0]}" == train_everywhere && ! -e "$out/stages/$name" ]] || continue
    check_flags train "${command[@]:4}"
    ((${#train_flags[@]})) || return 0
  done
}

# check_gpus STAGE...: end the recipe before its first stage if one of these would train on a CPU and must not.
check_gpus() {
  local name
  [[ -n "$needs_gpu" && " ${train_flags[*]} " != *" --device"[\ =]* ]] || return 0
  for name; do
    [[ "${stage_command[$name]}" == "train_everywhere "* && ! -e "$out/stages/$name" ]] || continue
    (($(count_gpus) > 0)) || die "$name needs a GPU, and PyTorch finds none here. To try the recipe on a CPU: \
--smoke. To train on it all the same: -- --device cpu" 2
    return
  done
}

# The commands of stages inherit the lock, so it is also held by a command that outlives a killed recipe.
lock_directory() {
  local lock
  mkdir -p "$out/stages"
  exec {lock}>"$out/stages/.lock"
  flock -w 3 "$lock" || (($? != 1)) || # another code: a file system without locks
    die "$(short "$out") is in use by another recipe or by the command of a killed one: fuser $out/stages/.lock shows it" 2
}

list_stages() {
  local name
  say "the commands run in $(short "$out")"
  for name in "${stage_names[@]}"; do
    find_stage_state "$name"
    printf '%-24s %-8s %s\n' "$name" "${stage_state%%:*}" "${stage_title[$name]}"
    show_command "$name"
  done
}

# Print the command of a stage as one could type it; nothing for a function of the recipe.
show_command() {
  local command file=""
  eval "command=(${stage_command[$1]})"
  [[ "${command[0]}" != to_file ]] || { file=" > ${command[1]}" && command=("${command[@]:2}"); }
  [[ "${command[0]}" != with_log ]] || { file=" 2> ${command[1]}" && command=("${command[@]:2}"); }
  case "${command[0]}" in
    nmt) ;;
    train_everywhere) command=(nmt train "${command[@]:1}") ;;
    recipe_script) command=(python "$checkout/recipes/${command[1]}" "${command[@]:2}") ;;
    *) return 0 ;;
  esac
  printf '    %s%s\n' "$(typed "${command[@]}")" "$file"
}

# Set stage_state: done, to do, changed (the command or what it needs), or damaged (its results).
find_stage_state() {
  local record="$out/stages/$1" damage
  if [[ ! -e "$record" ]]; then
    stage_state="to do"
  elif [[ "$(sed '/^results$/q' "$record")" != "$(stage_header "$1")" ]]; then
    stage_state="changed: its settings or inputs are different"
  else
    damage="$(diff <(sed '1,/^results$/d' "$record") <(stage_checksums "$1"))" || true
    damage="$(sed -n 's/^[<>] [^ ]* .//p' <<<"$damage" | sort -u)"
    [[ -z "$damage" ]] && stage_state="done" || stage_state="damaged: $(head -n 3 <<<"$damage" | tr '\n' ' ')"
  fi
}

# Print what a stage depends on: its command, and the checksums of what it needs.
stage_header() {
  local need sum inputs
  printf 'command %s\n' "${stage_command[$1]}"
  eval "inputs=(${stage_inputs[$1]-})"
  ((${#inputs[@]} == 0)) ||
    printf 'inputs %s\n' "$(find -L "${inputs[@]}" -type f -print0 | sort -z | xargs -0 -r sha256sum | sha256sum)"
  for need in ${stage_needs[$1]}; do
    if [[ -n "${stage_title[$need]-}" ]]; then
      sum="$(sed '1,/^results$/d' "$out/stages/$need" 2>/dev/null | sha256sum)"
    else
      sum="$(sha256sum <"$checkout/recipes/$need")"
    fi
    printf 'needs %s %s\n' "$need" "${sum%% *}"
  done
  printf 'results\n'
}

# Print the checksums of a stage's results; fail if one is missing.
stage_checksums() (
  cd "$out" || exit
  for result in ${stage_results[$1]}; do
    [[ -e "$result" ]] || exit 1
    find -L "$result" -type f -print0 | sort -z | xargs -0 -r sha256sum
  done
)

run_stage() {
  local record="$out/stages/$1" result
  if ((${NODE_RANK:-0} > 0)); then
    run_command "$1"
    return
  fi
  rm -f "$record"
  [[ -n "${stage_resumes[$1]}" ]] ||
    (cd "$out" && for result in ${stage_results[$1]}; do rm -rf -- "$result"; done)
  run_command "$1"
  { stage_header "$1" && stage_checksums "$1"; } >"$record.new" ||
    die "stage $1 succeeded, but did not make all of: ${stage_results[$1]}"
  mv "$record.new" "$record"
}

# Run the command of a stage in the background, where signals reach this shell, and in a process group of its own, which
# gets TERM once. Then wait until it has ended.
run_command() {
  local command process signal stopped_by="" status=0
  eval "command=(${stage_command[$1]})"
  set -m
  (
    trap 'exit 143' TERM # after the command has ended
    cd "$out"
    "${command[@]}"
  ) </dev/null >&2 &
  process=$!
  set +m
  for signal in TERM INT HUP USR1; do
    # shellcheck disable=SC2064  # expanded now
    trap "stopped_by=$signal && kill -TERM -- -$process 2>/dev/null || true" "$signal"
  done
  wait "$process" || status=$?
  while kill -0 "$process" 2>/dev/null; do wait "$process" || status=$?; done
  trap - TERM INT HUP USR1
  [[ -z "$stopped_by" ]] ||
    die "SIG$stopped_by stopped stage $1. Run the same command to continue" $((128 + $(kill -l "$stopped_by")))
  ((status == 0)) || die "stage $1 failed with exit code $status. Run the same command to continue" "$status"
}
