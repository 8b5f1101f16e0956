#!/usr/bin/env bash
# Makes the engine make deliberate mistakes, one after the other, and shows that the exploration or the swarm
# finds each. Prints the table of docs/model-checking.md; fails when a mistake is not found.
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
missed=()
echo '| mistake | what the engine does | found by explore | found by the swarm |'
echo '| --- | --- | --- | --- |'
for name in "${names[@]}"; do
    status=0
    timeout --kill-after=5 900 "$tool" mutations --only "$name" || status="$?"
    ((status == 0)) || missed+=("$name (status $status)")
done
for name in "${missed[@]}"; do
    echo "mutations: not found: $name" >&2
done
((${#missed[@]} == 0))
