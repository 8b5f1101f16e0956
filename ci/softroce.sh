#!/usr/bin/env bash
# A machine with RDMA devices: Debian's kernel with its software RoCE driver, booted in QEMU on this machine's own
# root file system. In it run the contract of the provider, the conformance suite on rma-verbs and on libfabric's
# verbs, jobs of real processes, and two devices on a network that is bad or taken away. Ends by itself whatever
# happens, with the guest's status: 0 when everything passed; 3 where the packages that it takes cannot be had.
#
#   ci/softroce.sh                    all parts
#   ci/softroce.sh PART...            these; `ci/softroce.sh parts` lists them
#   ci/softroce.sh ready              installs what it needs, no more
#   ci/softroce.sh run COMMAND...     one command in the guest, in this directory; for people
#
# RMA_SOFTROCE_TESTS: of the suites all tests whose name has this in it, and no others, also where a part takes only
# some (`verbs_rxm` in ofi). RMA_SOFTROCE_LIMIT: seconds that the guest may take, at least
# 600; one part may take half of them, or 450. RMA_SOFTROCE_ENOUGH: seconds of the guest after which no further part begins; those are listed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH="$PATH:/usr/sbin:/sbin"

# What each part shows, in the order in which they run.
declare -A parts=(
    [contract]="the provider contract on one device, with other processes that sleep and die"
    [conformance]="the conformance suite on rma-verbs, with the device's atomics and window locks that are words, too"
    [choices]="extracts of it with data that end epochs, and with locks by atomics or by message as it suits them"
    [messages]="the whole suite with forced messages"
    [hosts]="contract and suite in extracts between two devices, as if they were two hosts"
    [lossy]="some of them on a network that loses and delays"
    [down]="cables that are cut and ports that are down, for a while and for good, and peers that are killed"
    [contract_ofi]="the provider contract on libfabric's verbs;ofi_rxm, with other processes that sleep and die"
    [ofi]="an extract of the conformance suite on libfabric's verbs;ofi_rxm, each test in a process of its own"
    [jobs]="real processes under rmarun on rma-verbs, alone and beside shared memory, and on verbs;ofi_rxm"
    [ptrace]="an ordinary user's jobs in shared memory where the kernel keeps debuggers from processes, as Ubuntu's does"
    [table]="what each optimization gains on rma-verbs, and on verbs;ofi_rxm, with 1 and 16 operations, and locks by atomics beside locks by message"
    [perftest]="latency and rate of rma-verbs beside perftest's, and memory for each connection"
)
order=(contract conformance choices messages hosts lossy down contract_ofi ofi jobs ptrace table perftest)

limit="${RMA_SOFTROCE_LIMIT:-1800}"
enough="${RMA_SOFTROCE_ENOUGH:-$limit}"
tests="${RMA_SOFTROCE_TESTS:-}"
vng_version=1.42
directory="$(realpath -m "${CARGO_TARGET_DIR:-target}")/softroce"
# What the guest may write, and where its output and status come back.
shared="$directory/shared"

cannot() {
    echo "softroce: $1" >&2
    exit 3
}

install_packages() {
    local missing=()
    command -v qemu-system-x86_64 >/dev/null || missing+=(qemu-system-x86)
    command -v rdma >/dev/null || missing+=(iproute2)
    command -v modprobe >/dev/null || missing+=(kmod)
    # virtme-ng makes an initramfs of it: what reads the root file system is a module, too.
    [[ "$(ldd "$(command -v busybox)" 2>&1)" == *"not a dynamic"* ]] || missing+=(busybox-static)
    command -v ibv_devices >/dev/null || missing+=(ibverbs-utils)
    command -v ib_write_lat >/dev/null || missing+=(perftest)
    [[ -e /usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so ]] || missing+=(ibverbs-providers)
    ((${#missing[@]} == 0)) && return
    ((EUID == 0)) || cannot "these packages are missing, and only root installs them: ${missing[*]}"
    command -v apt-get >/dev/null || cannot "these packages are missing: ${missing[*]}"
    echo "softroce: installing ${missing[*]}"
    update_lists
    timeout 600 env DEBIAN_FRONTEND=noninteractive \
        apt-get install -q -y --no-install-recommends "${missing[@]}" >>"$directory/apt.log" 2>&1 ||
        cannot "${missing[*]} cannot be installed, see $directory/apt.log"
}

update_lists() {
    [[ -n "$are_lists_new" ]] && return
    timeout 300 apt-get update -q >"$directory/apt.log" 2>&1 || cannot "apt-get update failed, see $directory/apt.log"
    are_lists_new=1
}
are_lists_new=

# Finds the kernel, or fetches it. It is only unpacked, and not installed: this machine boots another, or none, and
# making this one ready to boot takes longer than all the rest.
fetch_kernel() {
    local root="$directory/kernel" package
    if ! compgen -G "$root/lib/modules/*/kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko*" >/dev/null; then
        command -v apt-get >/dev/null || cannot "there is no apt-get to fetch a kernel with"
        update_lists
        package="$(apt-cache depends --important linux-image-amd64 | awk '$1 == "Depends:" { print $2; exit }')"
        rm -rf "$root.new"
        mkdir -p "$root.new"
        (cd "$root.new" && timeout 300 apt-get download -q "$package" >>"$directory/apt.log" 2>&1 &&
            dpkg -x ./*.deb . && rm ./*.deb) || cannot "the kernel cannot be fetched, see $directory/apt.log"
        rm -rf "$root"
        mv -T "$root.new" "$root"
    fi
    kernel="$(compgen -G "$root/boot/vmlinuz-*" | head -n 1)"
    [[ -n "$kernel" ]] || cannot "there is no kernel in $root/boot"
}

# virtme-ng boots a kernel on this machine's root file system, which the guest cannot change. Without hardware
# virtualization, as in a machine that is virtual itself that often is there and does not work.
install_vng() {
    vng="$directory/vng-$vng_version"
    [[ -x "$vng/bin/vng" ]] && return
    python3 -m pip --version >/dev/null 2>&1 || cannot "there is no python3 with pip to fetch virtme-ng with"
    rm -rf "$vng.new"
    timeout 300 python3 -m pip install --quiet --disable-pip-version-check --retries 1 --target "$vng.new" \
        "virtme-ng==$vng_version" >"$directory/pip.log" 2>&1 ||
        cannot "pip cannot install virtme-ng: $(tail -n 1 "$directory/pip.log")"
    mv -T "$vng.new" "$vng"
}

# has PART: whether the part is wanted.
has() {
    [[ " ${wanted[*]} " == *" $1 "* ]]
}

# Builds here, where it is fast, what the guest runs, and notes where it is.
build() {
    local log="$directory/build.log"
    : >"$log"
    if has contract || has hosts || has lossy || has down; then
        cargo test --locked --no-run -p rma-verbs --test contract --features device >>"$log" 2>&1 || failed_build
    fi
    if has conformance || has choices || has messages || has hosts || has lossy; then
        cargo test --locked --no-run -p rma-conformance --test verbs --features verbs >>"$log" 2>&1 || failed_build
    fi
    if has ofi; then
        cargo test --locked --no-run -p rma-conformance --test verbs_ofi --features verbs >>"$log" 2>&1 || failed_build
    fi
    if has jobs || has ptrace || has table; then
        cargo build --locked -p launcher -p rma-processes -p rma-bench --bins >>"$log" 2>&1 || failed_build
    fi
    if has perftest; then
        cargo build --locked --release -p rma-verbs --example measure >>"$log" 2>&1 || failed_build
    fi
    note_executables "$log" "" >"$shared/executables"
    if has contract_ofi; then
        log="$directory/build_ofi.log"
        cargo test --locked --no-run -p rma-ofi --test contract --features device >"$log" 2>&1 || failed_build "$log"
        note_executables "$log" ofi_ >>"$shared/executables"
    fi
}

# note_executables LOG PREFIX: what cargo has built, with the names of the tests behind this prefix.
note_executables() {
    sed -nE "s/^ *Executable .*tests\/([a-z_]+)(\/main)?\.rs \((.*)\)$/$2\1 \3/p" "$1"
}

failed_build() {
    tail -n 40 "${1:-$directory/build.log}" >&2
    exit 1
}

# boot COMMAND...: runs the command in the guest, as root, and returns its status.
boot() {
    local vm tail
    : >"$shared/output"
    {
        printf '#!/bin/bash\nexec >%q 2>&1\ncd %q || exit 1\n' "$shared/output" "$PWD"
        printf 'export %s=%q\n' RMA_SOFTROCE_LIMIT "$limit" RMA_SOFTROCE_ENOUGH "$enough" RMA_SOFTROCE_TESTS "$tests" \
            CARGO_TARGET_DIR "${CARGO_TARGET_DIR:-target}" RUST_BACKTRACE "${RUST_BACKTRACE:-1}"
        printf 'status=0\n%s || status=$?\n' "$(printf '%q ' "$@")"
        # shellcheck disable=SC2016 # the guest's variable
        printf 'echo "$status" >%q\n' "$shared/status"
    } >"$directory/guest.sh"
    chmod +x "$directory/guest.sh"
    env PATH="$vng/bin:$PATH" PYTHONPATH="$vng" timeout --kill-after=10 "$limit" \
        vng -r "$kernel" --force-9p --disable-kvm --cpus 2 --memory 3G --rwdir "$shared" \
        -- "$directory/guest.sh" </dev/null >"$directory/console" 2>&1 &
    vm="$!"
    trap 'kill "$vm" 2>/dev/null || true' EXIT
    tail --follow --sleep-interval=1 --pid="$vm" "$shared/output" &
    tail="$!"
    wait "$vm" || true
    wait "$tail" || true
    trap - EXIT
    if [[ ! -s "$shared/status" ]]; then
        echo "softroce: the guest did not end within $limit s, or did not boot; the end of $directory/console:" >&2
        tail -n 20 "$directory/console" >&2
        return 1
    fi
    return "$(<"$shared/status")"
}

# In the guest: two devices on the two ends of a cable. The addresses of both are this machine's own, so without more
# the packets between them would not take it; packets from one device to itself do not.
make_devices() {
    modprobe rdma_rxe && modprobe ib_uverbs && modprobe rdma_ucm
    ulimit -l unlimited
    ip link set lo up
    ip link add name veth0 type veth peer name veth1
    local end
    for end in 0 1; do
        sysctl -q "net.ipv4.conf.veth$end.rp_filter=0" "net.ipv4.conf.veth$end.accept_local=1" \
            "net.ipv4.conf.veth$end.arp_ignore=1"
        ip addr add "10.77.0.$((end + 1))/24" dev "veth$end"
        ip link set "veth$end" up
        ip rule add pref 1 from "10.77.0.$((end + 1))" to "10.77.0.$((2 - end))" iif lo lookup "$((101 + end))"
        find_other "$end"
        rdma link add "rxe$end" type rxe netdev "veth$end"
    done
    ip rule add pref 10 lookup local
    ip rule del pref 0
}

# find_other END: lets packets from this end of the cable find the other. An interface that goes down forgets it.
find_other() {
    local address="10.77.0.$((2 - $1))"
    ip route replace "$address/32" dev "veth$1" table "$((101 + $1))"
    ip neigh replace "$address" dev "veth$1" nud permanent lladdr "$(<"/sys/class/net/veth$((1 - $1))/address")"
}

# change_cable STATE [SECONDS]: what tests ask for. `down`: the first device's port is down; `silent`: what it sends is
# lost; `up`: as it was, which the others are again when so many seconds were said and have passed, and no later:
# to start a program takes as long here.
change_cable() {
    local mend=()
    case "$1" in
    down)
        mend=(ip link set veth0 up)
        ip link set veth0 down
        ;;
    silent)
        mend=(tc qdisc del dev veth0 root)
        tc qdisc replace dev veth0 root netem loss 100%
        ;;
    up)
        tc qdisc del dev veth0 root 2>/dev/null || true
        ip link set veth0 up
        find_other 0
        ;;
    *) return 2 ;;
    esac
    if (($# == 2)); then
        read -r -t "$2" <> <(:) || true
        "${mend[@]}"
        change_cable up
    fi
}

# executable NAME: where the tests of this name were built.
executable() {
    sed -n "s/^$1 //p" "$shared/executables"
}

# select_tests NAME FILTER...: the program of this name, and those of its tests whose names have one of these in them; all
# without.
select_tests() {
    local filter all
    program="$(executable "$1")"
    shift
    if [[ -n "$tests" ]]; then
        set -- "$tests"
    fi
    filters=("$@")
    all="$("$program" --list | sed -n 's/: test$//p')"
    for filter in "$@"; do
        if [[ "$all" != *"$filter"* ]]; then
            echo "softroce: no test has '$filter' in its name" >&2
            return 1
        fi
    done
    selected=()
    local name
    while read -r name; do
        for filter in "${filters[@]:-}"; do
            if [[ "$name" == *"$filter"* ]]; then
                selected+=("$name")
                break
            fi
        done
    done <<<"$all"
}

# suite NAME THREADS FILTER...: tests whose names have one of these in them, all without; with these options.
options=()
suite() {
    local threads="$2" program filters selected
    select_tests "$1" "${@:3}" || return
    "$program" --test-threads="$threads" "${options[@]}" "${filters[@]}"
}

# suite_apart NAME FILTER...: the same, each test in a process of its own.
suite_apart() {
    local name failed=() program filters selected
    select_tests "$@" || return
    for name in "${selected[@]}"; do
        "$program" --exact "$name" >"$shared/test" 2>&1 || {
            failed+=("$name")
            cat "$shared/test"
        }
    done
    echo "test result: $((${#selected[@]} - ${#failed[@]})) passed; ${#failed[@]} failed; each in its own process"
    ((${#failed[@]} == 0))
}

# One test at a time: some let their processes sleep, and others look how long.
part_contract() {
    suite contract 1
}

# A test is one thread, so there is a processor for two.
part_conformance() {
    suite verbs 2 verbs:: verbs_atomics:: verbs_word_locks
}

# Extracts, as what differs from the suites above is how epochs end, and how locks are had.
part_choices() {
    suite verbs 2 verbs_data::fence verbs_data::large_ verbs_data::lock_ verbs_data::locks_ verbs_data::puts_ verbs_data::start_ \
        verbs_locks_by_choice::lock_ verbs_locks_by_choice::locks_ verbs_locks_by_choice::large_ verbs_locks_by_choice_are
}

part_messages() {
    suite verbs 2 verbs_messages::
}

# Ranks by turns on the one device and on the other.
part_hosts() {
    export RMA_TEST_VERBS_DEVICES=rxe0,rxe1
    suite contract 1 line_3_every_tag line_5_ line_6_ line_7_ line_10_ atomics_of rows_of_small traffic_survives \
        a_sleeping_peer &&
        suite verbs 2 verbs::fences_ verbs::lock_ verbs::locks_ verbs::order_ verbs::large_ \
            verbs_messages::start_ verbs_messages::notices_ verbs_messages::large_
}

# Delayed and lost, but in order, which RoCE's networks keep: to the device a packet that was overtaken is a lost one, and
# when it has sent everything again a few times in vain it gives up.
part_lossy() {
    local end status=0
    export RMA_TEST_VERBS_DEVICES=rxe0,rxe1
    for end in 0 1; do
        tc qdisc add dev "veth$end" root netem delay 1ms loss 0.2%
    done
    {
        suite contract 1 line_3_every_tag line_5_ line_7_ line_10_ atomics_of rows_of_small traffic_survives &&
            suite verbs 2 verbs::fences_ verbs::locks_ verbs::large_ verbs_messages::start_ verbs_messages::large_
    } || status="$?"
    for end in 0 1; do
        tc -s qdisc show dev "veth$end"
        tc qdisc del dev "veth$end" root
    done
    return "$status"
}

part_down() {
    export RMA_TEST_VERBS_DEVICES=rxe0,rxe1 RMA_TEST_CABLE="$PWD/ci/softroce.sh"
    options=(--include-ignored)
    suite contract 1 cut:: line_3_a_killed_peer line_3_an_idle_peer line_3_a_peer_that_died
}

# libfabric sizes its queues for a job of this many ranks; the usual 256 are more than the device takes.
export FI_UNIVERSE_SIZE=16 FI_OFI_RXM_MSG_RX_SIZE=256

# An endpoint stays open as long as its process, and takes 60 MB: those of all tests are more than the guest has.
part_contract_ofi() {
    export RMA_INTERFACE=veth0
    # What libfabric's cache registers it registers for writing. Who sleeps or dies has nothing to do with that.
    suite_apart ofi_contract verbs_rxm:: &&
        FI_MR_CACHE_MONITOR=disabled suite_apart ofi_contract verbs_rxm_registered::{a_large_,a_source_,a_wrong_key,an_endpoint_} \
            verbs_rxm_registered::{flush_,keys_,line_1,line_3_every_tag,line_4_,line_5_,line_6_,line_7_,line_9_}
}

# An extract: the whole suite runs on ofi_rxm over another fabric, and an endpoint is slow to open here.
part_ofi() {
    suite_apart verbs_ofi verbs_rxm::{fence,large_,lock_,puts_,start_} verbs_rxm_messages::{large_,lock_}
}

# job PROVIDER RANKS PROGRAM ARGUMENT...: under rmarun.
job() {
    local provider="$1" ranks="$2" built="${CARGO_TARGET_DIR:-target}/debug"
    shift 2
    env -u RMA_SOFTROCE_LIMIT -u RMA_SOFTROCE_ENOUGH -u RMA_SOFTROCE_TESTS "$built/rmarun" -n "$ranks" --timeout "$((limit / 2))" \
        --provider "$provider" "$built/$1" "${@:2}"
}

# Beside a device, which chooses keys, ranks of one host tell each other of epochs by words: the packets of a job with many
# epochs are those of its beginning and its end.
words_beside() {
    local sync
    for sync in fence pscw; do
        rm -f "$shared"/metrics.*
        RMA_NIC=rxe0 RMA_METRICS="$shared/metrics.prom" job shm+verbs 2 \
            rma-bench latency --sync "$sync" --sizes 8:8 --iterations 500 --warmup 50 --rounds 2 &&
            cat "$shared"/metrics.*.prom | awk -v sync="$sync" '
                /^rma_packets_sent_total/ { packets += $2 }
                /^rma_words_told_total/ { words += $2 }
                END { print sync, packets + 0, "packets,", words + 0, "words"; exit !(packets < 500 && words > 1000) }' ||
            return
    done
}

# rma-verbs on one device, and on both; libfabric takes one.
part_jobs() {
    RMA_NIC=rxe0 job verbs 2 rma-processes --limit 100 &&
        RMA_NIC=rxe0,rxe1 job verbs 4 rma-processes --limit 100 &&
        RMA_FORCE_MESSAGE_PATH=1 RMA_NIC=rxe0,rxe1 job verbs 3 rma-processes --limit 100 &&
        RMA_NIC=rxe0 job shm+verbs 2 rma-processes --limit 100 && words_beside &&
        RMA_INTERFACE=veth0 job 'verbs;ofi_rxm' 2 rma-processes --limit 100 &&
        RMA_MR_LOCAL=1 RMA_INTERFACE=veth0 job 'verbs;ofi_rxm' 2 rma-processes --limit 100
}

# as_user COMMAND...: without any of root's rights.
as_user() {
    env -u RMA_SOFTROCE_LIMIT -u RMA_SOFTROCE_ENOUGH -u RMA_SOFTROCE_TESTS HOME=/ setpriv --reuid=65534 --regid=65534 --clear-groups \
        --inh-caps=-all --bounding-set=-all "$@"
}

# The ranks of a host allow each other what the kernel forbids, but not where a setting says that they shall not.
part_ptrace() {
    local built="${CARGO_TARGET_DIR:-target}/debug" info attach expected
    sysctl -q kernel.yama.ptrace_scope=1
    for attach in 1 0; do
        info="$(as_user env RMA_SHM_ATTACH="$attach" "$built/rmarun" -n 2 --provider shm "$built/rma-bench" info)" || return
        expected="other copied by the kernel"
        ((attach == 1)) || expected="packets for other"
        grep -F "$expected" <<<"$info" || {
            printf 'RMA_SHM_ATTACH=%s, and nothing says: %s\n%s\n' "$attach" "$expected" "$info"
            return 1
        }
    done
    as_user "$built/rmarun" -n 3 --timeout "$((limit / 2))" --provider shm "$built/rma-processes" --limit 100 &&
        as_user "$built/rmarun" -n 2 --timeout "$((limit / 2))" --provider shm+tcp "$built/rma-processes" --limit 100
}

part_table() {
    RMA_NATIVE_ATOMICS=1 RMA_NIC=rxe0 job verbs 2 rma-bench optimizations --operations 16 --iterations 20 --warm-up 2 --rounds 5 &&
        RMA_INTERFACE=veth0 job 'verbs;ofi_rxm' 2 rma-bench optimizations --operations 16 --iterations 20 --warm-up 2 --rounds 5
}

# perftest COLUMN PROGRAM ARGUMENT...: the figure in this column of what the program prints, as client of itself.
perftest() {
    local column="$1" server
    shift
    timeout 120 "$@" -d rxe0 >"$shared/perftest.server" 2>&1 &
    server="$!"
    # It has no word for being ready: the client is refused until it is.
    for _ in {1..100}; do
        if timeout 120 "$@" -d rxe0 10.77.0.1 >"$shared/perftest.client" 2>&1; then
            break
        fi
        kill -0 "$server" 2>/dev/null || break
    done
    wait "$server" || true
    awk -v column="$column" '$1 == 8 && $column ~ /^[0-9.]+$/ { print $column; exit }' "$shared/perftest.client"
}

# Both by turns, as an emulated machine is not as fast at all times. Where the best of five rounds are beyond the gate there
# are more, up to fifteen: other programs may have disturbed every round of one of the two.
part_perftest() {
    local measure="${CARGO_TARGET_DIR:-target}/release/examples/measure" figures="$shared/figures" round
    export RMA_TEST_VERBS_DEVICES=rxe0
    : >"$figures"
    theirs() {
        echo "$1 theirs $(perftest "${@:2}")" >>"$figures"
    }
    for ((round = 0; round < 15; round++)); do
        if ((round >= 5)) && awk -f ci/ratios.awk "$figures" >/dev/null; then
            break
        fi
        {
            "$measure" latency 500
            "$measure" rate 5000
        } | awk '{ print $1, "ours", $2 }' >>"$figures"
        theirs write_latency_us 6 ib_write_lat -s 8 -n 500
        theirs fetch_add_latency_us 6 ib_atomic_lat -A FETCH_AND_ADD -n 500
        theirs write_rate_mops 5 ib_write_bw -s 8 -n 5000 -t 128
    done
    awk -f ci/ratios.awk "$figures" && "$measure" memory 200
}

# In the guest: runs the parts, each within its limit, and says how long each took.
run_parts() {
    local part status failed=0 begun part_limit=$((limit / 2))
    ((part_limit > 450)) || part_limit=450
    : >"$shared/times"
    make_devices
    rdma link
    for part in "$@"; do
        if ((SECONDS > enough)); then
            printf 'left out: %s, as %d s were over\n' "$part" "$SECONDS" | tee -a "$shared/times"
            continue
        fi
        printf '\n=== %s: %s\n' "$part" "${parts[$part]}"
        status=0
        begun="$SECONDS"
        timeout --kill-after=10 "$part_limit" "${BASH_SOURCE[0]}" part "$part" || status="$?"
        case "$status" in
        0) printf -- '--- %s: passed in %d s\n' "$part" "$((SECONDS - begun))" ;;
        124) printf -- '--- %s: FAILED, ran into its limit of %d s\n' "$part" "$part_limit" ;;
        137) printf -- '--- %s: FAILED, killed after %d s; the guest may be out of memory\n' "$part" "$((SECONDS - begun))" ;;
        *) printf -- '--- %s: FAILED with status %d in %d s\n' "$part" "$status" "$((SECONDS - begun))" ;;
        esac | tee -a "$shared/times"
        ((status == 0)) || failed=1
    done
    return "$failed"
}

# Boots, runs the parts, and sums up.
run_guest() {
    local status=0 begun="$SECONDS"
    boot "${BASH_SOURCE[0]}" guest "${wanted[@]}" || status="$?"
    printf '\n'
    if [[ -e "$shared/times" ]]; then
        cat "$shared/times"
    fi
    printf 'softroce: the guest ran for %d s and ended with status %d\n' "$((SECONDS - begun))" "$status"
    return "$status"
}

list_parts() {
    local part
    for part in "${order[@]}"; do
        printf '%-12s %s\n' "$part" "${parts[$part]}"
    done
}

# The first four are what the guest calls.
case "${1:-}" in
guest)
    run_parts "${@:2}"
    exit
    ;;
guest-command)
    make_devices
    "${@:2}"
    exit
    ;;
part)
    "part_$2"
    exit
    ;;
cable)
    change_cable "${@:2}"
    exit
    ;;
parts)
    list_parts
    exit
    ;;
esac

mkdir -p "$directory"
install_packages
fetch_kernel
install_vng
[[ "${1:-}" == ready ]] && exit
rm -rf "$shared"
mkdir -p "$shared"

if [[ "${1:-}" == run ]]; then
    boot "${BASH_SOURCE[0]}" guest-command "${@:2}"
    exit
fi

wanted=("$@")
((${#wanted[@]} > 0)) || wanted=("${order[@]}")
for part in "${wanted[@]}"; do
    [[ -v "parts[$part]" ]] || { echo "softroce: there is no part '$part'; there are ${order[*]}" >&2; exit 2; }
done
build
run_guest
