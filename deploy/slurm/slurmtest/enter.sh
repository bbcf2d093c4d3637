#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs a command in a root file system of testbed/slurm.sh, in namespaces of its own: its
# processes end with the command, its network is a loopback, and nothing that it writes stays.
# The repository is at /src and PROGRAMS at /opt, both read-only.
#
#   enter.sh ROOT PROGRAMS COMMAND [ARGUMENT...]
set -euo pipefail

[ $# -ge 3 ] || { echo "usage: enter.sh ROOT PROGRAMS COMMAND [ARGUMENT...]" >&2; exit 2; }
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
if [ "$(id -u)" -ne 0 ]; then
	echo "enter.sh: the namespaces and mounts of Slurm's test take root" >&2
	exit 77
fi
if [ -z "${GPURDMA_INSIDE:-}" ]; then
	export GPURDMA_INSIDE=1
	exec unshare --mount --pid --net --ipc --uts --fork --kill-child --propagation private "$0" "$@"
fi

root=$1 programs=$2
shift 2
ip link set lo up
# Slurm looks addresses up with AI_ADDRCONFIG, which wants one that is not of 127.0.0.0/8.
ip address add 192.0.2.1/32 dev lo
hostname slurmtest
mkdir -p "$root/src"
mount --bind "$root" "$root"
mount --bind -o ro "$top" "$root/src"
mount --bind -o ro "$programs" "$root/opt"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
cp -a "$root/etc" "$root/run/etc"
for d in tmp var usr/local dev srv; do
	mount -t tmpfs -o mode=755 tmpfs "$root/$d"
done
mount --bind "$root/run/etc" "$root/etc"
mount -o remount,bind,ro "$root"
mount -o remount,bind,ro "$root/src"
mount -o remount,bind,ro "$root/opt"
mount -t proc proc "$root/proc"
mount --bind -o ro /sys "$root/sys"
mount -o remount,bind,ro "$root/sys"
# Slurm takes this for control groups of version 1, and makes none.
mount -t tmpfs tmpfs "$root/sys/fs/cgroup"
for n in null zero full random urandom; do
	: >"$root/dev/$n"
	mount --bind "/dev/$n" "$root/dev/$n"
done
ln -s /proc/self/fd "$root/dev/fd"
mkdir -m 1777 "$root/dev/shm" "$root/var/tmp"
chmod 1777 "$root/tmp"
mkdir -p "$root"/usr/local/{bin,sbin}
exec chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin GPURDMA_SLURM=inside ${GPURDMA_TRANSCRIPT:+GPURDMA_TRANSCRIPT=1} \
	/bin/sh -c 'cd /src/deploy/slurm/slurmtest && exec "$@"' sh "$@"
