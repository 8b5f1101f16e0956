#!/usr/bin/env bash
# Runs the tests under a sanitizer of the nightly compiler: asan is AddressSanitizer with LeakSanitizer, tsan is
# ThreadSanitizer. What it reports is kept in target/SANITIZER/reports, from every process that a test starts, and
# each report is a failure, whatever became of its process. Ends with what passed, what failed and what was left out.
#
#   ci/sanitizers.sh asan|tsan             every test that can run so; says which cannot, and why
#   ci/sanitizers.sh asan|tsan bounded     what lanes asan and tsan of ci/test.sh run, in minutes
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
log="$target/log"
rm -rf "$reports"
mkdir -p "$reports"
options="log_path=$reports/report:exitcode=66"
skipped=()
reasons=()

# leave_out TEST REASON: a test, or all whose path has this in it, that cannot run under the sanitizer.
leave_out() {
    skipped+=(--skip "$1")
    reasons+=("$1: $2")
}

case "$sanitizer" in
asan)
    flags="-Zsanitizer=address"
    more=()
    bounded=(-p rma-core -p rma-conformance --lib --test sim --test hostile)
    export ASAN_OPTIONS="$options" LSAN_OPTIONS="suppressions=$PWD/ci/leaks.txt:print_suppressions=0"
    leave_out memory_costs_the_same_whatever_its_size "the sanitizer touches its notes about all that is allocated"
    ;;
tsan)
    # rustix calls the system by itself, and what it maps and unmaps the sanitizer does not see: it would take memory that
    # comes at an old address for the old memory. Through libc it sees both. Nor does it see instructions that are written
    # down as such: the two words of a lock are exchanged one by one (rma-shm/src/pair.rs).
    flags="-Zsanitizer=thread --cfg=rustix_use_libc --cfg=words_one_by_one"
    # Without an instrumented standard library it reports races inside of the test harness.
    more=(-Zbuild-std)
    bounded=(-p rma-core -p rma --lib --test threads)
    export TSAN_OPTIONS="$options:suppressions=$PWD/ci/races.txt:print_suppressions=0"
    leave_out a_job_that_fails_leaves_a_timeline "the sanitizer calls no handler of a signal while the thread that got \
it, here the harness's, sleeps in a system call of its own"
    leave_out memory_that_nobody_touches_is_not_taken "the sanitizer touches its notes about all that is allocated"
    leave_out memory_costs_the_same_whatever_its_size "the same"
    ;;
*) usage ;;
esac
malloc="RMA_PROGRESS=signal refuses a program that contains malloc itself, and the sanitizer's is in every program"
leave_out signal::places "$malloc"
leave_out served_by_signals "$malloc"
leave_out with_signals "$malloc"
leave_out whatever_the_target_does_it_is_served "$malloc"
leave_out nothing_is_left_behind "$malloc"
leave_out wrong_choices_are_refused "$malloc, before it looks at what the test is about"
leave_out epochs_and_windows_come_and_go "looks at what a process holds, and the sanitizers hold more: what was freed, \
to see who uses it (asan: passes with quarantine_size_mb=0:thread_local_quarantine_size_kb=0), what they map (tsan)"
leave_out mistakes_do_not_compile "runs nothing, and compares with the messages of the stable compiler"

if [[ "$part" == bounded ]]; then
    tests=("${bounded[@]}")
    for suite in data_ordered data_unordered local_completion target_progress forced_messages word_locks_alone neighbours_that_look; do
        leave_out "$suite::" "differs from the suites that run in what the simulated fabric does, not in what memory it takes"
    done
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

# Each endpoint of ofi_rxm touches 75 MB of receive buffers when it is opened, and the sanitizer as much again.
export FI_OFI_RXM_MSG_RX_SIZE="${FI_OFI_RXM_MSG_RX_SIZE:-256}"
# Jobs are slower, by tens where other programs have the processors.
export RMA_TEST_LIMIT="${RMA_TEST_LIMIT:-600}"
export CARGO_TARGET_DIR="$target" RUSTFLAGS="$flags" RUSTDOCFLAGS="$flags"
status=0
cargo +nightly test --locked "${more[@]}" "${tests[@]}" --target "$host" -- "${skipped[@]}" 2>&1 |
    tee "$log" || status="$?"

shopt -s nullglob
found=0
for report in "$reports"/*; do
    # On stacks of shuttle's own AddressSanitizer does not know what a panic leaves, and says so; nothing is wrong yet.
    if ! grep -qE 'ERROR: |WARNING: ThreadSanitizer|CHECK failed|runtime error' "$report" &&
        grep -q 'ASan is ignoring requested __asan_handle_no_return' "$report"; then
        continue
    fi
    printf '\n%s:\n' "$report"
    head -n 60 "$report"
    found=$((found + 1))
done

# Adds up the `test result:` lines of the tests themselves; ranks print theirs with a mark in front or to nobody.
read -r passed failed ignored skips < <(awk '
    /^test result:/ { for (i = 2; i <= NF; i++) {
        if ($i == "passed;") passed += $(i - 1)
        if ($i == "failed;") failed += $(i - 1)
        if ($i == "ignored;") ignored += $(i - 1)
        if ($i == "filtered") skips += $(i - 1)
    } }
    END { print passed + 0, failed + 0, ignored + 0, skips + 0 }' "$log")

printf '\n'
printf 'left out: %s\n' "${reasons[@]}"
printf '%s, %s: %d tests passed, %d failed, %d left out, %d need what is not here (ignored); %d reports\n' \
    "$sanitizer" "$part" "$passed" "$failed" "$skips" "$ignored" "$found"
((found == 0)) || exit 66
exit "$status"
