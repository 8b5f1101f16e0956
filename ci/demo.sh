#!/usr/bin/env bash
# Builds everything and shows, with two ranks on this machine, what each optimization gains.
# Arguments go to `rma-bench optimizations`; RANKS changes the number of ranks.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

ci/install.sh run
cargo build --release --locked
exec "${CARGO_TARGET_DIR:-target}/release/rmarun" -n "${RANKS:-2}" \
    "${CARGO_TARGET_DIR:-target}/release/rma-bench" optimizations "$@"
