#!/usr/bin/env bash
# Installs what a fresh Debian 12 with Rust lacks to build, run and test this repository; touches
# nothing that is there. May be run again. Needs root or sudo only where a package is missing.
#
#   ci/install.sh           all that ci/test.sh needs
#   ci/install.sh run       only what building and running needs
set -euo pipefail

scope="${1:-test}"
if [[ "$scope" != test && "$scope" != run ]]; then
    echo "usage: ci/install.sh [test|run]" >&2
    exit 2
fi

if ! command -v cargo >/dev/null; then
    echo "install: there is no cargo: install Rust from https://rustup.rs first" >&2
    exit 1
fi

# Where ldconfig is when the user is not root.
export PATH="$PATH:/usr/sbin:/sbin"

has_library() {
    # No pipe into `grep -q`: under pipefail ldconfig would fail of the closed pipe.
    local libraries
    libraries="$(ldconfig -p)"
    [[ "$libraries" == *"$1"* ]]
}

missing=()
command -v cc >/dev/null || missing+=(gcc libc6-dev)
has_library libfabric.so.1 || missing+=(libfabric1)
if [[ "$scope" == test ]]; then
    command -v valgrind >/dev/null || missing+=(valgrind)
    command -v strace >/dev/null || missing+=(strace)
fi

if ((${#missing[@]} > 0)); then
    echo "install: missing packages: ${missing[*]}"
    as_root=()
    if ((EUID != 0)); then
        if ! command -v sudo >/dev/null; then
            echo "install: neither root nor sudo: have an administrator install ${missing[*]}" >&2
            exit 1
        fi
        as_root=(sudo)
    fi
    "${as_root[@]}" apt-get update -q
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -q -y --no-install-recommends "${missing[@]}"
fi

if [[ "$scope" == test ]] && command -v rustup >/dev/null; then
    cargo fmt --version >/dev/null 2>&1 || rustup component add rustfmt
    cargo clippy --version >/dev/null 2>&1 || rustup component add clippy
    # What lane tsan builds the standard library from; without it, and without a nightly, that lane says so.
    if [[ "$(rustup toolchain list)" == *nightly* ]]; then
        rustup component add rust-src --toolchain nightly 2>/dev/null || true
    fi
fi
echo "install: all there"
