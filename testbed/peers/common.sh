# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Functions of the peer scripts, which source this file in the guest.

series=${GPURDMA_KERNEL:?set by the test bed: these scripts run in its guest}
device=rxe0
address=10.9.0.1

fail() {
	echo "FAIL: $*" >&2
	exit 1
}

pass() {
	echo "PASS: $*"
}

# On a kernel that checks itself, such as KASAN's, commands take this many times longer.
slow=${GPURDMA_SLOW:-1}

# bounded SECONDS COMMAND... ends a command after three times SECONDS. SECONDS is the longest
# that the command takes on a machine that does nothing else.
bounded() {
	local seconds=$(($1 * 3 * slow)) status=0
	shift
	timeout --kill-after=5 "$seconds" "$@" || status=$?
	[ $status -ne 124 ] && [ $status -ne 137 ] ||
		echo "FAIL: no end after $seconds seconds: $*" >&2
	return $status
}

# gid_index prints the index of the RoCE v2 GID that has the IPv4 address.
gid_index() {
	local types=/sys/class/infiniband/$device/ports/1/gid_attrs/types
	local gids=/sys/class/infiniband/$device/ports/1/gids i
	for i in $(ls "$gids" | sort -n); do
		if [ "$(cat "$types/$i" 2>/dev/null)" = "RoCE v2" ] &&
			[[ $(cat "$gids/$i") = 0000:0000:0000:0000:0000:ffff:* ]]; then
			echo "$i"
			return
		fi
	done
	fail "$device has no RoCE v2 GID with an IPv4 address"
}

# need COMMAND PACKAGE
need() {
	command -v "$1" >/dev/null || fail "$1 is missing; install the package $2"
}

# pair NAME SECONDS SERVER CLIENT runs a server and its client, each given as the
# shell words of one command. The client starts as soon as the server listens on
# $port. Both have to end well in time; otherwise pair shows their output.
pair() {
	local name=$1 seconds=$(($2 * 3 * slow)) server=$3 client=$4 pid status=0 dir
	dir=$(mktemp -d)
	# exec: the process that timeout waits for and ends is the server itself
	timeout --kill-after=5 "$seconds" bash -c "exec $server" >"$dir/server" 2>&1 &
	pid=$!
	if ! listening "$pid"; then
		status=1
	elif ! timeout --kill-after=5 "$seconds" bash -c "exec $client" >"$dir/client" 2>&1; then
		status=2
	fi
	# A client that failed leaves a server waiting.
	[ $status -eq 0 ] || kill "$pid" 2>/dev/null || true
	wait "$pid" || [ $status -ne 0 ] || status=3
	if [ $status -ne 0 ]; then
		echo "-- $server" >&2
		cat "$dir/server" >&2
		echo "-- $client" >&2
		cat "$dir/client" >&2 2>/dev/null || true
		rm -rf "$dir"
		case $status in
		1) fail "$name: the server did not come up" ;;
		2) fail "$name: the client failed" ;;
		*) fail "$name: the server failed" ;;
		esac
	fi
	result=$(cat "$dir/client")
	rm -rf "$dir"
	echo "ok $name"
}

# listening PID waits up to 30 seconds, on a fast kernel, until the server PID listens on
# TCP port $port. A listener of rdma_cm has no TCP socket: $port is empty then, and
# the function reads the kernel's list of connection identifiers.
listening() {
	local i
	for ((i = 0; i < 300 * slow; i++)); do
		kill -0 "$1" 2>/dev/null || return 1
		if [ -n "${port-}" ]; then
			ss -Hltn "sport = :$port" | grep -q . && return 0
		else
			rdma resource show cm_id | grep -q 'state LISTEN' && return 0
		fi
		sleep 0.1
	done
	return 1
}
