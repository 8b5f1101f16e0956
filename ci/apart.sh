#!/bin/sh
# Makes one machine several hosts: starts rmarun's agent of a host here, in a PID namespace of its own. Ranks of different
# PID namespaces do not share memory, as those of different hosts do not; the loopback interface is the network between.
#
#   rmarun --launch-agent ci/apart.sh --host a:4,b:4 PROGRAM
#   ci/apart.sh a true     whether this machine lets us make such namespaces
shift
# Who is not root needs a user namespace to make another.
[ "$(id -u)" -eq 0 ] || own="--user --map-current-user"
# shellcheck disable=SC2086 # two words, or none
exec unshare ${own-} --pid --fork --kill-child --mount-proc sh -c "exec $*"
