#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Two machines on one cable, the software GPU's memory on both: every operation
# between VRAM, and memory of the system, of node a and those of node b, where
# vram-pair-server.sh serves them. Either side's NIC carries out each, and every
# byte is verified. Keys are exchanged by mutual TLS.
#
# testbed: machine=pair peer=vram-pair-server.sh kernels=7.2
set -euo pipefail
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/vram-pair-common.sh"

node=a
gpu_and_certificates 10.9.1.1
# A certificate that the server does not trust.
certificate stranger 10.9.1.1
told ready

connect() {
	bounded 180 dmabuf-reg connect "10.9.1.2:$1" --gpu "$2" --nic $device --policy direct --size 256KiB \
		--both --count 1 --sizes 65537 --tls-ca "$shared/b.pem" --tls-cert "$3.pem" --tls-key "$3.key"
}

# A client with that certificate gets no key, and the server serves on.
status=0
out=$(connect "$vram_port" host stranger 2>&1) || status=$?
[ $status -eq 1 ] && ! grep -qE '^(PASS|write|server:)' <<<"$out" && grep -q 'tls: .*certificate' <<<"$out" ||
	fail "a client with an untrusted certificate: status $status, $out"
echo "ok a client with an untrusted certificate is refused: $(grep "tls: " <<<"$out")"

# places PID prints where the client's own buffer is while it is registered, as the GPU's
# driver reports it.
places() {
	local line
	while kill -0 "$1" 2>/dev/null; do
		while read -r line; do
			if [[ $line =~ place=([a-z]+).*\ pins=[1-9] ]]; then
				echo "${BASH_REMATCH[1]}"
			fi
		done <"$buffers"
		sleep 0.1
	done | sort -u | paste -sd' '
}

declare -A kept=([vram]='asked for in VRAM' [system]='system memory')
for there in vram system; do
	for here in vram system; do
		port=${there}_port
		connect "${!port}" "drm:amdgpu/$here" a >out 2>&1 &
		pid=$!
		seen=$(places $pid)
		wait $pid || fail "$here to $there: $(cat out)"
		[ "$seen" = "$here" ] || fail "$here to $there: the buffer was in '$seen' while it was registered: $(cat out)"
		grep -q "^memory: .* drm:.*, ${kept[$here]}, 256 KiB$" out && grep -q '^path: *registered by ' out ||
			fail "$here to $there: not what was asked for: $(cat out)"
		# Each operation has passed once by this side's NIC, and once by the server's.
		awk -v want="write read send atomic" '
			$NF == "ok" && /registered\/registered/ { ok[$1 " " $2]++ }
			END {
				n = split(want, op, " ")
				for (i = 1; i <= n; i++)
					if (ok[op[i] " here"] != 1 || ok[op[i] " server"] != 1) exit 1
			}' out && grep -q '^PASS: 8 of 8' out ||
			fail "$here to $there: $(cat out)"
		grep ' ok$' out | sed "s/^/ok $here to $there: /"
	done
done

# And the operations that the two commands do not use: layouts, messages with data, writes
# with data, injected operations, several remote ranges in one operation; several operations
# at a time, by the NIC of either side.
for there in vram system; do
	for here in vram system; do
		tell "$here-$there"
		asks 10.9.1.1 "$here" || fail "a's $here to b's $there: $(cat out)"
		echo "ok a's $here to b's $there: $(grep -o '[0-9]* rounds: .*' out)"
		tell "$there-$here-back"
		answers 10.9.1.2 "$here" || fail "b's $there to a's $here: $(cat out)"
		echo "ok b's $there to a's $here: the same"
	done
done
tell done
told end
modprobe -r softgpu || fail "something still holds the GPU"
pass "VRAM of two machines on kernel $series, in $SECONDS seconds"
