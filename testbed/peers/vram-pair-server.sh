# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# The other side of vram-pair.sh, on node b: VRAM on one port, memory of the
# system on another.
set -euo pipefail
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/vram-pair-common.sh"

node=b
gpu_and_certificates 10.9.1.2

# serve PLACE PORT starts a server, and leaves its pid in $pid.
serve() {
	dmabuf-reg serve --gpu "drm:amdgpu/$1" --nic $device --policy direct --size 256KiB \
		--listen "10.9.1.2:$2" --tls-ca "$shared/a.pem" --tls-cert b.pem --tls-key b.key >"$1" 2>"$1.err" &
	pid=$!
	port=$2
	listening $pid || fail "serve $1: $(cat "$1" "$1.err")"
}

serve vram $vram_port
vram=$pid
grep -q 'place=vram .* pins=[1-9]' "$buffers" || fail "the buffer that serve has registered is not in VRAM: $(cat "$buffers")"
serve system $system_port
system=$pid
tell ready

for there in vram system; do
	for here in vram system; do
		told "$here-$there"
		answers 10.9.1.1 "$there" || fail "a's $here to b's $there: $(cat out)"
		told "$there-$here-back"
		asks 10.9.1.2 "$there" || fail "b's $there to a's $here: $(cat out)"
	done
done
told done

for place in vram system; do
	kill "${!place}"
	status=0
	wait "${!place}" || status=$?
	[ $status -eq 130 ] && [ "$(grep -c 'is done' "$place.err")" = 2 ] ||
		fail "serve $place: status $status, $(cat "$place.err")"
done
modprobe -r softgpu || fail "something still holds the GPU"
tell end
