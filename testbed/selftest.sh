#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# What the test bed promises, tried on a real kernel: streams, exit statuses,
# faults, hangs, interrupts, go test -exec. Runs on the host:
#
#   testbed/selftest.sh [SERIES]
set -euo pipefail
cd "$(dirname "$0")/.."
export GPURDMA_KERNEL=${1:-6.12}
testbed=$PWD/build/bin/testbed
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

fail() {
	echo "FAIL: $*" >&2
	echo "-- stdout" >&2
	tail -n 5 "$dir/out" >&2
	echo "-- stderr" >&2
	tail -n 20 "$dir/err" >&2
	exit 1
}

# run STATUS ARGUMENT... runs testbed and compares its exit status.
run() {
	local want=$1 status=0
	shift
	"$testbed" "$@" >"$dir/out" 2>"$dir/err" </dev/null || status=$?
	[ $status -eq "$want" ] || fail "testbed $*: status $status, want $want"
}

# The guest is what it should be, and nothing but the command writes.
run 7 run -- bash -c 'uname -r; cat /sys/class/net/dummy0/mtu; echo "  to  stderr" >&2; exit 7'
[ "$(cat "$dir/out")" = "$(cat "build/kernels/$GPURDMA_KERNEL/release")"$'\n4200' ] || fail "wrong standard output"
[ "$(cat "$dir/err")" = '  to  stderr' ] || fail "wrong standard error"
echo "ok streams and status"

run 0 run -- bash -c 'cat "$0" | head -c 20000000 | tee >(sha256sum >&2) ; sleep 0.2' "build/kernels/$GPURDMA_KERNEL/source.tar.xz"
[ "$(stat -c %s "$dir/out")" -eq 20000000 ] || fail "$(stat -c %s "$dir/out") bytes, want 20000000"
[ "$(sha256sum <"$dir/out")" = "$(cat "$dir/err")" ] || fail "the output changed on its way"
head -c 3000000 "$dir/out" >"$dir/in"
[ "$("$testbed" run -stdin -- sha256sum <"$dir/in")" = "$(sha256sum <"$dir/in")" ] || fail "standard input changed on its way"
echo "ok large streams"

run 127 run -- /nonexistent
run 137 run -- bash -c 'kill -9 $$'
run 0 run -results "$dir/results" -- bash -c 'modprobe veth && echo kept >"$GPURDMA_RESULTS/f" && touch /write-is-dropped'
[ "$(cat "$dir/results/f")" = kept ] || fail "results were lost"
[ ! -e /write-is-dropped ] || fail "the guest wrote to the host's root"
echo "ok files and modules"

# Faults are found whatever the command's status.
run 121 run -- bash -c 'echo before; echo c >/proc/sysrq-trigger; sleep 100'
grep -q 'sysrq triggered crash' "$dir/err" || fail "the report lacks the panic"
run 121 run -- bash -c 'echo "WARNING: CPU: 0 PID: 1 at made/up.c:1 f+0x0/0x1" >/dev/kmsg; sleep 0.5'
run 0 run -allow 'made/up' -- bash -c 'echo "WARNING: CPU: 0 PID: 1 at made/up.c:1 f+0x0/0x1" >/dev/kmsg; sleep 0.5'
echo "ok kernel faults"

run 124 run -timeout 5s -- sleep 1000
grep -q 'did not end within 5s' "$dir/err" || fail "the watchdog does not say what it did"
log=$(sed -n 's/^whole log: //p' "$dir/err")
[ -s "$log" ] || fail "no log is left: '$log'"
echo "ok watchdog"

"$testbed" run -- sleep 1000 >"$dir/out" 2>"$dir/err" &
pid=$!
for ((i = 0; i < 600; i++)); do
	machine=$(pgrep -P $pid || true)
	[ -z "$machine" ] || break
	sleep 0.1
done
kill -INT $pid
status=0
wait $pid || status=$?
[ $status -eq 130 ] || fail "interrupted: status $status, want 130"
[ -n "$machine" ] && [ ! -d "/proc/$machine" ] || fail "the machine '$machine' outlived its run"
echo "ok interrupt"

# go test, with the profile brought back.
mkdir "$dir/pkg"
cat >"$dir/pkg/go.mod" <<-END
	module selftest
	go 1.26
END
cat >"$dir/pkg/x.go" <<-END
	package x
	func F() int { return 1 }
END
cat >"$dir/pkg/x_test.go" <<-END
	package x
	import ("os"; "testing")
	func TestF(t *testing.T) { if F() != 1 || os.Getenv("GPURDMA_TESTBED") != "1" { t.Fatal() } }
	func TestFails(t *testing.T) { t.Fatal("on purpose") }
END
cat >"$dir/exec" <<-END
	#!/bin/sh
	cd "$PWD" && exec "$testbed" exec -dir "$dir/pkg" "\$@"
END
chmod +x "$dir/exec"
(cd "$dir/pkg" && go test -exec "$dir/exec" -run TestF$ -json -coverprofile="$dir/cover" .) >"$dir/out" 2>"$dir/err" || fail "go test -exec"
grep -q '"Action":"pass".*"Test":"TestF"' "$dir/out" || fail "no passing TestF"
grep -q 'x.go:.* 1 1$' "$dir/cover" || fail "no coverage came back"
! (cd "$dir/pkg" && go test -exec "$dir/exec" .) >"$dir/out" 2>"$dir/err" || fail "go test -exec hides a failure"
grep -q 'on purpose' "$dir/out" || fail "no output of the failing test"
echo "ok go test -exec"
