#!/usr/bin/env bash
# Runs random programs for as long as asked, with seeds that were not used before: on the simulated fabric with
# few and with many ranks, with and without deaths, and over tcp with real processes. Prints how to repeat what
# failed, and fails at the end if anything did.
#
#   ci/swarm.sh MINUTES
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if (($# != 1)) || ! [[ "$1" =~ ^[0-9]+$ ]]; then
    echo "usage: ci/swarm.sh MINUTES" >&2
    exit 2
fi
end=$((SECONDS + 60 * $1))
cargo build --locked --quiet --release --package rma-sim --package rma-conformance --package launcher
bin="${CARGO_TARGET_DIR:-target}/release"
log="$(mktemp)"
trap 'rm -f "$log"' EXIT

# A run every nanosecond for 500 years fits 64 bits, so no two runs share seeds.
from="$(date +%s%N)"
rounds=0
failures=0

# round SEEDS COMMAND...: runs the command; what it prints is shown when it fails.
round() {
    local seeds="$1"
    shift
    if ! timeout --kill-after=10 900 "$@" >"$log" 2>&1; then
        failures=$((failures + 1))
        echo "FAILED: $*"
        grep -E '^(seed|program|  again)' "$log" || tail -n 20 "$log"
    fi
    from=$((from + seeds))
}

while ((SECONDS < end)); do
    round 400 "$bin/rma-sim" run --seeds 400 --from "$from" --keep-going
    round 20 "$bin/rma-sim" run --seeds 20 --from "$from" --ranks 65..256 --keep-going
    round 200 "$bin/rma-sim" run --seeds 200 --from "$from" --deaths --keep-going
    ranks=$((2 + rounds % 4))
    round 20 "$bin/rmarun" -n "$ranks" --timeout 600 "$bin/rma-programs" --seeds 20 --from "$from"
    rounds=$((rounds + 1))
done
echo "$rounds rounds, $failures failures"
((failures == 0))
