#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The promises of the test bed that do not depend on the kernel, so that one is
# enough: large streams, statuses, faults meant to happen, hangs, interrupts,
# go test -exec, make vm.
#
#   testbed/selftest/once.sh SERIES
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/common.sh"
export GPURDMA_KERNEL=${1:?usage: once.sh SERIES}
tally "$1" once

# The bytes of standard input come out unchanged, and a second stream does not disturb
# them. A fault that -allow names is not reported; the machine's death is.
head -c 20000000 "build/kernels/$GPURDMA_KERNEL/source.tar.xz" >"$dir/in"
boots=$((boots + 1))
status=0
"$testbed" run -stdin -allow 'made/up' -- bash -c 'echo "WARNING: CPU: 0 PID: 1 at made/up.c:1 f+0x0/0x1" >/dev/kmsg; sleep 0.5
	tee >(sha256sum >/tmp/sum); until [ -s /tmp/sum ]; do sleep 0.1; done; cat /tmp/sum >&2; sleep 2; echo c >/proc/sysrq-trigger; sleep 100' <"$dir/in" >"$dir/out" 2>"$dir/err" || status=$?
[ $status -eq 121 ] || fail "a machine that died: status $status, want 121"
cmp "$dir/in" "$dir/out" || fail "the output changed on its way"
: >"$dir/out"
[ "$(sha256sum <"$dir/in")" = "$(unreported)" ] || fail "standard input changed on its way"
said err 'Kernel panic - not syncing: sysrq triggered crash'
if grep -q 'made/up' "$dir/err"; then fail "a fault that is meant to happen was reported"; fi
ok large streams, provoked faults, a panic

# If init of an emulated kernel does not report, no code of ours has run: the test bed
# starts a second machine, and no third.
boots=$((boots + 1))
GPURDMA_ACCEL=tcg run 121 run -kernel-arg rdinit=/no/such -- true
said err 'init did not report, trying once more' 'Kernel panic - not syncing: VFS: Unable to mount root fs'
[ "$(grep -c 'trying once more' "$dir/err")" = 1 ] || fail "not exactly two tries"
ok a kernel without init

# As a user types it, not as a recipe of the make that may have called this script.
boots=$((boots + 1))
expect 137 env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make vm KERNEL="$GPURDMA_KERNEL" \
	CMD='echo "it'\''s \$HOME: $HOME"; echo "to stderr" >&2; kill -9 $$'
[ "$(cat "$dir/out")" = "it's \$HOME: /root" ] || fail "make vm: standard output is not the command's"
said err 'to stderr'
if grep '^make.*Error' "$dir/err"; then fail "make vm: make reports the command's status as its own error"; fi
ok make vm

run 124 run -timeout 5s -- sleep 1000
said err 'did not end within 5s'
log=$(sed -n 's/^whole log: //p' "$dir/err")
[ -s "$log" ] || fail "no log is left: '$log'"
ok watchdog

boots=$((boots + 1))
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
ok interrupt

# go test -exec brings the profile back, and does not hide a failure.
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
	func TestDeselected(t *testing.T) {}
END
cat >"$dir/exec" <<-END
	#!/bin/sh
	cd "$PWD" && exec "$testbed" exec -dir "$dir/pkg" "\$@"
END
chmod +x "$dir/exec"
in_pkg() { (cd "$dir/pkg" && "$@"); }
boots=$((boots + 1))
expect 1 in_pkg go test -exec "$dir/exec" -run 'TestF$|TestFails' -json -coverprofile="$dir/cover" .
grep -q '"Action":"pass".*"Test":"TestF"' "$dir/out" || fail "no passing TestF"
grep -q '"Action":"fail".*"Test":"TestFails"' "$dir/out" || fail "no failing TestFails"
said out 'on purpose'
if grep -q TestDeselected "$dir/out"; then fail "-run was lost"; fi
grep -q 'x.go:.* 1 1$' "$dir/cover" || fail "no coverage came back"
ok go test -exec
