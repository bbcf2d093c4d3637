#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs bench on a user mode Linux (kernel/uml.sh), whose root is this machine's,
# read-only:
#
#   bench/uml.sh build/uml/linux build/bin/bench ARGS...
#
# The same file is what runs inside, as init.
set -euo pipefail

inside() {
	# However it ends: a kernel whose init ends panics.
	trap 'status=$?; echo "bench/uml.sh: status $status"; echo o >/proc/sysrq-trigger; sleep 60' EXIT
	mount -t proc none /proc
	mount -t sysfs none /sys
	mount -t devtmpfs none /dev 2>/dev/null || true
	mount -t tmpfs none /tmp
	mount -t tmpfs none /run
	ip link set lo up
	ip link add dummy0 mtu 4500 type dummy
	ip addr add 10.9.0.1/24 dev dummy0
	ip link set dummy0 up
	rdma link add rxe0 type rxe netdev dummy0
	PATH=$uml_bin:$PATH "$@"
}

if [ $$ = 1 ]; then
	export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
	inside "$@"
	exit
fi

linux=$1
bench=$(realpath "$2")
shift 2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# Output is the console, which ends its lines as a terminal does. Words that
# the kernel does not know go to init: variables, and what is behind "--".
"$linux" mem=3G ncpus=2 seccomp=auto root=none rootfstype=hostfs rootflags=/ ro dummy.numdummies=0 \
	con=null con0=null,fd:1 init="$(realpath "${BASH_SOURCE[0]}")" uml_bin="$(dirname "$bench")" \
	-- "$bench" "$@" 2>&1 </dev/null | tr -d '\r' | tee "$log"
status=$(sed -n 's/^bench\/uml.sh: status //p' "$log")
exit "${status:-1}"
