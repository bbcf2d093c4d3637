#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# boot.sh ROOT: starts systemd as the first process of a root file system. The tests of the packages call it in
# namespaces that they have made: mounts, processes, network, control groups.
set -eu
root=$1
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
for dir in run tmp dev; do
	mount -t tmpfs tmpfs "$root/$dir"
done
for node in null zero full random urandom tty; do
	: >"$root/dev/$node"
	mount --bind "/dev/$node" "$root/dev/$node"
done
mkdir "$root/dev/pts" "$root/dev/shm"
ln -s /proc/self/fd "$root/dev/fd"
exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot "$root" \
	/lib/systemd/systemd --show-status=no --log-target=journal systemd.unit=multi-user.target
