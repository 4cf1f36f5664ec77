#!/bin/sh
# The first process of a node, in namespaces of its own: makes a directory the root of the file system, and
# then only waits until it is killed, which ends all other processes of the node.
#
#   unshare --mount --uts --ipc --pid --net --fork --kill-child node.sh ROOT [COMMAND...]
#
# With a command it ends with that; what needs the network of this machine leaves out --net.
set -e
root=$1
shift
mount --make-rprivate /
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
if [ $# -eq 0 ]; then
    hostname node
    # NB: the kubelet sets these for the whole machine; here it sets copies
    for name in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops \
        kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
        mkdir -p "$root/run/sysctl/${name%/*}"
        cat "/proc/sys/$name" >"$root/run/sysctl/$name"
        mount --bind "$root/run/sysctl/$name" "$root/proc/sys/$name"
    done
    # an address for the node, and a way by which its own processes reach those of services
    ip link set lo up
    ip link add eth0 type veth peer name nowhere
    ip link set nowhere up
    ip addr add 10.88.0.2/24 dev eth0
    ip link set eth0 up
    ip route add default dev eth0
    sysctl -q -w net.ipv4.ip_forward=1
    set -- tini -- sleep infinity
fi
cd "$root"
mkdir -p mnt
pivot_root . mnt
umount -l mnt
mount --make-rshared /
cd /
exec "$@"
