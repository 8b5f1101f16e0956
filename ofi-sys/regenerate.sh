#!/bin/sh
# Makes src/bindings.rs from the libfabric 1.17 headers, the oldest version this project supports. Needs
# cargo, libclang and the headers (Debian 12: apt install libfabric-dev libclang-dev). Users of the crate
# need none of them.
#
#   regenerate.sh           make the file; installs bindgen below target/ if need be
#   regenerate.sh --check   only say whether the checked-in file is what the headers give
#   regenerate.sh --ready   only say what is missing, with status 2, or nothing
set -eu
cd "$(dirname "$0")"

header_dir=${FABRIC_INCLUDE:-/usr/include}
bindgen_version=0.72.1
tools=${BINDGEN_ROOT:-../target/bindgen-$bindgen_version}

if ! grep -qs 'FI_MAJOR_VERSION 1$' "$header_dir/rdma/fabric.h" \
    || ! grep -qs 'FI_MINOR_VERSION 17$' "$header_dir/rdma/fabric.h"
then
    echo "regenerate.sh: $header_dir/rdma is not libfabric 1.17; set FABRIC_INCLUDE" >&2
    exit 2
fi
bindgen=$tools/bin/bindgen
if [ ! -x "$bindgen" ] && [ "$(bindgen --version 2>&1)" = "bindgen $bindgen_version" ]; then
    bindgen=bindgen
elif [ ! -x "$bindgen" ] && [ "${1:-}" = --ready ]; then
    echo "regenerate.sh: bindgen $bindgen_version is not installed" >&2
    exit 2
elif [ ! -x "$bindgen" ]; then
    cargo install bindgen-cli --version "$bindgen_version" --locked --root "$tools"
fi
if [ "${1:-}" = --ready ]; then
    exit
fi

made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
cat > "$made/wrapper.h" <<'HEADER'
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
HEADER

# What is left out: collectives, triggers, tagged messages, wait and poll sets, logging. Where an ops
# table or a fid points to one of those, the pointer stays as a pointer to an opaque type.
opaque='.*collective.*|.*tagged.*|.*trigger.*|.*wait_set.*|fi_mutex_cond|f?i?_?poll.*|fid_poll|fid_wait|fi_ops_wait'
opaque="$opaque|fi_ops_poll|fi_poll_attr|fid_mc|fid_av_set|fi_av_set_attr|fi_ops_av_set|fid_stx|pthread.*|__pthread.*"
"$bindgen" "$made/wrapper.h" --output "$made/raw.rs" \
    --use-core --generate types,vars --rust-target 1.85 --no-prepend-enum-name --no-doc-comments \
    --allowlist-type 'fi_(info|.*_attr|ops.*|context2?|cq_.*|eq_.*|cntr_.*|msg.*|rma_io[vc]|ioc|op|datatype|type|alias)' \
    --allowlist-type 'fid|fid_(fabric|domain|ep|pep|cq|eq|cntr|av|mr|nic)' \
    --allowlist-type 'fi_(wait_obj|threading|progress|resource_mgmt|av_type|mr_mode|ep_type)' \
    --allowlist-var 'FI_.*' --opaque-type "$opaque" \
    --raw-line '// Made by regenerate.sh from the libfabric 1.17 headers. Do not edit.' -- -I "$header_dir"

# Macros have no type in C. Flags are 64 bits wide in every structure that takes them, and error
# numbers are ints.
sed -E -e 's/^(pub const FI_E[A-Z0-9_]+): (u32|_bindgen_ty_[0-9]+) = ([0-9]+);/\1: i32 = \3;/' \
    -e 's/^(pub const FI_[A-Z0-9_]+): u32 = /\1: u64 = /' "$made/raw.rs" > "$made/bindings.rs"
rustfmt --edition 2021 --config-path .. "$made/bindings.rs"

if [ "${1:-}" = --check ]; then
    diff -u src/bindings.rs "$made/bindings.rs"
    echo "bindings.rs is what the headers give"
else
    cp "$made/bindings.rs" src/bindings.rs
fi
