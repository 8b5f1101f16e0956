#!/usr/bin/env bash
# Counts what each epoch costs (packets, bytes, round trips, copies, allocations, system calls) over shared memory, libfabric's
# tcp and the simulated fabric, and compares with benches/counts.json: a rise fails, and so does a count that only one
# side has. The table is in docs/performance.md. Without strace, or with another libfabric, some counts are skipped; where
# CI is set that fails.
#
#   ci/counts.sh            compare
#   ci/counts.sh --update   write the file and the table
#   ci/counts.sh show       print the counts; show --calls: the system calls by name
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case "$*" in
'')
    action=(check benches/counts.json --page docs/performance.md)
    if [[ -n "${CI:-}" ]]; then
        action+=(--skip-nothing)
    fi
    ;;
--update) action=(check benches/counts.json --page docs/performance.md --update) ;;
show | 'show --calls') action=("$@") ;;
*)
    echo "usage: ci/counts.sh [--update | show [--calls]]" >&2
    exit 2
    ;;
esac
# As lane test builds it: what is counted does not depend on the optimizer.
cargo build --locked -p rma-bench --bin rma-counts
exec "${CARGO_TARGET_DIR:-target}/debug/rma-counts" "${action[@]}"
