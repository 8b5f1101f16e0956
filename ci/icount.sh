#!/usr/bin/env bash
# Counts the instructions of the engine's calls above the provider (valgrind's callgrind, the null
# provider) and compares them with benches/icount.json: a rise fails, and so does a case that only one side has.
#
#   ci/icount.sh            compare
#   ci/icount.sh --update   write the file
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if (($# > 1)) || [[ "${1:---update}" != --update ]]; then
    echo "usage: ci/icount.sh [--update]" >&2
    exit 2
fi
if [[ "$(uname -m)" != x86_64 ]]; then
    echo "icount: the file holds counts of x86_64; nothing to compare on $(uname -m)"
    exit 0
fi
cargo build --locked --release -p rma-bench --bin rma-icount
exec "${CARGO_TARGET_DIR:-target}/release/rma-icount" \
    check benches/icount.json --compiler "$(rustc --version)" "$@"
