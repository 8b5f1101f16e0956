#!/usr/bin/env bash
# Prepares a libfabric 2.x below target/ for the tests that want a second one, and prints its directory,
# for RMA_TEST_LIBFABRIC2. It comes out of the Python package of MPICH, which carries one; nothing of it
# is installed. May be run again: what is there is kept. Where it cannot be had, says why and exits with 3.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

package=mpich==5.0.2
directory="$(realpath -m "${CARGO_TARGET_DIR:-target}")/libfabric2"

cannot() {
    echo "libfabric2: $1" >&2
    exit 3
}

# The directory of the library, if it has been unpacked.
unpacked() {
    local library
    library="$(find "$directory/$package" -name libfabric.so.1 -print -quit 2>/dev/null)" || return 1
    [[ -n "$library" ]] && dirname "$library"
}

if unpacked; then
    exit
fi
python3 -m pip --version >/dev/null 2>&1 || cannot "there is no python3 with pip to fetch it with"

# Unpacked beside its place and moved there at the end, so that no run finds half of it.
mkdir -p "$directory"
work="$(mktemp -d "$directory/work.XXXXXX")"
trap 'rm -rf "$work"' EXIT
if ! timeout 120 python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
    --retries 1 --dest "$work" "$package" >"$work/log" 2>&1; then
    cannot "pip cannot fetch $package: $(grep -v '^ *$' "$work/log" | tail -n 1)"
fi
python3 -m zipfile -e "$work"/*.whl "$work/unpacked" || cannot "what pip fetched is no wheel"
# Another run may have been faster; its result is as good.
mv -T "$work/unpacked" "$directory/$package" 2>/dev/null || [[ -d "$directory/$package" ]]
unpacked || cannot "there is no libfabric.so.1 in $package"
