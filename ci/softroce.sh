#!/usr/bin/env bash
# A machine with RDMA devices: Debian's kernel with its software RoCE driver, booted in QEMU on this machine's own
# root file system. In it run the contract of the provider, the conformance suite on rma-verbs and on libfabric's
# verbs, jobs of real processes, and two devices on a bad network. Ends by itself whatever happens, with the guest's
# status: 0 when everything passed; 3 where the packages that it takes cannot be had.
#
#   ci/softroce.sh                    all parts
#   ci/softroce.sh PART...            these; `ci/softroce.sh parts` lists them
#   ci/softroce.sh ready              installs what it needs, no more
#   ci/softroce.sh run COMMAND...     one command in the guest, in this directory; for people
#
# RMA_SOFTROCE_TESTS: of the suites, only tests whose name has this in it. RMA_SOFTROCE_LIMIT: seconds that the guest
# may take; one part may take half of them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH="$PATH:/usr/sbin:/sbin"

# What each part shows, in the order in which they run.
declare -A parts=(
    [contract]="the provider contract on one device, with other processes that sleep and die"
    [conformance]="the conformance suite on rma-verbs, with the device's atomics, too"
    [messages]="the same with forced messages"
    [hosts]="contract and suite in extracts between two devices, as if they were two hosts"
    [lossy]="the same on a network that loses and delays"
    [ofi]="the conformance suite on libfabric's verbs;ofi_rxm"
    [jobs]="real processes under rmarun on verbs;ofi_rxm"
    [table]="what each optimization gains on verbs;ofi_rxm"
    [perftest]="latency and rate of rma-verbs beside perftest's, and memory for each connection"
)
order=(contract conformance messages hosts lossy ofi jobs table perftest)

limit="${RMA_SOFTROCE_LIMIT:-2400}"
tests="${RMA_SOFTROCE_TESTS:-}"
vng_version=1.42
directory="$(realpath -m "${CARGO_TARGET_DIR:-target}")/softroce"
# What the guest may write, and where its output and status come back.
shared="$directory/shared"

cannot() {
    echo "softroce: $1" >&2
    exit 3
}

# The kernel is only unpacked for the guest: this machine boots another, or none.
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
    kernel_of_modules >/dev/null || missing+=(linux-image-amd64)
    ((${#missing[@]} == 0)) && return
    ((EUID == 0)) || cannot "these packages are missing, and only root installs them: ${missing[*]}"
    command -v apt-get >/dev/null || cannot "these packages are missing: ${missing[*]}"
    echo "softroce: installing ${missing[*]}"
    timeout 300 apt-get update -q >"$directory/apt.log" 2>&1 || cannot "apt-get update failed, see $directory/apt.log"
    timeout 600 env DEBIAN_FRONTEND=noninteractive \
        apt-get install -q -y --no-install-recommends "${missing[@]}" >>"$directory/apt.log" 2>&1 ||
        cannot "${missing[*]} cannot be installed, see $directory/apt.log"
}

# A kernel whose modules have the driver.
kernel_of_modules() {
    local version
    for version in /lib/modules/*; do
        version="$(basename "$version")"
        if compgen -G "/lib/modules/$version/kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko*" >/dev/null &&
            [[ -e "/boot/vmlinuz-$version" ]]; then
            echo "/boot/vmlinuz-$version"
            return
        fi
    done
    return 1
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
    if has contract || has hosts || has lossy; then
        cargo test --locked --no-run -p rma-verbs --test contract --features device >>"$log" 2>&1 || failed_build
    fi
    if has conformance || has messages || has hosts || has lossy; then
        cargo test --locked --no-run -p rma-conformance --test verbs --features verbs >>"$log" 2>&1 || failed_build
    fi
    if has ofi; then
        cargo test --locked --no-run -p rma-conformance --test verbs_ofi --features verbs >>"$log" 2>&1 || failed_build
    fi
    if has jobs || has table; then
        cargo build --locked -p launcher -p rma-processes -p rma-bench --bins >>"$log" 2>&1 || failed_build
    fi
    if has perftest; then
        cargo build --locked --release -p rma-verbs --example measure >>"$log" 2>&1 || failed_build
    fi
    sed -nE 's/^ *Executable .*tests\/([a-z_]+)(\/main)?\.rs \((.*)\)$/\1 \3/p' "$log" >"$shared/executables"
}

failed_build() {
    tail -n 40 "$directory/build.log" >&2
    exit 1
}

# boot COMMAND...: runs the command in the guest, as root, and returns its status.
boot() {
    local vm tail
    : >"$shared/output"
    {
        printf '#!/bin/bash\nexec >%q 2>&1\ncd %q || exit 1\n' "$shared/output" "$PWD"
        printf 'export %s=%q\n' RMA_SOFTROCE_LIMIT "$limit" RMA_SOFTROCE_TESTS "$tests" \
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
    local end other
    for end in 0 1; do
        other=$((1 - end))
        sysctl -q "net.ipv4.conf.veth$end.rp_filter=0" "net.ipv4.conf.veth$end.accept_local=1" \
            "net.ipv4.conf.veth$end.arp_ignore=1"
        ip addr add "10.77.0.$((end + 1))/24" dev "veth$end"
        ip link set "veth$end" up
        ip route add "10.77.0.$((other + 1))/32" dev "veth$end" table "$((101 + end))"
        ip rule add pref 1 from "10.77.0.$((end + 1))" to "10.77.0.$((other + 1))" iif lo lookup "$((101 + end))"
        ip neigh replace "10.77.0.$((other + 1))" dev "veth$end" nud permanent \
            lladdr "$(<"/sys/class/net/veth$other/address")"
        rdma link add "rxe$end" type rxe netdev "veth$end"
    done
    ip rule add pref 10 lookup local
    ip rule del pref 0
}

# executable NAME: where the tests of this name were built.
executable() {
    sed -n "s/^$1 //p" "$shared/executables"
}

# suite NAME FILTER...: tests, one after the other: what they measure is time.
suite() {
    local name="$1"
    shift
    if [[ -n "$tests" ]]; then
        set -- "$tests"
    fi
    "$(executable "$name")" --test-threads=1 "$@"
}

part_contract() {
    suite contract
}

part_conformance() {
    suite verbs verbs:: verbs_atomics::
}

part_messages() {
    suite verbs verbs_messages::
}

# Ranks by turns on the one device and on the other.
part_hosts() {
    export RMA_TEST_VERBS_DEVICES=rxe0,rxe1
    suite contract line_3_every_tag line_5_ line_6_ line_7_ line_10_ atomics_of rows_of_small traffic_survives \
        a_sleeping_peer && suite verbs verbs::fences verbs::locks verbs::ordering verbs_messages::pscw::
}

part_lossy() {
    local end status=0
    for end in 0 1; do
        tc qdisc add dev "veth$end" root netem delay 1ms 200us loss 0.2%
    done
    part_hosts || status="$?"
    for end in 0 1; do
        tc -s qdisc show dev "veth$end"
        tc qdisc del dev "veth$end" root
    done
    return "$status"
}

part_ofi() {
    suite verbs_ofi
}

# rma itself does not choose rma-verbs yet, so jobs are libfabric's.
job() {
    local ranks="$1" built="${CARGO_TARGET_DIR:-target}/debug"
    shift
    RMA_INTERFACE=veth0 FI_OFI_RXM_MSG_RX_SIZE=256 "$built/rmarun" -n "$ranks" --timeout "$((limit / 2))" \
        --provider 'verbs;ofi_rxm' "$built/$1" "${@:2}"
}

part_jobs() {
    job 2 rma-processes --limit 100
    job 4 rma-processes --limit 100
    RMA_FORCE_MESSAGE_PATH=1 job 3 rma-processes --limit 100
}

part_table() {
    job 2 rma-bench optimizations --iterations 20 --warm-up 2 --rounds 5
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
    awk -v column="$column" '$1 == 8 && NF >= column { print $column; exit }' "$shared/perftest.client"
}

# compare NAME OURS THEIRS: both figures and their ratio.
compare() {
    if [[ -z "$2" || -z "$3" ]]; then
        printf '%-20s rma-verbs %s, perftest %s: no figure\n' "$1" "${2:--}" "${3:--}"
        return 1
    fi
    awk -v name="$1" -v ours="$2" -v theirs="$3" 'BEGIN {
        printf "%-20s rma-verbs %s, perftest %s, ratio %.2f\n", name, ours, theirs, (theirs > 0 ? ours / theirs : 0) }'
}

# Figures, for people: a machine that is emulated proves none of them.
part_perftest() {
    local measure="${CARGO_TARGET_DIR:-target}/release/examples/measure" status=0
    export RMA_TEST_VERBS_DEVICES=rxe0
    "$measure" latency 1000 | tee "$shared/measure"
    "$measure" rate 10000 | tee -a "$shared/measure"
    ours() {
        sed -n "s/^$1 //p" "$shared/measure"
    }
    compare "8-byte write, us" "$(ours write_latency_us)" "$(perftest 5 ib_write_lat -s 8 -n 1000)" || status=1
    compare "fetch-and-add, us" "$(ours fetch_add_latency_us)" "$(perftest 5 ib_atomic_lat -A FETCH_AND_ADD -n 1000)" ||
        status=1
    compare "8-byte writes, M/s" "$(ours write_rate_mops)" "$(perftest 5 ib_write_bw -s 8 -n 10000 -t 128)" || status=1
    "$measure" memory 200
    return "$status"
}

# In the guest: runs the parts, each within its limit, and says how long each took.
run_parts() {
    local part status failed=0 begun
    : >"$shared/times"
    make_devices
    rdma link
    for part in "$@"; do
        printf '\n=== %s: %s\n' "$part" "${parts[$part]}"
        status=0
        begun="$SECONDS"
        timeout --kill-after=10 "$((limit / 2))" "${BASH_SOURCE[0]}" part "$part" || status="$?"
        case "$status" in
        0) printf -- '--- %s: passed in %d s\n' "$part" "$((SECONDS - begun))" ;;
        124 | 137) printf -- '--- %s: FAILED, ran into its limit of %d s\n' "$part" "$((limit / 2))" ;;
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

# The first three are what the guest calls.
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
parts)
    list_parts
    exit
    ;;
esac

mkdir -p "$directory"
install_packages
kernel="$(kernel_of_modules)" || cannot "no kernel in /boot has the driver rdma_rxe"
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
