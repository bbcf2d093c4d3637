# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Functions of both sides of gid-pair.sh, which source this file after common.sh.

port=7471
gids=/sys/class/infiniband/$device/ports/1/gids

# addresses NODE gives eth0 an address in a network that the other node is not on,
# and only then addresses in the networks of both: the NICs' first GIDs do not reach
# each other.
addresses() {
	local i count
	ip address flush dev eth0 scope global
	# RDMA names the device, so that Linux takes an address without a route for a
	# neighbour on it, and a node answers for each of its addresses. With 2 it answers
	# only if the sender's address is in the same network.
	echo 2 >/proc/sys/net/ipv4/conf/eth0/arp_ignore
	awaited '[ "$(filled)" = 0 ]'
	for i in "10.9.$((1 + $1)).$1/24" "10.9.1.$1/24" "fd00:1::$1/64 nodad"; do
		count=$(filled)
		# shellcheck disable=SC2086 # words
		ip address add $i dev eth0
		awaited '[ "$(filled)" -gt "$count" ]'
	done
	[ "$(cat "$gids/$(gid_index)")" = "$(printf '0000:0000:0000:0000:0000:ffff:0a09:%02x%02x' $((1 + $1)) "$1")" ] ||
		fail "the first IPv4 GID is not of the network that only this node is on: $(grep -h ffff $gids/*)"
}

# restored NODE gives eth0 the address that its machine booted with: other tests run in
# the same boot.
restored() {
	ip address flush dev eth0 scope global
	echo 0 >/proc/sys/net/ipv4/conf/eth0/arp_ignore
	ip address add "10.9.1.$1/24" dev eth0
}

# filled prints how many GIDs stand for assigned addresses: not empty, not link-local.
filled() {
	{ cat "$gids"/* 2>/dev/null || true; } | grep -cvE '^(0000:){7}0000$|^fe80:' || true
}

# awaited WORDS waits until the shell words succeed: the kernel fills the GID table
# asynchronously.
awaited() {
	local i
	for ((i = 0; i < 300 * slow; i++)); do
		! eval "$1" 2>/dev/null || return 0
		sleep 0.1
	done
	fail "this has not become true in time: $1"
}
