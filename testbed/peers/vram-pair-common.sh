# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Functions of both sides of vram-pair.sh, which source this file after common.sh, and
# set $node before they call gpu_and_certificates.

vram_port=7471
system_port=7472
test_port=7473

# Both nodes see this directory.
shared=${GPURDMA_RESULTS:?}/vram-pair

# tell EVENT signals the event to the other node; told EVENT waits for the other node's signal.
tell() {
	touch "$shared/$1"
}

told() {
	local i
	for ((i = 0; i < 9000 * slow; i++)); do # longer than one client may take
		[ ! -e "$shared/$1" ] || return 0
		sleep 0.1
	done
	fail "the other machine has not signalled '$1'"
}

# asks ADDRESS KIND listens there, with memory of that kind, and carries out random
# operations on the memory of the node that connects. The file out counts the operations:
# it must have done some of each kind.
asks() {
	local counts kind
	GPURDMA_TEST_LISTEN=$1:$test_port GPURDMA_TEST_KIND=$2 \
		bounded 120 two-machines.test -test.run '^TestTwoMachines$' -test.v >out 2>&1 &&
		grep -q -- "--- PASS: TestTwoMachines/$2" out || return
	counts=$(grep -o '[0-9]* rounds: map.*' out) || return
	for kind in read write 'write with data' 'inject of a buffer' inject 'inject with data' \
		send 'send with data' 'send injected' 'fetch and add' 'compare and swap' 'the CPU'; do
		grep -q "[[ ]$kind:[1-9]" <<<"$counts" || {
			echo "FAIL: '$kind' was never done" >>out
			return 1
		}
	done
}

# answers ADDRESS KIND connects to asks on the other node, with memory of that kind.
answers() {
	GPURDMA_TEST_PEER=$1:$test_port GPURDMA_TEST_KIND=$2 GPURDMA_TEST_NIC=$device \
		bounded 120 two-machines.test -test.run '^TestPeerProcess$' -test.v >out 2>&1
}

# certificate NAME ADDRESS makes NAME.pem, which is its own authority, and
# NAME.key.
certificate() {
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=$1" \
		-addext "subjectAltName=IP:$2" -addext 'extendedKeyUsage=serverAuth,clientAuth' \
		-keyout "$1.key" -out "$1.pem" 2>/dev/null || fail "openssl does not make a certificate"
}

# gpu_and_certificates ADDRESS loads the GPU's driver, and exchanges certificates
# with the other node: each node trusts the other's certificate and no third one.
gpu_and_certificates() {
	local other=a
	[ "$node" = b ] || other=b
	need openssl openssl
	command -v two-machines.test >/dev/null || fail "two-machines.test is missing; build it: make two-machines"
	modprobe softgpu personality=amdgpu pin_rule=vram || fail "softgpu is missing; build it: make softgpu KERNEL=$series"
	buffers=$(echo /sys/kernel/debug/softgpu/*/buffers)
	mkdir -p "$shared"
	cd "$(mktemp -d)"
	certificate "$node" "$1"
	cp "$node.pem" "$shared/.$node"
	mv "$shared/.$node" "$shared/$node.pem"
	told "$other.pem"
}
