#!/usr/bin/env bash
# Builds everything and shows, with two ranks on this machine, what each optimization gains.
# Arguments go to `rma-bench optimizations`; RANKS changes the number of ranks. Over the network's provider, as if they were
# on two machines, unless RMA_PROVIDER says otherwise: between ranks of one host it would be shared memory.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

ci/install.sh run
cargo build --release --locked
export RMA_PROVIDER="${RMA_PROVIDER:-ofi}"
exec "${CARGO_TARGET_DIR:-target}/release/rmarun" -n "${RANKS:-2}" \
    "${CARGO_TARGET_DIR:-target}/release/rma-bench" optimizations "$@"
