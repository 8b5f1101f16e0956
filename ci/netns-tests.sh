#!/usr/bin/env bash
# Four hosts on this machine: each with namespaces of its own (network, processes, host name, mounts), an sshd as
# its first process, and a cable to a switch. Jobs run across them by rmarun over ssh, and by Hydra's mpiexec; then
# cables are cut, agents and hosts are killed, disks are filled. Every outcome is asserted, and has a bound.
#
#   ci/netns-tests.sh              all of it
#   ci/netns-tests.sh STEP...      only these, as they are named in the output
#
# Needs root and Debian's openssh-server and iproute2; keys, configuration and all that is written are in a
# temporary directory. Nothing of the machine's own network is touched. Cleans up in any case.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH="$PATH:/usr/sbin:/sbin"

# Longest time of a step, and of waiting for a host, in seconds.
step_limit=60
host_limit=30
# Longest time until a cut cable or a host that is gone has ended the job, in seconds.
loss_limit=30
hosts=(a b c d)
ranks=8

wanted=("$@")
passed=0
failed=()

if ((EUID != 0)); then
    echo "netns-tests: network namespaces and sshd need root" >&2
    exit 1
fi
if ! unshare --net --pid --fork --mount true 2>/dev/null; then
    # Such as in a container without CAP_SYS_ADMIN.
    echo "netns-tests: skipped, this machine lets nobody make namespaces" >&2
    exit 0
fi

install_packages() {
    local missing=() command package
    while read -r command package; do
        command -v "$command" >/dev/null || missing+=("$package")
    done <<'TABLE'
sshd openssh-server
ssh openssh-client
ip iproute2
nsenter util-linux
pgrep procps
mpiexec.hydra mpich
TABLE
    if ((${#missing[@]} > 0)); then
        echo "netns-tests: installing ${missing[*]}"
        apt-get update -q
        # Debian would start daemons of its own at once.
        env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
            apt-get install -q -y --no-install-recommends "${missing[@]}"
    fi
}

directory="$(mktemp -d)"
tag="rma$$"
declare -A init=()

clean_up() {
    local status="$?" host pid
    trap - EXIT
    for pid in "${init[@]}"; do
        # The first process of a host: all others end with it.
        kill -KILL "$pid" 2>/dev/null || true
    done
    for host in "${hosts[@]}" switch; do
        ip netns delete "$tag-$host" 2>/dev/null || true
    done
    rm -rf "$directory"
    exit "$status"
}
trap clean_up EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

is_wanted() {
    ((${#wanted[@]} == 0)) && return 0
    local name
    for name in "${wanted[@]}"; do
        [[ "$name" == "$1" ]] && return 0
    done
    return 1
}

now_ms() { date +%s%3N; }

pass() {
    printf 'test netns %s ... ok (%d ms)\n' "$1" "$2"
    passed=$((passed + 1))
}

fail() {
    printf 'test netns %s ... FAILED: %s\n' "$1" "$2"
    sed 's/^/    /' "$directory/out" "$directory/err" | head -c 20000
    failed+=("$1")
}

# within SECONDS COMMAND...: whether the command succeeds in this time; it is tried again and again.
within() {
    local ends=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < ends)) || return 1
        sleep 0.1
    done
}

# on HOST COMMAND...: runs the command on the host.
on() {
    local host="$1"
    shift
    nsenter --target "${init[$host]}" --net --uts --pid --mount -- "$@"
}

# The network: host a has the addresses ending in 1, b in 2, and so on.
number_of() {
    local all="${hosts[*]}" before
    before="${all%%"$1"*}"
    echo $((${#before} / 2 + 1))
}

# dead_end HOST INTERFACE ADDRESS: a cable whose other end is plugged in nowhere.
dead_end() {
    ip -n "$tag-$1" link add "$2" type veth peer name "$2-$1" netns "$tag-switch"
    ip -n "$tag-$1" link set "$2" up
    ip -n "$tag-switch" link set "$2-$1" up
    ip -n "$tag-$1" address add "$3" dev "$2"
}

connect_cables() {
    local host number
    ip netns add "$tag-switch"
    ip -n "$tag-switch" link add br0 type bridge
    ip -n "$tag-switch" link set br0 up
    for host in "${hosts[@]}"; do
        number="$(number_of "$host")"
        ip netns add "$tag-$host"
        ip -n "$tag-$host" link set lo up
        # These look alive and lead nowhere. One is listed before the cable by the operating system, one after it;
        # and one has the same address on every host, as it has where docker is.
        dead_end "$host" dead0 "10.66.0.$number/24"
        ip -n "$tag-$host" link add eth0 type veth peer name "port-$host" netns "$tag-switch"
        ip -n "$tag-switch" link set "port-$host" master br0
        ip -n "$tag-switch" link set "port-$host" up
        ip -n "$tag-$host" link set eth0 up
        ip -n "$tag-$host" address add "10.77.0.$number/24" dev eth0
        ip -n "$tag-$host" address add "fd77::$number/64" dev eth0 nodad
        dead_end "$host" dead1 "10.67.0.$number/24"
        dead_end "$host" docker0 172.17.0.1/16
    done
}

# name_hosts own|by-address4|by-address6: what host names mean: on each host, its own name 127.0.1.1 as Debian has
# it, or what others see.
name_hosts() {
    local host other address
    for host in "${hosts[@]}"; do
        {
            echo "127.0.0.1 localhost"
            for other in "${hosts[@]}"; do
                address="10.77.0.$(number_of "$other")"
                [[ "$1" != by-address6 ]] || address="fd77::$(number_of "$other")"
                [[ "$1" != own || "$other" != "$host" ]] || address=127.0.1.1
                echo "$address host-$other"
            done
        } >"$directory/hosts-$host"
    done
}

write_configuration() {
    ssh-keygen -q -t ed25519 -N '' -f "$directory/key"
    ssh-keygen -q -t ed25519 -N '' -f "$directory/host-key"
    cp "$directory/key.pub" "$directory/authorized"
    # A port of its own, so that nothing is mistaken for another machine's.
    cat >"$directory/sshd_config" <<CONF
Port 2022
HostKey $directory/host-key
AuthorizedKeysFile $directory/authorized
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
StrictModes no
UsePAM no
UseDNS no
PidFile none
MaxStartups 100
CONF
    cat >"$directory/ssh_config" <<CONF
Host *
    Port 2022
    User root
    IdentityFile $directory/key
    IdentitiesOnly yes
    UserKnownHostsFile $directory/known_hosts
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
    BatchMode yes
    ConnectTimeout 10
CONF
    local host
    for host in "${hosts[@]}"; do
        echo "[host-$host]:2022 $(<"$directory/host-key.pub")" >>"$directory/known_hosts"
    done
    # rmarun finds the system's ssh by its name; so do others.
    mkdir "$directory/bin"
    printf '#!/bin/sh\nexec %s -F %s "$@"\n' "$(command -v ssh)" "$directory/ssh_config" >"$directory/bin/ssh"
    chmod 755 "$directory/bin/ssh"
    cat >"$directory/host.sh" <<SCRIPT
#!/bin/sh
# The first process of a host.
set -e
hostname "host-\$1"
mount --bind "$directory/hosts-\$1" /etc/hosts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /run
mkdir -m 755 /run/sshd
exec $(command -v sshd) -D -e -f $directory/sshd_config
SCRIPT
    chmod 755 "$directory/host.sh"
}

start_host() {
    local host="$1" outer
    ip netns exec "$tag-$host" unshare --uts --mount --pid --fork --kill-child --mount-proc \
        "$directory/host.sh" "$host" >"$directory/sshd-$host.log" 2>&1 </dev/null &
    outer="$!"
    disown "$outer"
    within "$host_limit" pgrep -P "$outer"
    init[$host]="$(pgrep -P "$outer")"
    within "$host_limit" on "$host" sh -c 'echo >/dev/null | ss -Hltn sport = 2022 | grep -q .'
}

# job NAME STATUS TEXT COMMAND...: runs the command on host a; it ends with this status (`+` for any but 0), and its
# output has this text in it. Returns whether it did.
job() {
    local name="$1" expected="$2" text="$3" status=0
    shift 3
    on a timeout --kill-after=5 "$step_limit" env "PATH=$directory/bin:$PATH" "$@" \
        >"$directory/out" 2>"$directory/err" </dev/null || status="$?"
    judge "$name" "$expected" "$text" "$status" "$*"
}

judge() {
    local name="$1" expected="$2" text="$3" status="$4" what="$5"
    if [[ "$expected" != "$status" && ! ("$expected" == + && "$status" != 0 && "$status" != 124) ]]; then
        fail "$name" "status $status and not $expected of: $what"
    elif ! grep -qF -- "$text" "$directory/out" "$directory/err"; then
        fail "$name" "no '$text' from: $what"
    else
        return 0
    fi
    return 1
}

# says NAME STATUS TEXT COMMAND...: a step that is a job.
says() {
    local begun
    is_wanted "$1" || return 0
    begun="$(now_ms)"
    if job "$@"; then
        pass "$1" "$(($(now_ms) - begun))"
    fi
}

# The job of a step, in the background on host a; `ended` waits for it.
job_pid=
begun=0

# begin COMMAND...: starts the command on host a.
begin() {
    begun="$(now_ms)"
    : >"$directory/out"
    on a timeout --kill-after=5 "$step_limit" env "PATH=$directory/bin:$PATH" "$@" \
        >"$directory/out" 2>"$directory/err" </dev/null &
    job_pid="$!"
}

# printed TEXT COUNT: whether so many lines of the job have this text in them.
printed() { (($(grep -cF -- "$1" "$directory/out") >= $2)); }

# reach NAME TEXT COUNT: waits until the job has printed that.
reach() {
    within "$host_limit" printed "$2" "$3" && return
    fail "$1" "not $3 times '$2' within $host_limit s"
    kill -KILL "$job_pid" 2>/dev/null || true
    wait "$job_pid" 2>/dev/null || true
    return 1
}

# ended NAME SECONDS STATUS TEXT: waits for the job, which has to end in this time.
ended() {
    local status=0 since="$SECONDS"
    wait "$job_pid" || status="$?"
    if ((SECONDS - since > $2)); then
        fail "$1" "it took $((SECONDS - since)) s and not at most $2"
        return 1
    fi
    judge "$1" "$3" "$4" "$status" "a job with a loss"
}

# gone HOST...: whether nothing of a job is left on these hosts: no process, no socket that listens, no shared memory.
gone() {
    local host
    for host in "$@"; do
        ! on "$host" pgrep -f "^$target/" || return 1
        [[ -z "$(on "$host" ss -Hltn sport != 2022)" ]] || return 1
        [[ -z "$(on "$host" ls /dev/shm)" ]] || return 1
    done
}

# clean NAME HOST...: nothing is left on the hosts, soon; and so the step has passed.
clean() {
    local name="$1"
    shift
    if ! within "$host_limit" gone "$@"; then
        for host in "$@"; do on "$host" ps -ef; on "$host" ss -ltnp; on "$host" ls /dev/shm; done >>"$directory/out" 2>&1
        fail "$name" "something is left"
    else
        pass "$name" "$(($(now_ms) - begun))"
    fi
}

install_packages
cargo build --locked --quiet -p launcher -p rma -p rma-processes --bins --example ring
target="${CARGO_TARGET_DIR:-$PWD/target}/debug"
[[ "$target" == /* ]] || target="$PWD/$target"
rmarun="$target/rmarun"
ring="$target/examples/ring"
processes="$target/rma-processes"
export RMA_BOOTSTRAP_TIMEOUT=20 RMA_TIMEOUT=40

connect_cables
name_hosts own
write_configuration
for host in "${hosts[@]}"; do start_host "$host"; done
all="host-a,host-b,host-c,host-d"

says ssh 0 host-d ssh -n host-d hostname

# Launchers of others: which interface the fabric takes is its own choice there.
checksum="$("$ring" 2>"$directory/err")"
hydra=(mpiexec.hydra -launcher ssh -iface eth0 -hosts "$all" -ppn 2 -n "$ranks")
for provider in net 'tcp;ofi_rxm' sockets; do
    says "hydra-${provider//;/-}" 0 "$checksum" env RMA_PROVIDER="$provider" RMA_INTERFACE=eth0 "${hydra[@]}" "$ring"
done
says hydra-wrong-interface + "RMA_INTERFACE" env RMA_INTERFACE=dead0 "${hydra[@]}" "$ring"

eight=(--host "$all" --ppn 2 -n "$ranks")

# Jobs of rmarun, over ssh. Names mean 127.0.1.1 on their own hosts, dead0 and docker0 lead nowhere.
for provider in net 'tcp;ofi_rxm' sockets; do
    says "rmarun-${provider//;/-}" 0 "$checksum" "$rmarun" "${eight[@]}" --provider "$provider" "$ring"
done
says rmarun-pmi 0 "$checksum" "$rmarun" "${eight[@]}" -x RMA_BOOTSTRAP=pmi1 "$ring"
only=()
while read -r behaviour; do
    # Memory is shared on one host only.
    [[ "$behaviour" == *shared_memory* ]] || only+=(--only "$behaviour")
done < <("$processes" --list)
step_limit=180 says behaviours 0 "behaviours passed on $ranks ranks" "$rmarun" "${eight[@]}" "$processes" --limit 50 "${only[@]}"
says no-such-host + "Could not resolve hostname host-x" "$rmarun" --host host-a,host-x -n 2 "$ring"
says dead-interface + "10.66.0.1" env RMA_BOOTSTRAP_TIMEOUT=12 "$rmarun" "${eight[@]}" --iface dead0 "$ring"

# The addresses where something listens on host a; fails when there are none.
listeners() { on a ss -Hltn sport != 2022 | awk '{ print $4 }' | grep .; }

# While agents are waited for: what listens does so on the chosen interface only, whoever does not know the secret
# keeps nobody out, and the secret is on no command line and in no environment.
strangers() {
    local listening port
    # An agent on b may still be one of the step before.
    within "$host_limit" listeners || { echo "nobody listens on a"; return 1; }
    listening="$(listeners)"
    if grep -vE '^(10\.77\.0\.1|\[fd77::1\]|\[fe80::[0-9a-f:]*\]%eth0):' <<<"$listening"; then
        echo "listens on other interfaces as well"
        return 2
    fi
    port="$(sed -n 's/^10\.77\.0\.1://p' <<<"$listening")"
    on b bash -c "exec 3<>/dev/tcp/10.77.0.1/$port; head -c 1000000 /dev/urandom >&3; cat <&3" 2>/dev/null || true
    # These stay open, and say nothing, until the job has long ended.
    on c bash -c "for i in {1..300}; do exec {fd}<>/dev/tcp/10.77.0.1/$port; done; : >$directory/open; sleep 20" &
    within "$host_limit" test -e "$directory/open" || { echo "c cannot connect"; return 1; }
    # Agents run on b; the one of d waits, as its starter does on a.
    if {
        on a sh -c 'cat /proc/[0-9]*/cmdline'
        on b sh -c 'cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ'
    } 2>/dev/null | tr '\0' '\n' | grep -aE '(^|=)[0-9a-f]{64}$'; then
        echo "a secret can be seen"
        return 2
    fi
}
if is_wanted strangers; then
    # Only the agent of host d has to wait, so that the others run meanwhile.
    cat >"$directory/bin/slow" <<SCRIPT
#!/bin/sh
[ "\$1" != host-d ] || until [ -e "$directory/go" ]; do sleep 0.1; done
exec ssh "\$@"
SCRIPT
    chmod 755 "$directory/bin/slow"
    begin "$rmarun" "${eight[@]}" --iface eth0 --launch-agent slow "$ring"
    within "$host_limit" on b pgrep -f "^$rmarun --agent" || true
    status=0
    strangers >"$directory/strangers" 2>&1 || status="$?"
    : >"$directory/go"
    if ((status != 0)); then
        wait "$job_pid" || true
        fail strangers "status $status: $(<"$directory/strangers")"
    elif ended strangers "$step_limit" 0 "$checksum"; then
        clean strangers "${hosts[@]}"
    fi
fi

# Losses. The job is one of eight ranks that put to the next host until they cannot.
puts=("$processes" --only a_loss_is_heard_of --limit 55)

# loss NAME STATUS TEXT SECONDS BREAK [OPTION...]: begins the job, breaks something when all ranks put, and the job
# ends in this time and says so.
loss() {
    local name="$1" status="$2" text="$3" limit="$4" break="$5"
    shift 5
    # Not by their own limits do the calls learn it.
    begin env RMA_TIMEOUT=200 "$rmarun" "${eight[@]}" "$@" "${puts[@]}"
    reach "$name" "puts to rank" "$ranks" || return 1
    "$break"
    ended "$name" "$limit" "$status" "$text"
}

# As when a cable is pulled: both ends see it.
cut_c() { ip -n "$tag-switch" link set port-c down; }
# As when a switch fails: nobody sees anything.
silence_c() { ip -n "$tag-switch" link set port-c nomaster; }
mend_c() { ip -n "$tag-switch" link set port-c master br0 up; }
kill_agent() { on b pkill -KILL -f "^$rmarun --agent"; }
kill_rank() { on c pkill -KILL -o -f "^$processes"; }
kill_launcher() { on a pkill -KILL -f "^$rmarun --host"; }
kill_host() {
    kill -KILL "${init[d]}"
    unset "init[d]"
}

if is_wanted cut-link; then
    if loss cut-link + "host host-c is lost with 2 ranks" "$loss_limit" cut_c; then
        mend_c
        clean cut-link "${hosts[@]}"
    fi
    mend_c
fi
if is_wanted silent-link; then
    if loss silent-link + "host host-c is lost with 2 ranks" "$loss_limit" silence_c; then
        mend_c
        clean silent-link "${hosts[@]}"
    fi
    mend_c
fi
# Those who go on without the lost ranks hear of it by errors of what they do with them.
if is_wanted heard-of-loss; then
    if loss heard-of-loss + "host host-c is lost with 2 ranks" "$loss_limit" silence_c --keep-going; then
        mend_c
        if printed "rank 2 heard of the loss of rank 4" 1 && printed "rank 3 heard of the loss of rank 5" 1; then
            clean heard-of-loss "${hosts[@]}"
        else
            fail heard-of-loss "ranks 2 and 3 have not heard of the loss of ranks 4 and 5"
        fi
    fi
    mend_c
fi
if is_wanted killed-agent && loss killed-agent + "host host-b is lost with 2 ranks" 15 kill_agent; then
    clean killed-agent "${hosts[@]}"
fi
if is_wanted killed-rank && loss killed-rank + "was killed by SIGKILL" 15 kill_rank; then
    if grep -q "rank [45].*host-c" "$directory/err"; then
        clean killed-rank "${hosts[@]}"
    else
        fail killed-rank "the message does not name rank and host"
    fi
fi
if is_wanted killed-launcher && loss killed-launcher + "puts to rank" 15 kill_launcher; then
    clean killed-launcher "${hosts[@]}"
fi
if is_wanted killed-host; then
    if loss killed-host + "host host-d is lost with 2 ranks" 15 kill_host; then
        clean killed-host a b c
    fi
    start_host d
fi

# A disk that is full.
if is_wanted full-disk; then
    mkdir "$directory/small"
    on a mount -t tmpfs -o size=64k tmpfs "$directory/small"
    # Agents that have not connected when the job ends do not go on trying.
    begin env RMA_BOOTSTRAP_TIMEOUT=100 "$rmarun" "${eight[@]}" --output-dir "$directory/small" sh -c 'head -c 200000 /dev/zero | tr "\0" x'
    if ended full-disk 15 + "No space left on device"; then
        clean full-disk "${hosts[@]}"
    fi
    on a umount "$directory/small"
fi

# IPv6 only, and one family of addresses is gone.
if is_wanted ipv6; then
    name_hosts by-address6
    for host in "${hosts[@]}"; do
        for interface in dead0 eth0 dead1 docker0; do
            ip -n "$tag-$host" -4 address flush dev "$interface"
        done
    done
    says ipv6 0 "$checksum" "$rmarun" "${eight[@]}" "$ring"
fi

printf '\ntest result: %s. %d passed; %d failed; in %d s\n' \
    "$( ((${#failed[@]} == 0)) && echo ok || echo FAILED)" "$passed" "${#failed[@]}" "$SECONDS"
((${#failed[@]} == 0))
