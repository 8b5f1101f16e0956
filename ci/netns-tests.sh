#!/usr/bin/env bash
# Jobs on four hosts (ci/hosts.sh): by rmarun over ssh, by Hydra's mpiexec, and by Open MPI's mpirun; then cables are cut, agents, ranks,
# launchers and hosts are killed or stopped, disks are filled. Every outcome is asserted and has a bound, and after each
# step no host has anything left of it.
#
#   ci/netns-tests.sh              all of it
#   ci/netns-tests.sh STEP...      only these, as they are named in the output
#
# RMA_TEST_KILLS=N asks for N kills, RMA_TEST_REPEAT=N for all steps N times. Needs root and Debian's openssh-server and
# iproute2; all that is written is in a temporary directory. Cleans up in any case.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH="$PATH:/usr/sbin:/sbin"
# shellcheck source=ci/steps.sh
source ci/steps.sh
# shellcheck source=ci/hosts.sh
source ci/hosts.sh

# Longest time of a step, and of making the hosts, in seconds.
step_limit=60
hosts_limit=90
# Longest time until a cut cable or a host that is gone has ended the job, in seconds.
loss_limit=30
# The same for what is killed or stopped, and for a disk that is full: only a hang takes longer, on a busy machine too.
kill_limit=45
ranks=8

if ((EUID != 0)); then
    echo "netns-tests: network namespaces and sshd need root" >&2
    exit 1
fi
if ! unshare --net --pid --fork --mount true 2>/dev/null; then
    # Such as in a container without CAP_SYS_ADMIN.
    echo "netns-tests: skipped, this machine lets nobody make namespaces" >&2
    exit 0
fi

clean_up_own() { remove_hosts; }

# run COMMAND...: runs the command on host a.
run() {
    on a timeout --kill-after=5 "$step_limit" env "PATH=$directory/bin:$PATH" "$@" \
        >"$directory/out" 2>"$directory/err" </dev/null
}

# settle NAME: whether every host that is up is clean, soon.
settle() {
    within "$host_limit" is_clean && return
    remains >>"$directory/out"
    fail "$1" "something is left after $host_limit s: $(remains | sed -n 1,4p)"
    sweep
    return 1
}

# The job of a step, in the background on host a; `ended` waits for it.
job_pid=

# begin COMMAND...: starts the command on host a.
begin() {
    : >"$directory/out"
    : >"$directory/err"
    run "$@" &
    job_pid="$!"
}

# fail_job NAME WHY: the step fails with its job still there: shows what runs and what every sshd has said last, and
# ends it.
fail_job() {
    {
        remains
        tail -n 4 "$directory"/sshd-?.log
    } >>"$directory/out" 2>&1
    fail "$1" "$2"
    sweep
    wait "$job_pid" 2>/dev/null || true
    return 1
}

# printed TEXT COUNT: whether so many lines of the job have this text in them.
printed() { (($(grep -cF -- "$1" "$directory/out") >= $2)); }

# reach NAME TEXT COUNT: waits until the job has printed that.
reach() {
    within "$host_limit" printed "$2" "$3" && return
    fail_job "$1" "not $3 times '$2' within $host_limit s"
}

# ended NAME SECONDS STATUS TEXT WHAT: waits for the job, which has to end in this time.
ended() {
    local status=0 since="$SECONDS"
    wait "$job_pid" || status="$?"
    if ((SECONDS - since > $2)); then
        fail "$1" "it took $((SECONDS - since)) s and not at most $2, then status $status: $5"
    elif judge "$1" "$3" "$4" "$status" "$5"; then
        return 0
    fi
    within 5 is_clean || sweep
    return 1
}

begin_steps netns "$@"
install_missing <<'TABLE'
sshd openssh-server
ssh openssh-client
ip iproute2
nsenter util-linux
pgrep procps
mpiexec.hydra mpich
mpirun.openmpi openmpi-bin
TABLE
cargo build --locked --quiet -p launcher -p rma -p rma-processes --bins --example ring
target="${CARGO_TARGET_DIR:-$PWD/target}/debug"
[[ "$target" == /* ]] || target="$PWD/$target"
rmarun="$target/rmarun"
ring="$target/examples/ring"
processes="$target/rma-processes"
export RMA_BOOTSTRAP_TIMEOUT=30 RMA_TIMEOUT=40

guard "$hosts_limit"
make_hosts "$directory"
unguard
all="host-a,host-b,host-c,host-d"
hydra=(mpiexec.hydra -launcher ssh -iface eth0 -hosts "$all" -ppn 2 -n "$ranks")
# Its daemons are told by which interface they talk; the ranks are not.
openmpi=(mpirun.openmpi --allow-run-as-root --oversubscribe --mca plm_rsh_agent ssh --mca oob_tcp_if_include eth0
    --host "${all//,/:2,}:2" -n "$ranks")
eight=(--host "$all" --ppn 2 -n "$ranks")
checksum="$(timeout "$step_limit" "$ring" 2>"$directory/err")"

# A daemon of Hydra that has an answer for a rank which has just ended fails of that, mpiexec of the daemon's end, and what ranks have
# written is lost with them. That says nothing of what is asked here: then the job runs again.
run_hydra_and_judge() {
    local name="$1" expected="$2" text="$3" status try
    shift 3
    for try in 1 2 3 4 5; do
        status=0
        run "$@" || status="$?"
        grep -qF -- "$text" "$directory/out" "$directory/err" && break
        grep -qF 'assert (!closed) failed' "$directory/err" || break
        echo "$suite: $name: Hydra's daemons have failed, attempt $try" >&2
    done
    judge "$name" "$expected" "$text" "$status" "$*"
}

# Launchers of others: by which addresses hosts reach each other is found out by the ranks there.
others() {
    says ssh 0 host-d ssh -n host-d hostname
    for provider in net 'tcp;ofi_rxm' sockets shm+net; do
        says "hydra-${provider//;/-}" 0 "$checksum" env RMA_PROVIDER="$provider" "${hydra[@]}" "$ring"
    done
    says hydra-pmi1 0 "$checksum" env RMA_BOOTSTRAP=pmi1 "${hydra[@]}" "$ring"
    says hydra-interface 0 "$checksum" env RMA_INTERFACE=eth0 "${hydra[@]}" "$ring"
    # More ranks than one puts together what they say of their addresses.
    says hydra-40 0 "$checksum" mpiexec.hydra -launcher ssh -iface eth0 -hosts "$all" -ppn 10 -n 40 "$ring"
    says hydra-ipv6 0 "$checksum" env RMA_INTERFACE=ipv6 "${hydra[@]}" "$ring"
    says openmpi-slots 0 "$checksum" "${openmpi[@]}" "$ring"
    says openmpi-nodes 0 "$checksum" "${openmpi[@]}" --map-by node "$ring"
    says openmpi-interface 0 "$checksum" "${openmpi[@]}" -x RMA_INTERFACE=eth0 "$ring"
    says openmpi-wrong-interface + "RMA_INTERFACE" "${openmpi[@]}" -x RMA_INTERFACE=dead0 "$ring"
    step hydra-wrong-interface run_hydra_and_judge + "RMA_INTERFACE" env RMA_INTERFACE=dead0 "${hydra[@]}" "$ring"
}

# Jobs of rmarun, over ssh. Names mean 127.0.1.1 on their own hosts, dead0 and docker0 lead nowhere.
jobs_of_rmarun() {
    local provider
    for provider in net 'tcp;ofi_rxm' sockets shm+net; do
        says "rmarun-${provider//;/-}" 0 "$checksum" "$rmarun" "${eight[@]}" --provider "$provider" "$ring"
    done
    says rmarun-70 0 "$checksum" "$rmarun" --host "$all" --ppn 18 -n 70 "$ring"
    says rmarun-pmi 0 "$checksum" "$rmarun" "${eight[@]}" -x RMA_BOOTSTRAP=pmi1 "$ring"
    step_limit=180 says behaviours 0 "behaviours passed on $ranks ranks" \
        "$rmarun" "${eight[@]}" "$processes" --limit 50
    says no-such-host + "Could not resolve hostname host-x" "$rmarun" --host host-a,host-x -n 2 "$ring"
    says dead-interface + "10.66.0.1" env RMA_BOOTSTRAP_TIMEOUT=12 "$rmarun" "${eight[@]}" --iface dead0 "$ring"
}

# The sockets that listen on host a and have an address that is none of eth0's.
listens_elsewhere() {
    on a ss -Hltnp sport != 2022 | awk '$4 !~ /^(10\.77\.0\.1|\[fd77::1\]|\[fe80::[0-9a-f:]*\]%eth0):/'
}

# The port where the launcher waits for agents on host a; nothing when it does not.
launcher_port() {
    on a ss -Hltnp sport != 2022 |
        awk '/"rmarun"/ && $4 ~ /^10\.77\.0\.1:/ { sub(".*:", "", $4); print $4; exit }'
}
launcher_listens() { [[ -n "$(launcher_port)" ]]; }

# While agents are waited for: what listens does so on the chosen interface only, whoever does not know the secret
# keeps nobody out, and the secret is on no command line and in no environment.
strangers() {
    local name="$1" why
    rm -f "$directory/go" "$directory/open"
    # Only the agent of host d has to wait, so that the others run meanwhile.
    cat >"$directory/bin/slow" <<SCRIPT
#!/bin/sh
[ "\$1" != host-d ] || until [ -e "$directory/go" ]; do sleep 0.1; done
exec ssh "\$@"
SCRIPT
    chmod 755 "$directory/bin/slow"
    begin "$rmarun" "${eight[@]}" --iface eth0 --launch-agent slow "$ring"
    if ! why="$(intrude)"; then
        fail_job "$name" "$why"
        return
    fi
    : >"$directory/go"
    ended "$name" "$step_limit" 0 "$checksum" "a job with strangers" || return
    # Who kept connections open has no reason any more.
    on c pkill -KILL -f "^stranger" || true
}

# What strangers try; fails with a message.
intrude() {
    local port
    within "$host_limit" on b pgrep -f "^$rmarun --agent" || { echo "no agent runs on b"; return 1; }
    within "$host_limit" launcher_listens || { echo "the launcher does not listen on a"; return 1; }
    port="$(launcher_port)"
    # Ranks may listen by now as well.
    [[ -z "$(listens_elsewhere)" ]] || { echo "listens elsewhere: $(listens_elsewhere)"; return 1; }
    # It is not let in, and hears so at once.
    on b timeout 20 bash -c "exec 3<>/dev/tcp/10.77.0.1/$port; head -c 1000000 /dev/urandom >&3; cat <&3" \
        >/dev/null 2>&1 || (($? != 124)) || { echo "random bytes are not refused within 20 s"; return 1; }
    # These stay open, and say nothing, until the job has long ended.
    on c bash -c "for i in {1..300}; do exec {fd}<>/dev/tcp/10.77.0.1/$port; done; : >$directory/open; exec -a stranger sleep 60" \
        >/dev/null 2>&1 &
    within "$host_limit" test -e "$directory/open" || { echo "c cannot connect to port $port"; return 1; }
    # Agents run on b; the one of d waits, as its starter does on a.
    if {
        on a sh -c 'cat /proc/[0-9]*/cmdline'
        on b sh -c 'cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ'
    } 2>/dev/null | tr '\0' '\n' | grep -aE '(^|=)[0-9a-f]{64}$'; then
        echo "that may be the secret, and can be seen"
        return 1
    fi
}

# Losses. The job is one of eight ranks that put to the next host until they cannot.
# They and the step that has them may take longer than any limit above, after the time until all ranks put.
puts=("$processes" --only a_loss_is_heard_of --limit 110)
puts_limit=120

# loss NAME STATUS TEXT SECONDS BREAK [OPTION...]: begins the job, breaks something when all ranks put, and the job
# ends in this time and says so.
loss() {
    local name="$1" status="$2" text="$3" limit="$4" break="$5" step_limit="$puts_limit"
    shift 5
    # Not by their own limits do the calls learn it.
    begin env RMA_TIMEOUT=200 "$rmarun" "${eight[@]}" "$@" "${puts[@]}"
    reach "$name" "puts to rank" "$ranks" || return
    "$break"
    ended "$name" "$limit" "$status" "$text" "a job, after $break"
}

cut_c() { pull_cable c; }
silence_c() { silence_cable c; }
kill_agent() { on b pkill -KILL -f "^$rmarun --agent"; }
stop_agent() { on b pkill -STOP -f "^$rmarun --agent"; }
kill_rank() { on c pkill -KILL -o -f "^$processes"; }
kill_launcher() { on a pkill -KILL -f "^$rmarun --host"; }
kill_host() { stop_host d; }

# lost_link NAME BREAK [OPTION...]
lost_link() {
    local status=0
    loss "$1" + "host host-c is lost with 2 ranks" "$loss_limit" "${@:2}" || status=1
    mend_cable c
    return "$status"
}

# Those who go on without the lost ranks hear of it by errors of what they do with them.
heard_of_loss() {
    lost_link "$1" silence_c --keep-going || return
    printed "rank 2 heard of the loss of rank 4" 1 && printed "rank 3 heard of the loss of rank 5" 1 && return
    fail "$1" "ranks 2 and 3 have not heard of the loss of ranks 4 and 5"
    return 1
}

killed_rank() {
    loss "$1" + "was killed by SIGKILL" "$kill_limit" kill_rank || return
    grep -q "rank [45].*host-c" "$directory/err" && return
    fail "$1" "the message does not name rank and host"
    return 1
}

killed_host() {
    local status=0
    loss "$1" + "host host-d is lost with 2 ranks" "$kill_limit" kill_host || status=1
    [[ -n "${init[d]-}" ]] || start_host d || status=1
    return "$status"
}

losses() {
    step cut-link lost_link cut_c
    step silent-link lost_link silence_c
    step heard-of-loss heard_of_loss
    step killed-agent loss + "host host-b is lost with 2 ranks" "$kill_limit" kill_agent
    # Its keeper kills it when ssh is gone.
    step stopped-agent loss + "host host-b is lost with 2 ranks: its agent has said nothing" "$kill_limit" stop_agent
    step killed-rank killed_rank
    step killed-launcher loss + "puts to rank" "$kill_limit" kill_launcher
    step killed-host killed_host
}

# Whoever is killed at whatever moment, from the start of the job on: it ends with an error, and nothing is left.
kills() {
    local name="$1" kinds=(rank agent launcher host) count="${RMA_TEST_KILLS:-8}" index moment kind host
    for ((index = 0; index < count; index++)); do
        kind="${kinds[index % 4]}"
        host="${hosts[index / 4 % 4]}"
        # The same moments in each run, in milliseconds; by the latest one all ranks put.
        moment=$(((index + 1) * 2654435769 % 4294967296 * 1800 / 4294967296))
        one_kill "$name" "$kind" "$host" "$moment" || return
    done
    echo "    $count kills"
}

# one_kill NAME KIND HOST MILLISECONDS
one_kill() {
    local name="$1" kind="$2" host="$3" what="a job whose $2 (host $3) is killed after $4 ms" status=0
    local step_limit="$puts_limit"
    # The launcher is on host a, which has no agent.
    [[ "$kind" != launcher ]] || host=a
    [[ "$kind$host" != agenta ]] || host=b
    begin env RMA_TIMEOUT=200 "$rmarun" "${eight[@]}" "${puts[@]}"
    # The moment is what is tested: there is no event to wait for.
    sleep "$(printf '%d.%03d' "$(($4 / 1000))" "$(($4 % 1000))")"
    if ! within "$host_limit" kill_one "$kind" "$host"; then
        fail_job "$name" "there is none to kill: $what"
        return
    fi
    ended "$name" "$loss_limit" + "" "$what" && settle "$name" || status=1
    [[ -n "${init[$host]-}" ]] || start_host "$host" || status=1
    return "$status"
}

kill_one() {
    case "$1" in
    rank) on "$2" pkill -KILL -o -f "^$processes" ;;
    agent) on "$2" pkill -KILL -f "^$rmarun --agent" ;;
    launcher) on a pkill -KILL -f "^$rmarun --host" ;;
    host) stop_host "$2" ;;
    esac
}

# A disk that is full.
full_disk() {
    local status=0
    mkdir -p "$directory/small"
    on a mount -t tmpfs -o size=64k tmpfs "$directory/small"
    # Agents that have not connected when the job ends do not go on trying.
    begin env RMA_BOOTSTRAP_TIMEOUT=100 "$rmarun" "${eight[@]}" --output-dir "$directory/small" \
        sh -c 'head -c 200000 /dev/zero | tr "\0" x'
    ended "$1" "$kill_limit" + "No space left on device" "a job whose output has no room" || status=1
    on a umount "$directory/small"
    return "$status"
}

# Host b has only IPv6, the others both: all use IPv6. Then host c has only IPv4: the error says who has what.
mixed_addresses() {
    local status=0
    name_hosts by-address6
    take_addresses4 b
    run_and_judge "$1" 0 "$checksum" "$rmarun" "${eight[@]}" "$ring" || status=1
    run_and_judge "$1" 0 "$checksum" env RMA_INTERFACE=ipv6 "$rmarun" "${eight[@]}" "$ring" || status=1
    run_and_judge "$1" 0 "$checksum" env RMA_BOOTSTRAP=pmi1 "$rmarun" "${eight[@]}" -x RMA_BOOTSTRAP "$ring" || status=1
    name_hosts by-address6 c
    ip -n "$tag-c" -6 address flush dev eth0 scope global
    run_and_judge "$1" + "host-b (rank 2) has only fd77::2" "$rmarun" "${eight[@]}" "$ring" || status=1
    run_and_judge "$1" + "host-c (rank 4) has only 10." "$rmarun" "${eight[@]}" "$ring" || status=1
    ip -n "$tag-c" address add "fd77::$(number_of c)/64" dev eth0 nodad
    give_addresses4 b
    name_hosts own
    return "$status"
}

# IPv6 only, and one family of addresses is gone.
only_ipv6() {
    local status=0
    name_hosts by-address6
    take_addresses4
    run_and_judge "$1" 0 "$checksum" "$rmarun" "${eight[@]}" "$ring" || status=1
    give_addresses4
    name_hosts own
    return "$status"
}

for ((round = 0; round < ${RMA_TEST_REPEAT:-1}; round++)); do
    others
    jobs_of_rmarun
    step strangers strangers
    losses
    step kills kills
    step full-disk full_disk
    step mixed-addresses mixed_addresses
    step ipv6 only_ipv6
done
end_steps
