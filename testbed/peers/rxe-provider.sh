#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# testbed: processors=1
#
# Plain ibv_reg_dmabuf_mr() through the patched rxe provider, where
# `make rxe-provider` has built one: its results are those of the ioctl, and the
# kernel's self-test passes through it. Runs in the guest.
set -euo pipefail
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/shapes.sh"

top=$(cd "$(dirname "$0")/../.." && pwd)
shopt -s nullglob
built=("$top"/build/rxe-provider/*/lib/libibverbs)
if [ ${#built[@]} -eq 0 ]; then
	echo "SKIP: no provider is built: make rxe-provider builds one where the source can be had"
	exit 77
fi

# comparable RESULT prints the result without the route into the kernel and without
# the keys: the other fields must not depend on the route.
comparable() {
	sed -E 's/"route":"[a-z]*"/"route"/; s/"(lkey|rkey)":[0-9]+/"\1"/g' <<<"$1"
}

# A refusal is a result too, so a failure's exit status does not count here.
verify() {
	bounded 180 "$dir/bin/dmabuf-mr" verify --route "$@" || true
}

for provider in "${built[@]}"; do
	dir=$(cd "$provider/../.." && pwd)
	export LD_LIBRARY_PATH=$dir/lib
	echo "== rdma-core $(cat "$dir/version")"

	while read -r shape; do
		# shellcheck disable=SC2086 # options
		a=$(verify provider $shape) b=$(verify ioctl $shape)
		[[ $a == *'"ok":true'*'"route":"provider"'* ]] || fail "provider: $shape: $a"
		[ "$(comparable "$a")" = "$(comparable "$b")" ] ||
			fail "$shape: the provider gives $a, the ioctl $b"
		echo "ok $shape"
	done < <(shapes)

	# The provider and the ioctl refuse these ranges with the same error.
	for shape in "--length 2m" "--offset 1m --length 1" "--length 0" \
		"--offset 8 --length 8 --iova 0x1000" "--access rw" "--access 0x40000" \
		"--iova 0xfffffffffffff000"; do
		# shellcheck disable=SC2086 # options
		a=$(verify provider $shape) b=$(verify ioctl $shape)
		[[ $a == *'"stage":"register","errno":"EINVAL"'* ]] || fail "provider: $shape: $a"
		[ "$(comparable "$a")" = "$(comparable "$b")" ] ||
			fail "$shape: the provider gives $a, the ioctl $b"
		echo "ok refused: $shape"
	done

	for exporter in $(exporters); do
		out=$(bounded 120 "$dir/bin/dmabuf-mr" selftest --route provider --exporter "$exporter") ||
			fail "self-test through the provider on $exporter: $out"
		# This libibverbs can post FLUSH, so that only rereg-in-place may be absent.
		[[ ! $series =~ ^(6\.12|7\.2)$ ]] || ! grep '^absent' <<<"$out" | grep -v '^absent rereg-in-place:' ||
			fail "self-test through the provider on $exporter has absent tests"
		echo "ok self-test on $exporter: $(tail -n 1 <<<"$out")"
	done
done
pass "ibv_reg_dmabuf_mr on kernel $series"
