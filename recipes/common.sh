# shellcheck shell=bash disable=SC2034,SC2064  # recipes read what is set; traps expand now
# Functions that the recipes share.

set -euo pipefail
export LC_ALL=C.UTF-8
recipes="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
checkout="${recipes%/*}"
out="" words=() train_flags=()
# Captions in few updates: with Adam and sinusoids, the same models hardly attend to the source (benchmarks/reports).
captions=(--preset multi30k --attention rotary --positions none --optimizer muon --zero-sublayers
  --schedule linear_decay --warmup-steps 200 --learning-rate-scale 0.5)

die() { printf 'error: %s\n' "$1" >&2 && exit "${2:-1}"; }
usage_error() { die "$1 (see $(basename "$0") --help)" 2; }

# Bash delays traps. So the recipe runs in a process group, which gets TERM at a signal: a training saves a checkpoint.
if [[ -z "${RECIPE_GROUP-}" ]]; then
  status=0 stopped_by=""
  set -m
  RECIPE_GROUP=yes "$BASH" "$0" "$@" </dev/null &
  for signal in TERM INT HUP USR1; do trap "stopped_by=$signal; kill -TERM -- -$! 2>/dev/null || true" "$signal"; done
  wait "$!" || status=$?
  while kill -0 "$!" 2>/dev/null; do wait "$!" || status=$?; done
  [[ -z "$stopped_by" ]] || die "stopped by SIG$stopped_by: run it again to go on" $((128 + $(kill -l "$stopped_by")))
  exit "$status"
fi
trap 'exit 143' TERM

# The commands of the checkout's environment, or else those on the path.
[[ ! -x "$checkout/.venv/bin/nmt" ]] || PATH="$checkout/.venv/bin:$PATH"
type -P nmt >/dev/null || die "there is no nmt command. Install it: make -C $checkout install"
python="$(head -n 1 "$(type -P nmt)" | sed 's/^#!//')"
nmt() { printf '+ nmt %s\n' "$*" >&2 && command nmt "$@"; }
script() { "$python" "$recipes/$1" "${@:2}"; }
show_help() { sed -n '2,/^[^#]/{s/^# \{0,1\}//p}' "$0"; } # the opening comment

# read_flags "NAME ..." ARGUMENT...: read each of these flags into the variable of its name. NAME?: without a value it
# is "yes". "...": other arguments go to words. What follows -- goes to train_flags.
read_flags() {
  local name known=" $1 "
  while shift && (($#)); do
    name="${1#--}" name="${name//-/_}"
    case "$1" in
      -h | --help) show_help && exit ;;
      --) train_flags=("${@:2}") && return ;;
      --*) [[ "$known" == *" $name "* || "$known" == *" $name? "* ]] || usage_error "unknown flag $1" ;;
      *) [[ "$known" == *" ... "* && "$1" != -* ]] || usage_error "unknown argument $1" ;;
    esac
    [[ "$1" == --* ]] || { words+=("$1") && continue; }
    [[ -n "${2-}" && "$2" != -* || "$known" == *" $name? "* ]] || usage_error "$1 needs a value"
    printf -v "$name" yes
    [[ "$name" != @(minutes|seeds|steps|tokens) || "$2" =~ ^[1-9][0-9]*$ ]] ||
      usage_error "$1 needs a whole number, not $2"
    [[ -z "${2-}" || "$2" == -* ]] || { printf -v "$name" %s "$2" && shift; }
  done
}

# to_file FILE COMMAND...: write standard output to FILE, which appears when the command has succeeded.
to_file() { mkdir -p "$(dirname "$1")" && "${@:2}" >"$1.part" && mv "$1.part" "$1"; }

# made_from RESULT WORD...: note what RESULT was made from, and refuse an --out where that was something else.
made_from() {
  local file="$out/$1/made-from" word words=()
  for word in "${@:2}"; do # --out may have the name of another argument
    [[ ! -d "$word" || "$word" -ef "$out" ]] || word="$(realpath "$word")" && words+=("$word")
  done
  # Alone, or with what is half done, the note was made with a wrong argument.
  [[ -n "$(find "$out/$1" -mindepth 1 ! -name made-from ! -name '*.part' -print -quit 2>/dev/null)" ]] || rm -f "$file"
  [[ -e "$file" ]] || to_file "$file" echo "${words[@]}"
  [[ "$(<"$file")" == "${words[*]}" ]] || die "$out/$1 has '$(<"$file")', not '${words[*]}': give another --out" 2
}

# file_of NAME: the path of the only file of this name, plain or with .gz, in the directory of the files or below. The
# .gz of a plain file beside it does not count.
file_of() {
  local found && found="$(find -L "${words[0]}" \( -name "$1" -o -name "$1.gz" \) -type f | sort |
    awk '{ plain = $0; sub(/\.gz$/, "", plain) } !seen[plain]++')" || return
  [[ -n "$found" ]] || die "there is no $1 in ${words[0]}"
  [[ "$found" != *$'\n'* ]] || die "there is more than one $1: give the directory of one"$'\n'"$found"
  echo "$found"
}
# text NAME: print this file.
text() { local file && file="$(file_of "$1")" && gzip -dcf "$file"; }
# pairs SOURCE TARGET: a table of two files. A tab in their text becomes a space.
pairs() {
  local sides=("$out/source.part" "$out/target.part")
  text "$1" | tr '\t' ' ' >"${sides[0]}" && text "$2" | tr '\t' ' ' >"${sides[1]}" || return
  [[ "$(grep -c '' "${sides[0]}")" == "$(grep -c '' "${sides[1]}")" ]] || die "$1 and $2 do not have as many lines"
  paste "${sides[@]}" && rm "${sides[@]}"
}

# train_and_average DATA MODEL STEPS FLAGS OF nmt train...: MODEL/run, with the flags in $train and the user's, saves 30
# checkpoints; MODEL/averaged is the mean of the last 5.
train_and_average() {
  "$recipes/train.sh" "$1" --out "$2/run" "${train[@]}" --max-steps "$3" --decay-steps "$3" \
    --save-every "$(($3 < 30 ? 1 : $3 / 30))" "${train_flags[@]}" "${@:4}"
  [[ "$2/averaged" -nt "$2/run/checkpoints" ]] || nmt average "$2/run" --last 5 --out "$2/averaged" --overwrite
}

# with_log FILE COMMAND...: write standard error to FILE, too.
with_log() { { "${@:2}" 2>&1 >&3 | tee "$1" >&2; } 3>&1; }

# smoke_settings: little text; with $smoke a tiny model on a CPU, with $smoke_gpu the model itself on all GPUs.
smoke_settings() {
  [[ -z "$local" ]] || usage_error "--local cannot be used with --smoke or --smoke-gpu"
  vocabulary=(--vocab-size 300 --character-coverage 0.995)
  note="A smoke test on a little text: it shows that the recipe works, and nothing about quality."
  if [[ -n "$smoke" ]]; then
    export PROCESSES="${PROCESSES:-2}" OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
    train+=(--num-layers 1 --d-model 32 --d-ff 64 --num-heads 2 --batch-tokens 512 --micro-batches 2 --warmup-steps 4)
    train+=(--max-steps "$((last + 3))" --save-every 1 --validate-every 4 --log-every 2 --device cpu)
  else
    last=2 train+=(--warmup-steps 40 --max-steps 100 --save-every 50 --validate-every 50 --log-every 10)
  fi
}
