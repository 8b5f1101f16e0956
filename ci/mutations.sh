#!/usr/bin/env bash
# Makes the engine make deliberate mistakes, as many at a time as there are processors, and shows that the exploration
# or the swarm finds each. Prints the table of docs/model-checking.md; fails when a mistake is not found.
#
#   ci/mutations.sh             all mistakes
#   ci/mutations.sh NAME...     only these
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# A directory of its own: the feature must never be in what others build.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/mutations"
cargo build --locked --quiet --package rma-sim --features mutations
tool="$CARGO_TARGET_DIR/debug/rma-sim"

names=("$@")
if ((${#names[@]} == 0)); then
    mapfile -t names < <("$tool" mutations --list)
fi
results="$(mktemp -d)"
trap 'rm -rf "$results"' EXIT

# look INDEX: has one mistake looked for; its row and then its status are files of that name.
look() {
    local status=0
    # In the foreground: what ends this script ends it, too.
    timeout --foreground --kill-after=5 900 "$tool" mutations --only "${names[$1]}" >"$results/$1.row" || status="$?"
    echo "$status" >"$results/$1.new"
    mv "$results/$1.new" "$results/$1.status"
}

printed=0
missed=()
# Prints rows in the order of the list, as far as they are there.
print_rows() {
    local status
    while [[ -e "$results/$printed.status" ]]; do
        cat "$results/$printed.row"
        status="$(<"$results/$printed.status")"
        ((status == 0)) || missed+=("${names[printed]} (status $status)")
        printed=$((printed + 1))
    done
}

echo '| mistake | what the engine does | found by explore | found by the swarm |'
echo '| --- | --- | --- | --- |'
processors="$(nproc)"
for index in "${!names[@]}"; do
    if ((index >= processors)); then
        wait -n || true
        print_rows
    fi
    look "$index" &
done
wait
print_rows
for name in "${missed[@]}"; do
    echo "mutations: not found: $name" >&2
done
if ((printed < ${#names[@]})); then
    echo "mutations: nobody looked for ${names[*]:printed}" >&2
    exit 1
fi
((${#missed[@]} == 0))
