#!/usr/bin/env bash
# A machine with an RDMA device: Debian's kernel with its software RoCE driver, booted in QEMU on this machine's own
# root file system. In it run the contract of the provider and the conformance suite on rma-verbs. Ends by itself
# whatever happens, with 0 when all tests passed, and with 3 where the packages that it takes cannot be had.
#
#   ci/softroce.sh                    all of it
#   ci/softroce.sh run COMMAND...     one command in the guest, in this directory; for people
#
# RMA_SOFTROCE_TESTS: only tests whose name has this in it. RMA_SOFTROCE_LIMIT: seconds that the guest may take.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH="$PATH:/usr/sbin:/sbin"

limit="${RMA_SOFTROCE_LIMIT:-2400}"
vng_version=1.42
directory="$(realpath -m "${CARGO_TARGET_DIR:-target}")/softroce"
mkdir -p "$directory"

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
    command -v ibv_devices >/dev/null || missing+=(ibverbs-utils)
    [[ -e /usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so ]] || missing+=(ibverbs-providers)
    kernel_of_modules >/dev/null || missing+=(linux-image-amd64)
    ((${#missing[@]} == 0)) && return
    ((EUID == 0)) || cannot "these packages are missing, and only root installs them: ${missing[*]}"
    command -v apt-get >/dev/null || cannot "these packages are missing: ${missing[*]}"
    echo "softroce: installing ${missing[*]}"
    apt-get update -q >"$directory/apt.log" 2>&1 || cannot "apt-get update failed, see $directory/apt.log"
    env DEBIAN_FRONTEND=noninteractive \
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

# virtme-ng boots a kernel on this machine's root file system, which the guest cannot change.
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

# Builds the tests here, where it is fast, and prints what is to be run there.
build_tests() {
    cargo test --locked --no-run -p rma-verbs --test contract --features device 2>&1
    cargo test --locked --no-run -p rma-conformance --test verbs --features rma-conformance/verbs 2>&1
}

# guest.sh is what the guest runs as root; its output and status come back through the one directory that the
# guest may write.
write_guest() {
    {
        cat <<'GUEST'
#!/bin/bash
exec >"$1/output" 2>&1
ulimit -l unlimited
modprobe rdma_rxe && modprobe ib_uverbs || exit 1
ip link set lo up
ip link add name rdma0 type dummy
ip addr add 10.77.0.1/24 dev rdma0
ip link set rdma0 up
rdma link add rxe0 type rxe netdev rdma0 || exit 1
GUEST
        printf 'cd %q || exit 1\n' "$PWD"
        printf 'status=0\n'
        printf '%s || status=$?\n' "$@"
        # shellcheck disable=SC2016 # the guest expands it
        echo 'echo "$status" >"$1/status"'
    } >"$directory/guest.sh"
    chmod +x "$directory/guest.sh"
}

boot() {
    local shared="$directory/shared" vm tail
    rm -rf "$shared"
    mkdir -p "$shared"
    : >"$shared/output"
    env PATH="$vng/bin:$PATH" PYTHONPATH="$vng" timeout --kill-after=10 "$limit" \
        vng -r "$kernel" --force-9p --disable-kvm --cpus 2 --memory 3G --rwdir "$shared" \
        -- "$directory/guest.sh $shared" </dev/null >"$directory/console" 2>&1 &
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

install_packages
kernel="$(kernel_of_modules)" || cannot "no kernel in /boot has the driver rdma_rxe"
install_vng

if [[ "${1:-}" == run ]]; then
    shift
    write_guest "$(printf '%q ' "$@")"
    boot
    exit
fi

build_tests | tee "$directory/build.log"
mapfile -t binaries < <(sed -n 's/^ *Executable .*(\(.*\))$/\1/p' "$directory/build.log")
((${#binaries[@]} == 2)) || { echo "softroce: cargo built ${#binaries[@]} tests, not 2" >&2; exit 1; }
commands=()
for binary in "${binaries[@]}"; do
    # One after the other: what they measure is time.
    commands+=("timeout $((limit / 2)) $binary --test-threads=1 ${RMA_SOFTROCE_TESTS:-}")
done
write_guest "${commands[@]}"
boot
