#!/usr/bin/env bash
# nmt train on all GPUs of this machine, or of several machines.
#
#   recipes/train.sh DATA --out RUN [FLAGS OF nmt train]
#
# Environment:
#   PROCESSES        the number of processes on this machine (default: one for each GPU)
#   NNODES           the number of machines, on each of which this command is called with
#   NODE_RANK        0, 1, ..., and the same
#   MASTER_ADDR      the name of machine 0, and MASTER_PORT (default 29500)
#   TORCHRUN_FLAGS   further flags of torchrun
#
# If a process fails, torchrun starts all of them again, up to three times. A machine other than the first may be lost
# and come back. The run resumes from its last checkpoint.

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

[[ "${1-}" != --help && "${1-}" != -h ]] || { show_help && exit; }
processes="${PROCESSES:-$("$python" -c 'import torch; print(max(1, torch.cuda.device_count()))')}"
if ((${NNODES:-1} == 1 && processes == 1)); then
  nmt train "$@"
  exit
fi
launcher=(--nproc-per-node "$processes" --standalone)
if ((${NNODES:-1} > 1)); then
  [[ -n "${NODE_RANK-}" && -n "${MASTER_ADDR-}" ]] || die "NNODES is $NNODES: set NODE_RANK and MASTER_ADDR, too" 2
  launcher=(--nproc-per-node "$processes" --nnodes "$NNODES" --max-restarts 3 --rdzv-backend c10d --rdzv-id nmt)
  launcher+=(--rdzv-endpoint "$MASTER_ADDR:${MASTER_PORT:-29500}" --rdzv-conf "is_host=$((NODE_RANK == 0))")
  # A new store after each restart: a machine that comes back is not told of the earlier one, and has made no restarts.
  export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
fi
# Saving may take longer than torchrun's default of 30 s. Slurm warns with USR1.
export PET_SHUTDOWN_TIMEOUT="${PET_SHUTDOWN_TIMEOUT:-240}"
export PET_SIGNALS_TO_HANDLE="${PET_SIGNALS_TO_HANDLE:-SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1}"
read -ra extra <<<"${TORCHRUN_FLAGS-}"
set -- "$recipes/torchrun.py" "${launcher[@]}" "${extra[@]}" -m nmt_cli train "$@"
printf '+ python %s\n' "$*" >&2
"$python" "$@"
