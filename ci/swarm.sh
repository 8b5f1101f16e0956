#!/usr/bin/env bash
# Runs random programs for as long as asked, with seeds that were not used before: on the simulated fabric with
# few and with many ranks, with and without deaths, with real processes over shared memory, `net` and tcp in turn, and
# on two hosts over shared memory and one of these networks. Prints how to repeat what failed, and fails at the end if
# anything did.
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

is_apart=1
if ! ci/apart.sh a true 2>/dev/null; then
    # Such as in a container without CAP_SYS_ADMIN.
    echo "swarm: no programs on two hosts, as this machine lets nobody make namespaces" >&2
    is_apart=0
fi

# The providers of the processes on one host, which take turns.
one_host=(shm net 'tcp;ofi_rxm')

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
    # Few, as each takes up to half a minute.
    round 4 "$bin/rma-sim" run --seeds 4 --from "$from" --ranks 65..256 --deaths --keep-going
    # Two to five ranks; without a name it would be shared memory every time.
    ranks=$((2 + rounds % 4))
    round 20 "$bin/rmarun" -n "$ranks" --timeout 600 --provider "${one_host[rounds % 3]}" \
        "$bin/rma-programs" --seeds 20 --from "$from"
    if ((is_apart)); then
        # Two to four ranks on each host; every provider meets every pair of numbers.
        first=$((2 + rounds % 3)) second=$((2 + rounds / 3 % 3))
        provider=shm+net
        ((rounds / 9 % 2)) && provider='shm+tcp;ofi_rxm'
        round 20 "$bin/rmarun" --launch-agent ci/apart.sh --host "a:$first,b:$second" -n "$((first + second))" \
            --timeout 600 --provider "$provider" "$bin/rma-programs" --seeds 20 --from "$from"
    fi
    rounds=$((rounds + 1))
done
echo "$rounds rounds, $failures failures"
((failures == 0))
