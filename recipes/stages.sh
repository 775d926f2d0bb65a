# shellcheck shell=bash
# A recipe as named stages, each skipped while its result stands; a recipe sources this file (it sources common.sh).
#
#   source "$(dirname "${BASH_SOURCE[0]}")/stages.sh"
#   while (($#)); do
#     case "$1" in
#       --from | --to | --redo | --list) stage_flag "$@" && shift "$stage_flag_words" ;;
#       ...
#     esac
#   done
#   out=...                                  # the folder that holds everything the recipe makes
#
#   stage NAME TITLE NEEDS RESULTS COMMAND [ARGUMENT...]
#   stage prepare "text to ids" "download clean" "data" prepare_text --vocab-size 37000
#   stage --resumes train "train the model" "prepare" "run/config.json run/checkpoints" train_model base
#   run_stages
#
# NEEDS     earlier stages, by name, whose results this one reads
# RESULTS   what it makes: files and folders in $out, by names without spaces relative to it; * may stand in them
# COMMAND   a function or program; its arguments are the stage's settings, so everything that changes the result belongs
#           there, and nothing else (no absolute path: a folder that was moved is still good)
#
# When all went well, $out/stages/NAME records the command, the checksums of what it needed, and those of its results. The
# stage is done for as long as all three are as recorded: other settings, a changed input or a damaged result bring it
# back, and an input that was made again with the same content does not. Before a stage runs, what is left of its
# results is removed. Not with --resumes: that command goes on with what it finds, and looks at $stage_state (new,
# interrupted, changed, damaged, again) and $stage_damaged (the files that are not as recorded) if it has to.
#
# One recipe at a time works in $out. A signal that asks to stop (TERM, INT, USR1) stops the command of the stage, which is
# waited for: a training saves first.
#
# With NODE_RANK above 0, in a run on several machines that share $out, nothing is locked, removed or recorded; such a machine
# must be told by --from and --to which stage it shares in.

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

out="" # the recipe sets it
stage_names=() stage_from="" stage_to="" stage_redo="" stage_only_list="" stage_lock=""
declare -A stage_title stage_needs stage_results stage_command stage_resumes

# stage_flag FLAG [VALUE] ...: takes --from STAGE, --to STAGE, --redo STAGE or --list; how many words it took is then in
# stage_flag_words.
# shellcheck disable=SC2034  # the recipe reads it
stage_flag() {
  stage_flag_words=1
  [[ "$1" == --list ]] && stage_only_list=yes && return
  (($# > 1)) || usage_error "$1 needs the name of a stage: --list shows them"
  stage_flag_words=2
  case "$1" in
    --from) stage_from="$2" ;;
    --to) stage_to="$2" ;;
    --redo) stage_redo="$2" ;;
  esac
}

# What the stages' flags do, for the help text of a recipe.
stage_flags_help() {
  cat <<'HELP'
  --list         show the stages, and which are done, and stop
  --from STAGE   begin there; the stages before it must be done, and are not checked again
  --to STAGE     stop after it
  --redo STAGE   do it once more, though its result stands; neither before --from nor after --to
HELP
}

stage() {
  local resumes="" name
  [[ "$1" != --resumes ]] || { resumes=yes && shift; }
  name="$1"
  stage_names+=("$name") stage_title[$name]="$2" stage_needs[$name]="$3" stage_results[$name]="$4"
  stage_command[$name]="$(printf '%q ' "${@:5}")" stage_resumes[$name]="$resumes"
}

run_stages() {
  local name past_from="" message=""
  check_stage_names
  [[ -z "$stage_only_list" ]] || { list_stages && return; }
  ((${NODE_RANK:-0} == 0)) || [[ -n "$stage_from" && -n "$stage_to" ]] ||
    die "NODE_RANK is $NODE_RANK: say by --from and --to which stage this machine shares in" 2
  lock_folder
  for name in "${stage_names[@]}"; do
    [[ -n "$past_from" || -z "$stage_from" || "$name" == "$stage_from" ]] || { require_stage "$name" && continue; }
    past_from=yes
    find_stage_state "$name"
    if [[ "$stage_state" == "done" ]]; then
      say "$name: done already"
    else
      message="$(stage_message)"
      say "$name: ${stage_title[$name]}$message"
      run_stage "$name"
    fi
    [[ "$name" != "$stage_to" ]] || { say "stopped after $name, as --to says" && exit 0; }
  done
}

check_stage_names() {
  local name
  for name in $stage_from $stage_to $stage_redo; do
    [[ " ${stage_names[*]} " == *" $name "* ]] || usage_error "there is no stage $name, only ${stage_names[*]}"
  done
  check_stage_order --from "$stage_from" --to "$stage_to"
  check_stage_order --from "$stage_from" --redo "$stage_redo"
  check_stage_order --redo "$stage_redo" --to "$stage_to"
}

# check_stage_order FLAG STAGE LATER_FLAG LATER_STAGE: an empty stage was not asked for.
check_stage_order() {
  [[ -n "$2" && -n "$4" ]] || return 0
  (($(stage_number "$2") <= $(stage_number "$4"))) || usage_error "$1 $2 is a later stage than $3 $4"
}

stage_number() { printf '%s\n' "${stage_names[@]}" | grep -nxF -- "$1" | cut -d : -f 1; }

# Keeps other recipes out of $out. The lock is that of an open file, which the stages' commands inherit: it holds until this
# shell and all of them have ended. Where the shell alone was killed, what it had started still writes, and a new start must not
# remove that; once nothing runs any more, nothing needs to be cleared away. (What torchrun starts inherits no files: there
# `nmt train` has the lock of the run's folder.)
lock_folder() {
  local file="$out/stages/.lock" open holders=""
  [[ -z "$stage_lock" && ${NODE_RANK:-0} -eq 0 ]] || return 0
  mkdir -p "$out/stages"
  exec {stage_lock}>"$file"
  ! flock -w 3 "$stage_lock" || return 0 # a killed recipe takes a moment to be gone
  for open in /proc/[0-9]*/fd/*; do
    [[ ! "$open" -ef "$file" || "$open" == "/proc/$$/"* ]] || { open="${open#/proc/}" && holders+=" ${open%%/*}"; }
  done
  holders="${holders:- not on this machine}"
  die "another recipe is at work in $(short "$out"), or what a killed one started (process$holders): wait for it, or stop it" 2
}

list_stages() {
  local name
  for name in "${stage_names[@]}"; do
    find_stage_state "$name"
    [[ "$stage_state" != new ]] || stage_state="to do"
    printf '%-24s %-12s %s\n' "$name" "$stage_state" "${stage_title[$name]}"
  done
}

require_stage() {
  [[ -e "$out/stages/$1" ]] ||
    die "--from $stage_from: the stage $1 before it is not done in $(short "$out"). Leave --from out, or name $1" 2
}

# The stage's results with their checksums; fails where one is missing.
stage_checksums() {
  local result
  cd "$out" || return
  for result in ${stage_results[$1]}; do
    [[ -e "$result" ]] || return 1
    find -L "$result" -type f -print0 | sort -z | xargs -0 -r sha256sum
  done
}

# What a stage depends on: its command, and the results of the stages that it needs.
stage_header() {
  local need sum
  printf 'command %s\n' "${stage_command[$1]}"
  for need in ${stage_needs[$1]}; do
    sum="$(sed '1,/^results$/d' "$out/stages/$need" 2>/dev/null | sha256sum)"
    printf 'needs %s %s\n' "$need" "${sum%% *}"
  done
  printf 'results\n'
}

# Sets stage_state: done, new, interrupted, changed (other settings or inputs), damaged (results), or again (--redo).
find_stage_state() {
  local record="$out/stages/$1" header
  stage_state=new stage_damaged=""
  [[ "$1" != "$stage_redo" ]] || { stage_state=again && return; }
  header="$(stage_header "$1")"
  if [[ -e "$record" ]]; then
    if [[ "$(sed '/^results$/q' "$record")" != "$header" ]]; then
      stage_state=changed
    elif stage_damaged="$(find_damage "$1")"; then
      stage_state="done"
    else
      stage_state=damaged
    fi
  elif [[ -e "$record.unfinished" ]]; then
    [[ "$(cat "$record.unfinished")" == "$header" ]] && stage_state=interrupted || stage_state=changed
  fi
}

# Prints the recorded files that are missing or different, and the new ones in recorded folders; fails where there is any.
find_damage() {
  local recorded found
  recorded="$(sed '1,/^results$/d' "$out/stages/$1")"
  found="$(stage_checksums "$1" || true)"
  [[ "$recorded" != "$found" ]] || return 0
  printf '%s\n%s\n' "$recorded" "$found" | sort | uniq -u | sed '/^$/d; s/^[^ ]* .//' | sort -u
  return 1
}

stage_message() {
  case "$stage_state" in
    interrupted) printf ' (was interrupted)' ;;
    changed) printf ' (again: its settings or inputs are not those that it was done with)' ;;
    damaged) printf ' (again: not as recorded: %s)' "$(printf '%s' "$stage_damaged" | head -n 3 | tr '\n' ' ')" ;;
    again) printf ' (again, as --redo says)' ;;
  esac
}

run_stage() {
  local name="$1" record="$out/stages/$1" result
  if ((${NODE_RANK:-0} > 0)); then
    run_command "$name"
    return
  fi
  rm -f "$record"
  stage_header "$name" >"$record.unfinished"
  if [[ -z "${stage_resumes[$name]}" ]]; then
    (cd "$out" && for result in ${stage_results[$name]}; do rm -rf -- "$result"; done)
  fi
  run_command "$name"
  { cat "$record.unfinished" && stage_checksums "$name"; } >"$record.new" ||
    die "stage $name ended well, but did not make all of: ${stage_results[$name]}"
  mv "$record.new" "$record"
  rm "$record.unfinished"
}

# Runs the command of a stage in the background, since the shell hears no signal while something runs in the foreground.
run_command() {
  local command process status=0 stopped_by=""
  eval "command=(${stage_command[$1]})"
  (
    trap 'exit 143' TERM INT USR1 # when the program that it waits for has ended
    "${command[@]}"
  ) &
  process=$!
  trap 'stop_command TERM' TERM
  trap 'stop_command INT' INT
  trap 'stop_command USR1' USR1
  wait "$process" || status=$?
  while kill -0 "$process" 2>/dev/null; do # a signal ends the waiting
    wait "$process" || status=$?
  done
  trap - TERM INT USR1
  [[ -z "$stopped_by" ]] ||
    die "the stage $1 was stopped by SIG$stopped_by. The same command goes on from there" $((128 + $(kill -l "$stopped_by")))
  ((status == 0)) || die "the stage $1 stopped with exit code $status. The same command goes on from there" "$status"
}

# Sees to it that all processes of the command hear of a signal. It may have come to this shell alone, as under Slurm, or to
# all of them, as Ctrl-C does: so they have a second to end by themselves. A second SIGINT would end a training at once, and
# torchrun knows no USR1, but all understand TERM, also once more.
stop_command() {
  stopped_by="$1"
  sleep 1 || true # another signal may end it
  # shellcheck disable=SC2046  # several processes
  kill -s TERM $(process_tree "$process") 2>/dev/null || true
}

# A process and all that are below it.
process_tree() {
  local status
  printf '%s\n' "$1"
  for status in $(grep -ls "^PPid:[[:space:]]*$1\$" /proc/[0-9]*/status); do
    status="${status#/proc/}"
    process_tree "${status%%/*}"
  done
}
