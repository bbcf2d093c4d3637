# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# What the peer scripts share. To be sourced, in the guest.

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

# A kernel that checks itself takes so many times longer.
slow=${GPURDMA_SLOW:-1}

# bounded SECONDS COMMAND... gives a command three times as long as it takes at most on a
# machine that does nothing else, and then ends it.
bounded() {
	local seconds=$(($1 * 3 * slow)) status=0
	shift
	timeout --kill-after=5 "$seconds" "$@" || status=$?
	[ $status -ne 124 ] && [ $status -ne 137 ] ||
		echo "FAIL: no end after $seconds seconds: $*" >&2
	return $status
}

# The index of the RoCE v2 GID that is the IPv4 address.
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

# pair NAME SECONDS SERVER -- CLIENT: both are shell words of one command each.
# The server is started, waited for until it listens on $port, and both have
# to end well in time. What they print is shown when they do not.
pair() {
	local name=$1 seconds=$(($2 * 3 * slow)) server=$3 client=$4 pid status=0 dir
	dir=$(mktemp -d)
	# exec: the process that is waited for and ended is the server itself
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

# Up to 30 seconds, on a fast kernel, for the server with this pid to listen on TCP port $port.
# rdma_cm listens by itself and is not in /proc: $port is empty then, and the
# kernel's own list is asked.
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
