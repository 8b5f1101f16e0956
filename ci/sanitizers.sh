#!/usr/bin/env bash
# Runs the tests under a sanitizer of the nightly compiler: asan is AddressSanitizer with LeakSanitizer, tsan is
# ThreadSanitizer. What it reports is kept in target/SANITIZER/reports, from every process that a test starts, and
# each report is a failure, whatever became of its process.
#
#   ci/sanitizers.sh asan|tsan             every test that can run so; says which cannot, and why
#   ci/sanitizers.sh asan|tsan bounded     about what lanes asan and tsan of ci/test.sh run
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
    echo "usage: ci/sanitizers.sh asan|tsan [bounded]" >&2
    exit 2
}
(($# >= 1 && $# <= 2)) || usage
sanitizer="$1"
part="${2:-whole}"
[[ "$part" == whole || "$part" == bounded ]] || usage

host="$(rustc +nightly --print host-tuple)"
plain="${CARGO_TARGET_DIR:-$PWD/target}"
target="$plain/$sanitizer"
reports="$target/reports"
rm -rf "$reports"
mkdir -p "$reports"
options="log_path=$reports/report:exitcode=66"
skipped=()

# leave_out TEST REASON: a test, or all whose path has this in it, that cannot run under the sanitizer.
leave_out() {
    skipped+=(--skip "$1")
    echo "left out: $1: $2"
}

case "$sanitizer" in
asan)
    flags="-Zsanitizer=address"
    more=()
    bounded=(-p rma-core -p rma-conformance --lib --test sim --test ghosts --test hostile)
    export ASAN_OPTIONS="$options" LSAN_OPTIONS="suppressions=$PWD/ci/leaks.txt:print_suppressions=0"
    ;;
tsan)
    flags="-Zsanitizer=thread"
    # Without an instrumented standard library it reports races inside of the test harness.
    more=(-Zbuild-std)
    bounded=(-p rma-core -p rma --lib --test threads)
    export TSAN_OPTIONS="$options"
    ;;
*) usage ;;
esac

leave_out signal::places "looks for the C library's malloc, and the sanitizer puts its own into the program"
if [[ "$part" == whole ]]; then
    leave_out served_by_signals "interrupts the sanitizer's malloc, which the agent does not know for unsafe"
    leave_out whatever_the_target_does_it_is_served "the same"
    leave_out nothing_is_left_behind "the same"
    leave_out mistakes_do_not_compile "runs nothing, and compares with the messages of the stable compiler"
fi
if [[ "$part" == bounded ]]; then
    tests=("${bounded[@]}")
    if [[ "$sanitizer" == tsan ]]; then
        # The launcher of lane test starts the ranks: it takes longer to build than these tests take.
        cargo build --locked --quiet --workspace --bin rmarun
        export RMA_TEST_RMARUN="$plain/debug/rmarun"
    fi
else
    # The tools and the benchmarks have nothing to find, and take long to compile.
    tests=(--workspace --exclude tidy --exclude rma-bench --no-fail-fast)
    export RMA_TEST_RMARUN="$target/$host/debug/rmarun"
fi

export CARGO_TARGET_DIR="$target" RUSTFLAGS="$flags" RUSTDOCFLAGS="$flags"
status=0
cargo +nightly test --locked "${more[@]}" "${tests[@]}" --target "$host" -- "${skipped[@]}" || status="$?"

shopt -s nullglob
for report in "$reports"/*; do
    printf '\n%s:\n' "$report"
    head -n 60 "$report"
    status=66
done
exit "$status"
