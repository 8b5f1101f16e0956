#!/bin/sh
# Makes a container a node of a job that rmarun spreads over containers by ssh. Needs no root.
#
#   node.sh keys            makes the job's key pair in $RMA_KEYS, if there is none
#   node.sh serve           lets the other nodes in, until the container ends
#   node.sh run COMMAND...  runs the command once every host of $RMA_HOSTFILE lets this node in
#
# One key pair serves the whole job: it is each node's host key, and whoever has it may come in. So every node
# knows the others, and nobody else is let in or believed.
set -eu

keys=${RMA_KEYS:-/keys}
state=${RMA_STATE:-/run/rma}
port=${RMA_SSH_PORT:-2222}
# How long the other nodes may take to come up, in seconds.
limit=${RMA_NODES_TIMEOUT:-120}
hostfile=${RMA_HOSTFILE:-/etc/mpi/hostfile}
# They are this script's: rmarun warns of settings that it does not know.
unset RMA_KEYS RMA_STATE RMA_SSH_PORT RMA_NODES_TIMEOUT RMA_HOSTFILE

# The job's private key: made by this script, or by Kubernetes' MPI operator under the other name.
key_file() {
    for name in id_ed25519 id_rsa; do
        if [ -s "$keys/$name" ]; then
            echo "$keys/$name"
            return
        fi
    done
    echo "node.sh: there is no key in $keys: run 'node.sh keys' on one node, and mount the folder on all" >&2
    exit 1
}

prepare() {
    key=$(key_file)
    umask 077
    # A copy, as ssh insists on the owner and the mode of a key.
    cp "$key" "$state/key"
    public=$(ssh-keygen -y -f "$state/key")
    echo "$public" >"$state/authorized_keys"
    echo "* $public" >"$state/known_hosts"
    echo "[*]:$port $public" >>"$state/known_hosts"
    cat >"$state/sshd_config" <<CONFIG
Port $port
HostKey $state/key
AuthorizedKeysFile $state/authorized_keys
PidFile $state/sshd.pid
AuthenticationMethods publickey
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
AllowTcpForwarding no
X11Forwarding no
# One connection comes for each node at once.
MaxStartups 256
CONFIG
}

# The names in the host file: the first word of each line that is no comment.
hosts() {
    sed -e 's/#.*//' "$hostfile" | awk 'NF { sub(/:[0-9]+$/, "", $1); print $1 }'
}

case ${1:-} in
keys)
    if [ ! -s "$keys/id_ed25519" ]; then
        ssh-keygen -q -t ed25519 -N '' -C "rma job" -f "$keys/id_ed25519"
    fi
    ;;
serve)
    prepare
    # By its whole path, as sshd wants it.
    exec /usr/sbin/sshd -D -e -f "$state/sshd_config"
    ;;
run)
    shift
    if [ ! -r "$hostfile" ]; then
        echo "node.sh: there is no host file $hostfile: set RMA_HOSTFILE to the path of one" >&2
        exit 1
    fi
    prepare
    waited=0
    for host in $(hosts); do
        until ssh -n "$host" true 2>"$state/last"; do
            if [ "$waited" -ge "$limit" ]; then
                echo "node.sh: $host does not let this node in after $limit s: $(cat "$state/last")" >&2
                exit 1
            fi
            sleep 1
            waited=$((waited + 1))
        done
    done
    exec "$@"
    ;;
*)
    sed -n '2,6s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
