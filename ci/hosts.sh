# shellcheck shell=bash
# Four hosts on this machine: each with namespaces of its own (network, processes, host name, mounts), an sshd as its
# first process, and a cable to a switch. To be sourced after ci/steps.sh; needs root and Debian's openssh-server and
# iproute2. Keys, configuration and all that is written are in the directory that `make_hosts` is given. Nothing of the
# machine's own network is touched, and what runs on a host sees neither its name servers nor its environment nor the
# home of its root.

hosts=(a b c d)
# Longest time of waiting for a host, in seconds.
host_limit=30

# The first process of each host that is up.
declare -A init=()
# Where everything is, and the beginning of the names of the namespaces.
home=
tag="rma$$"

# make_hosts DIRECTORY: makes and starts all of them.
make_hosts() {
    home="$1"
    stage "making cables"
    connect_cables
    stage "making keys"
    name_hosts own
    write_configuration
    local host
    for host in "${hosts[@]}"; do
        stage "starting host $host"
        start_host "$host"
    done
}

remove_hosts() {
    local host
    for host in "${!init[@]}"; do stop_host "$host"; done
    for host in "${hosts[@]}" switch; do
        ip netns delete "$tag-$host" 2>/dev/null || true
    done
}

# on HOST COMMAND...: runs the command on the host.
on() {
    local host="$1"
    shift
    nsenter --target "${init[$host]}" --net --uts --pid --mount -- env TMPDIR=/run/tmp "$@"
}

# The network: host a has the addresses ending in 1, b in 2, and so on.
number_of() {
    local all="${hosts[*]}" before
    before="${all%%"$1"*}"
    echo $((${#before} / 2 + 1))
}

# dead_end HOST INTERFACE: a cable whose other end is plugged in nowhere.
dead_end() {
    ip -n "$tag-$1" link add "$2" type veth peer name "$2-$1" netns "$tag-switch"
    ip -n "$tag-$1" link set "$2" up
    ip -n "$tag-switch" link set "$2-$1" up
}

connect_cables() {
    local host
    ip netns add "$tag-switch"
    ip -n "$tag-switch" link add br0 type bridge
    ip -n "$tag-switch" link set br0 up
    for host in "${hosts[@]}"; do
        ip netns add "$tag-$host"
        ip -n "$tag-$host" link set lo up
        # These look alive and lead nowhere. One is listed before the cable by the operating system, one after it;
        # and one has the same address on every host, as it has where docker is.
        dead_end "$host" dead0
        ip -n "$tag-$host" link add eth0 type veth peer name "port-$host" netns "$tag-switch"
        ip -n "$tag-switch" link set "port-$host" master br0
        ip -n "$tag-switch" link set "port-$host" up
        ip -n "$tag-$host" link set eth0 up
        ip -n "$tag-$host" address add "fd77::$(number_of "$host")/64" dev eth0 nodad
        dead_end "$host" dead1
        dead_end "$host" docker0
    done
    give_addresses4
}

# give_addresses4 [HOST...]: IPv4 addresses for these hosts, or for all.
give_addresses4() {
    local host number
    (($# > 0)) || set -- "${hosts[@]}"
    for host; do
        number="$(number_of "$host")"
        ip -n "$tag-$host" address add "10.66.0.$number/24" dev dead0
        ip -n "$tag-$host" address add "10.77.0.$number/24" dev eth0
        ip -n "$tag-$host" address add "10.67.0.$number/24" dev dead1
        ip -n "$tag-$host" address add 172.17.0.1/16 dev docker0
    done
}

# take_addresses4 [HOST...]: these hosts, or all, have none any more.
take_addresses4() {
    local host interface
    (($# > 0)) || set -- "${hosts[@]}"
    for host; do
        for interface in dead0 eth0 dead1 docker0; do
            ip -n "$tag-$host" -4 address flush dev "$interface"
        done
    done
}

# As when a cable is pulled: both ends see it.
pull_cable() { ip -n "$tag-switch" link set "port-$1" down; }
# As when a switch fails: nobody sees anything.
silence_cable() { ip -n "$tag-switch" link set "port-$1" nomaster; }
mend_cable() { ip -n "$tag-switch" link set "port-$1" master br0 up; }

# name_hosts own|by-address6 [HOST]: what host names mean: on each host, its own name 127.0.1.1 as Debian has it, and the
# others' their addresses; or all their addresses of IPv6, but this host its address of IPv4.
name_hosts() {
    local host other address
    for host in "${hosts[@]}"; do
        {
            echo "127.0.0.1 localhost"
            for other in "${hosts[@]}"; do
                address="10.77.0.$(number_of "$other")"
                [[ "$1" != by-address6 || "$other" == "${2-}" ]] || address="fd77::$(number_of "$other")"
                [[ "$1" != own || "$other" != "$host" ]] || address=127.0.1.1
                echo "$address host-$other"
            done
        } >"$home/hosts-$host"
    done
}

write_configuration() {
    ssh-keygen -q -t ed25519 -N '' -f "$home/key"
    ssh-keygen -q -t ed25519 -N '' -f "$home/host-key"
    cp "$home/key.pub" "$home/authorized"
    # A port of its own, so that nothing is mistaken for another machine's.
    cat >"$home/sshd_config" <<CONF
Port 2022
HostKey $home/host-key
AuthorizedKeysFile $home/authorized
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
StrictModes no
UsePAM no
UseDNS no
PidFile none
MaxStartups 100
SetEnv TMPDIR=/run/tmp
CONF
    # Later versions shut out who leaves too often in the middle of a login, as those do who are killed there.
    if sshd -t -f "$home/sshd_config" -o PerSourcePenalties=no 2>/dev/null; then
        echo "PerSourcePenalties no" >>"$home/sshd_config"
    fi
    cat >"$home/ssh_config" <<CONF
Host *
    Port 2022
    User root
    IdentityFile $home/key
    IdentitiesOnly yes
    UserKnownHostsFile $home/known_hosts
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
    BatchMode yes
    ConnectTimeout 10
CONF
    local host
    for host in "${hosts[@]}"; do
        echo "[host-$host]:2022 $(<"$home/host-key.pub")" >>"$home/known_hosts"
    done
    # rmarun finds the system's ssh by its name; so do others.
    mkdir "$home/bin"
    printf '#!/bin/sh\nexec %s -F %s "$@"\n' "$(command -v ssh)" "$home/ssh_config" >"$home/bin/ssh"
    # Who logs in comes to a plain shell and an empty home: what this machine's root has in .bashrc takes its time, and
    # may hold locks when it is killed.
    mkdir "$home/root"
    echo "root:x:0:0:root:$home/root:/bin/sh" >"$home/passwd"
    echo "sshd:x:74:65534::/run/sshd:/usr/sbin/nologin" >>"$home/passwd"
    # Nobody answers where there is no name server, at once.
    : >"$home/resolv.conf"
    cat >"$home/host.sh" <<SCRIPT
#!/bin/sh
# The first process of a host.
set -e
hostname "host-\$1"
mount --bind "$home/hosts-\$1" /etc/hosts
mount --bind "$home/passwd" /etc/passwd
[ ! -e /etc/resolv.conf ] || mount --bind "$home/resolv.conf" /etc/resolv.conf
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /run
mkdir -m 755 /run/sshd
mkdir -m 1777 /run/tmp
exec $(command -v sshd) -D -e -f $home/sshd_config
SCRIPT
    cat >"$home/remains.sh" <<'SCRIPT'
#!/bin/sh
# What there is on a host besides its first process, the dead, and who asks.
ps -e -o pid=,ppid=,stat=,args= | awk -v self="$$" '$1 != 1 && $1 != self && $2 != self && $3 !~ /^Z/ { print "process " $0 }'
ss -Hltnp sport != 2022 | sed 's/^/socket /'
find /dev/shm /run/tmp -mindepth 1 | sed 's/^/file /'
SCRIPT
    chmod 755 "$home/bin/ssh" "$home/host.sh" "$home/remains.sh"
}

start_host() {
    local host="$1" outer
    env -i PATH="$PATH" ip netns exec "$tag-$host" unshare --uts --mount --pid --fork --kill-child --mount-proc \
        "$home/host.sh" "$host" >"$home/sshd-$host.log" 2>&1 </dev/null &
    outer="$!"
    disown "$outer"
    within "$host_limit" pgrep -P "$outer" && init[$host]="$(pgrep -P "$outer")" &&
        within "$host_limit" on "$host" sh -c 'ss -Hltn sport = 2022 | grep -q .' && return
    echo "host $host does not start: $(<"$home/sshd-$host.log")" >&2
    return 1
}

# As when it loses its power: all other processes end with the first one.
stop_host() {
    kill -KILL "${init[$1]}" 2>/dev/null || true
    unset "init[$1]"
}

# What is left of jobs on the hosts that are up: processes, sockets that listen, shared memory, temporary files.
remains() {
    local host
    for host in "${!init[@]}"; do
        on "$host" "$home/remains.sh" 2>&1 | sed "s/^/on $host: /"
    done
}

is_clean() { [[ -z "$(remains)" ]]; }

# Makes the hosts clean.
sweep() {
    local host
    for host in "${!init[@]}"; do
        # All processes but the first and this one.
        on "$host" sh -c 'kill -KILL -1; rm -rf /dev/shm/* /run/tmp/*' 2>/dev/null || true
    done
}
