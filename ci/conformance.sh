#!/usr/bin/env bash
# Runs the conformance suite several times in a row, on every provider, natively and with forced messages: in one
# process on the simulated fabrics and over libfabric, and in real processes under rmarun. Prints a line for each
# provider and round and the names of what failed, and fails at the end if anything did.
#
# The tests that are called version_2_* need a libfabric 2.x: RMA_TEST_LIBFABRIC2 names its directory, or
# ci/libfabric2.sh prepares one; where neither is to be had nothing runs. RMA_CONFORMANCE_WITHOUT_LIBFABRIC2=1 does
# without: then they run on the default libfabric or not at all.
#
#   ci/conformance.sh [ROUNDS]      one round, if not said
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

rounds="${1:-1}"
if (($# > 1)) || ! [[ "$rounds" =~ ^[1-9][0-9]*$ ]]; then
    echo "usage: ci/conformance.sh [ROUNDS]" >&2
    exit 2
fi
# Longest time of one file of tests, seconds; far above what any takes on a busy machine.
limit=1500
log="$(mktemp)"
trap 'rm -f "$log"' EXIT

if [[ -z "${RMA_TEST_LIBFABRIC2:-}" ]]; then
    status=0
    directory="$(ci/libfabric2.sh 2>"$log")" || status="$?"
    if ((status == 0)); then
        export RMA_TEST_LIBFABRIC2="$directory"
    elif ((status != 3)); then
        echo "conformance: ci/libfabric2.sh ended with $status: $(<"$log")" >&2
        exit 1
    elif [[ "${RMA_CONFORMANCE_WITHOUT_LIBFABRIC2:-}" == 1 ]]; then
        echo "version_2_*: run on the default libfabric or not at all, $(<"$log")"
    else
        echo "conformance: there is no libfabric 2.x: $(<"$log")" >&2
        echo "conformance: without it, version_2_* run on another one or not at all, and are green;" \
            "RMA_CONFORMANCE_WITHOUT_LIBFABRIC2=1 says that this will do" >&2
        exit 1
    fi
fi
# With one, a test that is called version_2_* and runs on another library fails.
if [[ -n "${RMA_TEST_LIBFABRIC2:-}" ]]; then
    export RMA_TEST_REQUIRE_LIBFABRIC2=1
fi
# As in ci/test.sh: what ofi_rxm touches when it is opened.
export FI_OFI_RXM_MSG_RX_SIZE="${FI_OFI_RXM_MSG_RX_SIZE:-256}"
export RUST_BACKTRACE="${RUST_BACKTRACE:-1}"

# Built as lane `test` builds them, so that each finds what the other one has built.
names=()
for file in tests/tests/*.rs tests/processes/tests/*.rs; do
    # These need a device: ci/softroce.sh runs them where there is one.
    [[ "$file" != tests/tests/verbs*.rs ]] || continue
    names+=(--test "$(basename "$file" .rs)")
done
cargo build --locked --quiet --workspace --bin rmarun
built="$(cargo test --locked --quiet --workspace "${names[@]}" --no-run --message-format=json)"

# executables: the package, the name and the path of each file of integration tests of the suite's packages.
executables() {
    sed -nE 's/^\{"reason":"compiler-artifact","package_id":"[^"]*[/#](rma-)?(conformance|processes)(@|#)[^"]*".*"target":\{"kind":\["test"\][^}]*"name":"([^"]*)".*"executable":"([^"]+)".*/\2 \4 \5/p' \
        <<<"$built"
}
mapfile -t files < <(executables)
if ((${#files[@]} < 2)); then
    echo "conformance: found no tests" >&2
    exit 1
fi

# summary NAME: a line for each provider (a module of the file) of what the log says, and what failed.
summary() {
    awk -v name="$1" '
        /^test .* \.\.\. (ok|FAILED|ignored)/ {
            group = $2
            if (!sub(/::[^:]*$/, "", group)) group = "-"
            if (!(group in seen)) { seen[group] = 1; order[++groups] = group }
            if ($0 ~ /\.\.\. ok/) passed[group]++
            if ($0 ~ /\.\.\. FAILED/) { failed[group]++; names = names "    FAILED: " $2 "\n" }
        }
        /behaviours passed on/ { details = details "    " $0 "\n" }
        END {
            for (i = 1; i <= groups; i++) {
                group = order[i]
                printf "  %-14s %-32s %4d passed %3d failed\n", name, group, passed[group], failed[group]
            }
            printf "%s%s", details, names
        }' "$log"
}

failures=0
begun="$SECONDS"
for ((round = 1; round <= rounds; round++)); do
    echo "round $round of $rounds"
    passed=0
    failed=0
    for file in "${files[@]}"; do
        read -r package name executable <<<"$file"
        folder=tests
        [[ "$package" == processes ]] && folder=tests/processes
        status=0
        (cd "$folder" && RMA_TEST_RMARUN="${executable%/deps/*}/rmarun" \
            timeout --kill-after=10 "$limit" "$executable" --show-output) >"$log" 2>&1 </dev/null || status="$?"
        summary "$name"
        passed=$((passed + $(grep -cE '^test .* \.\.\. ok' "$log" || true)))
        if ((status != 0)); then
            failed=$((failed + 1))
            kept="${CARGO_TARGET_DIR:-target}/conformance-$round-$name.log"
            cp "$log" "$kept"
            echo "    $name ended with status $status; all it said: $kept"
        fi
    done
    failures=$((failures + failed))
    echo "round $round of $rounds: $passed tests passed, $failed of ${#files[@]} files failed"
done
echo "$rounds rounds in $((SECONDS - begun)) s, $failures failures"
((failures == 0))
