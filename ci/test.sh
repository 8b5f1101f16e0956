#!/usr/bin/env bash
# Every test lane, one after the other; each has a time limit, and one that fails stops no other.
# Fails at the end if a lane did, lists them, and says of each what failed. The last line, `N passed, N failed`,
# sums what `cargo test` and the scripts with steps printed; a lane that fails without a failed test counts as one.
# Where it has a time (RMA_TEST_SECONDS; in CI 5000) the last long lane, softroce, does what there is time for, and what it leaves
# out is listed as skipped.
#
#   ci/test.sh              all lanes
#   ci/test.sh LANE...      only these
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export CARGO_TERM_COLOR="${CARGO_TERM_COLOR:-never}"
export RUST_BACKTRACE="${RUST_BACKTRACE:-1}"
# What is built once is not built incrementally: what that keeps on disk is three times everything else (9 GB).
if [[ -n "${CI:-}" ]]; then
    export CARGO_INCREMENTAL="${CARGO_INCREMENTAL:-0}"
    # A slow machine takes twice as long as most do, and CI ends what takes 90 minutes.
    RMA_TEST_SECONDS="${RMA_TEST_SECONDS:-5000}"
fi
all_seconds="${RMA_TEST_SECONDS:-}"

wanted=("$@")
ran=()
failed_lanes=()
skipped_lanes=()
passed=0
failed=0
running=
log="$(mktemp)"
reasons="$(mktemp)"
# Lines of reasons for each failed lane: what keeps only the end of the output should have most of them.
reasons_max=18
# Of a clean clone, not built incrementally.
all_lanes_gb=7

clean_up() {
    if [[ -n "$running" ]]; then
        kill "$running" 2>/dev/null || true
    fi
    rm -f "$log" "$reasons"
}
trap clean_up EXIT

is_wanted() {
    ((${#wanted[@]} == 0)) && return 0
    local name
    for name in "${wanted[@]}"; do
        [[ "$name" == "$1" ]] && return 0
    done
    return 1
}

# lane NAME SECONDS COMMAND...: runs the command under the time limit and notes how it went.
lane() {
    local name="$1" limit="$2" start="$SECONDS" status=0
    shift 2
    is_wanted "$name" || return 0
    ran+=("$name")
    printf '\n=== %s: %s\n' "$name" "$*"
    # Through a file and not a pipe: a process that outlives the limit cannot keep the lane open.
    : >"$log"
    timeout --kill-after=10 "$limit" "$@" </dev/null >>"$log" 2>&1 &
    running="$!"
    tail --lines=+1 --follow --sleep-interval=0.2 --pid="$running" "$log"
    wait "$running" || status="$?"
    running=
    case "$status" in
    0) printf -- '--- %s: passed in %d s\n' "$name" "$((SECONDS - start))" ;;
    124 | 137) printf -- '--- %s: FAILED, ran into its limit of %d s\n' "$name" "$limit" ;;
    *) printf -- '--- %s: FAILED with status %d in %d s\n' "$name" "$status" "$((SECONDS - start))" ;;
    esac
    if ((status != 0)); then
        failed_lanes+=("$name")
        {
            printf '%s: status %d in %d s\n' "$name" "$status" "$((SECONDS - start))"
            awk -v most="$reasons_max" -f ci/failures.awk "$log"
        } >>"$reasons"
    fi
    count_tests "$name" "$status"
}

# Adds up the `test result:` lines of the lane. The sanitizers run tests of lane `test` again: of
# those, only what fails is counted.
count_tests() {
    local lane_passed lane_failed
    read -r lane_passed lane_failed < <(awk '
        /^test result:/ { for (i = 2; i <= NF; i++) {
            if ($i == "passed;") passed += $(i - 1)
            if ($i == "failed;") failed += $(i - 1)
        } }
        END { print passed + 0, failed + 0 }' "$log")
    if [[ "$1" == test || "$1" == launch || "$1" == softroce ]]; then
        passed=$((passed + lane_passed))
    fi
    if (($2 != 0 && lane_failed == 0)); then
        lane_failed=1
    fi
    failed=$((failed + lane_failed))
}

# skip NAME REASON: a lane that this machine cannot run.
skip() {
    is_wanted "$1" || return 0
    ran+=("$1")
    printf '\n=== %s: skipped, %s\n' "$1" "$2"
    skipped_lanes+=("$1 ($2)")
}

# Lets lane test run on a libfabric 2.x beside the system's; lists that as skipped where there is none.
second_libfabric() {
    local directory reason status=0
    is_wanted test || return 0
    # With one, a test that is called version_2_* and runs on another library fails.
    if [[ -n "${RMA_TEST_LIBFABRIC2:-}" ]]; then
        export RMA_TEST_REQUIRE_LIBFABRIC2=1
        return
    fi
    directory="$(ci/libfabric2.sh 2>"$log")" || status="$?"
    reason="$(<"$log")"
    case "$status" in
    0) export RMA_TEST_LIBFABRIC2="$directory" RMA_TEST_REQUIRE_LIBFABRIC2=1 ;;
    3)
        printf '\n=== test: not on libfabric 2.x, %s\n' "$reason"
        skipped_lanes+=("test on libfabric 2.x ($reason)")
        ;;
    *)
        printf '\n=== test: ci/libfabric2.sh FAILED with status %d: %s\n' "$status" "$reason" | tee -a "$reasons"
        failed_lanes+=("test on libfabric 2.x")
        ;;
    esac
}

# Tests on an RDMA device in software, in a guest without hardware virtualization.
softroce() {
    local status=0
    is_wanted softroce || return 0
    ci/softroce.sh ready >"$log" 2>&1 || status="$?"
    if ((status == 3)); then
        skip softroce "$(tail -n 1 "$log")"
        return
    fi
    local guest=1800 enough=1800
    if [[ -n "$all_seconds" ]]; then
        # What it builds before takes two minutes; and a part that has begun is to end, of which the longest takes six.
        guest=$((all_seconds - SECONDS - 150))
        ((guest < 1800)) || guest=1800
        enough=$((guest - 400))
        if ((guest < 600)); then
            skip softroce "only $((all_seconds - SECONDS)) s were left of $all_seconds s for all lanes, the machine being slow"
            return
        fi
    fi
    lane softroce "$((guest + 300))" env RMA_SOFTROCE_LIMIT="$guest" RMA_SOFTROCE_ENOUGH="$enough" ci/softroce.sh
    local left
    left="$(sed -n 's/^left out: \([a-z_]*\), as .*/\1/p' "$log" | sort -u | paste -sd' ')"
    if [[ -n "$left" ]]; then
        skipped_lanes+=("parts of softroce: $left (the time for all lanes was nearly over, the machine being slow)")
    fi
}

bindings() {
    local reason
    if reason="$(ofi-sys/regenerate.sh --ready 2>&1)"; then
        lane bindings 120 ofi-sys/regenerate.sh --check
    else
        skip bindings "$reason"
    fi
}

has_nightly() {
    # Asked of rustup, as `cargo +nightly` may download one.
    [[ "$(rustup toolchain list 2>/dev/null)" == *nightly* ]]
}

has_rust_src() {
    [[ -d "$(rustc +nightly --print sysroot)/lib/rustlib/src/rust/library" ]]
}

sanitizers() {
    if ! has_nightly; then
        skip asan "there is no nightly toolchain"
        skip tsan "there is no nightly toolchain"
        return
    fi
    lane asan 1200 ci/sanitizers.sh asan bounded
    if has_rust_src; then
        lane tsan 1200 ci/sanitizers.sh tsan bounded
    else
        skip tsan "the nightly toolchain has no rust-src component"
    fi
}

# Said first, as a full disk shows as a compiler that panics.
enough_disk() {
    local free_gb
    free_gb="$(df --output=avail --block-size=1G . | tail -n 1 | tr -d ' ')"
    printf '%s GB of disk are free; all lanes take %s GB\n' "$free_gb" "$all_lanes_gb"
    if ((${#wanted[@]} == 0 && free_gb < all_lanes_gb)) && [[ ! -d target ]]; then
        printf 'test: they will not do\n' >&2
    fi
}

enough_disk
lane install 300 ci/install.sh
lane fmt 120 cargo fmt --all --check
lane clippy 600 cargo clippy --locked --workspace --all-targets -- -D warnings
# What the workspace is not built with: no verbs, but events.
lane features 600 cargo clippy --locked -p rma --no-default-features --features tracing --all-targets -- -D warnings
# What only the guest of lane softroce runs: found here in a minute, and where there is no guest.
lane features-device 600 cargo clippy --locked -p rma-verbs -p rma-ofi -p rma-conformance \
    --features rma-verbs/device,rma-ofi/device,rma-conformance/verbs --all-targets -- -D warnings
lane doc 600 env RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps
lane tidy 300 cargo run --locked --quiet -p tidy
lane coverage 300 cargo run --locked --quiet -p tidy -- coverage
if command -v shellcheck >/dev/null; then
    lane shellcheck 60 shellcheck ci/*.sh docker/*.sh docker/*.sbatch .ci/run ofi-sys/regenerate.sh
else
    skip shellcheck "it is not installed"
fi
# The dev profile: optimised enough for the multi-process tests, and debug assertions are on. The
# fuzz corpus is replayed by tests of the crates that decode.
second_libfabric
# Each endpoint of ofi_rxm touches 75 MB of receive buffers when it is opened, which is most of what its tests cost.
export FI_OFI_RXM_MSG_RX_SIZE=256
lane test 2700 cargo test --locked --workspace --no-fail-fast
lane test-features 600 cargo test --locked -p rma --features tracing --test events
lane sim 900 cargo run --locked --release -p rma-sim -- run --seeds 10000
# The lane before never goes above 64 ranks.
lane sim-many 300 cargo run --locked --release -p rma-sim -- run --ranks 65..256 --seeds 40
lane sim-deaths 900 cargo run --locked --release -p rma-sim -- run --deaths --seeds 500
lane sim-many-deaths 300 cargo run --locked --release -p rma-sim -- run --ranks 65..256 --deaths --seeds 2
# Every interleaving of the small programs of two, three and four ranks, and where it was looked up what engines do,
# that they do it (docs/model-checking.md).
lane explore 600 cargo run --locked --release -p rma-sim -- explore
lane explore-checked 600 cargo run --locked --release -p rma-sim -- explore --ranks 2 --check
lane mutations 2000 ci/mutations.sh
sanitizers
if has_nightly; then
    # They build; normal tests replay the corpora, and ci/fuzz.sh runs them for as long as is asked.
    lane fuzz 900 env CARGO_TARGET_DIR=target/fuzz cargo +nightly check --locked --manifest-path fuzz/Cargo.toml
else
    skip fuzz "there is no nightly toolchain"
fi
bindings
lane icount 600 ci/icount.sh
lane counts 300 ci/counts.sh
if ((EUID == 0)) && command -v apt-get >/dev/null; then
    lane launch 900 ci/launch-tests.sh
else
    skip launch "it starts Slurm, which needs root, and installs Debian packages"
fi
softroce
if command -v cargo-deny >/dev/null; then
    lane deny 120 cargo deny check licenses bans sources
else
    skip deny "cargo-deny is not installed, and compiling it takes longer than all other lanes"
fi

for name in "${wanted[@]}"; do
    if [[ " ${ran[*]} " != *" $name "* ]]; then
        echo "test: there is no lane '$name'" >&2
        exit 2
    fi
done

printf '\n%d lanes in %d s\n' "${#ran[@]}" "$SECONDS"
for skipped in "${skipped_lanes[@]}"; do
    printf 'skipped: %s\n' "$skipped"
done
for name in "${failed_lanes[@]}"; do
    printf 'FAILED: %s\n' "$name"
done
tail -n 60 "$reasons"
printf '%d passed, %d failed\n' "$passed" "$failed"
((${#failed_lanes[@]} == 0))
