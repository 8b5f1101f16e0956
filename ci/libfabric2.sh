#!/usr/bin/env bash
# Prepares a libfabric 2.x below target/ for the tests that want a second one, and prints its directory,
# for RMA_TEST_LIBFABRIC2. It comes out of the Python package of MPICH, which carries one. Where it cannot be
# had, says why and exits with 3.
set -euo pipefail
exec "$(dirname "${BASH_SOURCE[0]}")/wheel.sh" libfabric2 mpich==5.0.2 libfabric.so.1
