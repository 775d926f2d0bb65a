# shellcheck shell=bash
# What the recipes share; they source it. Every step can be repeated: what is done already is not done again.

set -euo pipefail
export LC_ALL=C.UTF-8

checkout="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

say() { printf '\n== %s\n' "$*" >&2; }

die() {
  printf 'error: %s\n' "$1" >&2
  exit "${2:-1}"
}

usage_error() { die "$1 (see $(basename "$0") --help)" 2; }

# The text of a recipe's own opening comment.
show_help() { sed -n '2,/^[^#]/{s/^# \{0,1\}//p}' "$0"; }

# Finds the command `nmt` and the Python that it runs in: the checkout's environment, else what is on the path.
# shellcheck disable=SC2034  # the recipes use both
find_nmt() {
  if [[ -x "$checkout/.venv/bin/nmt" ]]; then
    nmt="$checkout/.venv/bin/nmt"
    python="$checkout/.venv/bin/python"
  else
    nmt="$(command -v nmt)" || die "there is no nmt command. Make the environment with: make -C $checkout install"
    python="$(head -n 1 "$nmt" | sed 's/^#!//')"
  fi
}

# A path as short as it can be written from here.
short() { [[ "$1" == "$PWD"/* ]] && printf '%s' "${1#"$PWD"/}" || printf '%s' "$1"; }

# remember DIR SETTINGS: refuses to go on in a folder that was begun with other settings.
remember() {
  mkdir -p "$1"
  if [[ -e "$1/recipe.txt" && "$(cat "$1/recipe.txt")" != "$2" ]]; then
    die "$1 was begun with other settings ($(cat "$1/recipe.txt")). Choose another --out, or remove that folder" 2
  fi
  printf '%s\n' "$2" >"$1/recipe.txt"
}

# to_file OUTPUT COMMAND...: standard output goes to OUTPUT, which appears only if all went well.
to_file() {
  local output="$1"
  shift
  "$@" >"$output.unfinished" && mv "$output.unfinished" "$output"
}

# Whether FILE is there and not older than any of the others.
fresh() {
  local output="$1" input
  shift
  [[ -e "$output" ]] || return 1
  for input in "$@"; do [[ ! "$input" -nt "$output" ]] || return 1; done
}

# average_last N RUN CHECKPOINT: the mean of the last N, unless it is made already.
average_last() {
  local steps=("$2"/checkpoints/step-*)
  fresh "$3/model.safetensors" "${steps[-1]}/model.safetensors" || "$nmt" average "$2" --last "$1" --overwrite --out "$3"
}

# Shows a command as it could be typed, and runs it.
run() {
  local words
  words="$(printf '%q ' "$@")"
  printf '+ %s\n' "${words% }" >&2
  "$@"
}

# How many processes train on this machine: $PROCESSES, else one for each GPU, else one.
count_processes() {
  printf '%s' "${PROCESSES:-$("$python" -c 'import torch; print(max(1, torch.cuda.device_count()))')}"
}

# train_everywhere DATA --out RUN FLAGS OF nmt train...: trains with all GPUs of this machine, or of $NNODES machines on each of
# which it is called with its NODE_RANK and the same MASTER_ADDR (and MASTER_PORT). The batch is a flag of nmt train and has
# as many tokens for any number of GPUs; where they cannot share its micro-batches evenly, a new run gets more of these.
# $TORCHRUN_FLAGS go to torchrun.
train_everywhere() {
  local processes micro_batches launcher extra=()
  processes="$(count_processes)"
  micro_batches="$("$python" "$checkout/recipes/micro_batches.py" $((processes * ${NNODES:-1})) "$3" "${@:4}")"
  [[ -z "$micro_batches" ]] || set -- "$@" --micro-batches "$micro_batches"
  if ((processes == 1 && ${NNODES:-1} == 1)); then
    run "$nmt" train "$@"
    return
  fi
  launcher=("$python" -m torch.distributed.run --nproc-per-node "$processes")
  if ((${NNODES:-1} == 1)); then
    launcher+=(--standalone)
  else
    [[ -n "${NODE_RANK-}" && -n "${MASTER_ADDR-}" ]] ||
      die "NNODES is $NNODES: set NODE_RANK (0 to $((NNODES - 1))) and MASTER_ADDR, too" 2
    launcher+=(--nnodes "$NNODES" --node-rank "$NODE_RANK")
    launcher+=(--master-addr "$MASTER_ADDR" --master-port "${MASTER_PORT:-29500}")
  fi
  # Saving may take longer than the 30 s that torchrun grants, and USR1 is a warning of Slurm.
  export PET_SHUTDOWN_TIMEOUT="${PET_SHUTDOWN_TIMEOUT:-240}"
  export PET_SIGNALS_TO_HANDLE="${PET_SIGNALS_TO_HANDLE:-SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1}"
  read -ra extra <<<"${TORCHRUN_FLAGS-}"
  run "${launcher[@]}" "${extra[@]}" -m nmt_cli train "$@"
}
