#!/usr/bin/env bash
# Fuzzes what takes bytes from others: MINUTES each, one target after the other. Needs the nightly toolchain
# and cargo-fuzz. New inputs worth keeping go to fuzz/corpus, which normal tests replay; what fails lies in
# fuzz/artifacts.
#
#   ci/fuzz.sh MINUTES [TARGET...]   all targets, or these
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
    echo "usage: ci/fuzz.sh MINUTES [TARGET...]" >&2
    exit 2
}

(($# >= 1)) || usage
if ! cargo fuzz --version >/dev/null 2>&1; then
    echo "fuzz: there is no cargo-fuzz: cargo install cargo-fuzz" >&2
    exit 1
fi
targets=()
for file in fuzz/fuzz_targets/*.rs; do
    targets+=("$(basename "$file" .rs)")
done

[[ "$1" =~ ^[0-9]+$ ]] || usage
minutes="$1"
shift
if (($# > 0)); then
    targets=("$@")
fi
for target in "${targets[@]}"; do
    printf '=== %s for %d minutes\n' "$target" "$minutes"
    cargo +nightly fuzz run "$target" "fuzz/corpus/$target" -- \
        "-max_total_time=$((minutes * 60))" -max_len=4096 -print_final_stats=1 -timeout=20
done
