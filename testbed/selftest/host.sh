#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The promises of the test bed that need no boot: setup.sh's answers, fetches and
# builds that were killed, and an installed command on a bare system.
#
#   testbed/selftest/host.sh
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/common.sh"

# setup.sh in a PATH of stubs. It decides by the output of go, dpkg-query and apt-get.
chmod 755 "$dir"
mkdir -p "$dir/checkout/testbed"
cp testbed/setup.sh testbed/archive.sh "$dir/checkout/testbed/"
stub() {
	mkdir -p "$dir/bin"
	printf '#!/bin/sh\n%s\n' "$2" >"$dir/bin/$1"
	chmod 755 "$dir/bin/$1"
}
with_stubs() { env -i PATH="$dir/bin:$dir/tools" "$@"; }
mkdir "$dir/tools"
for tool in sh id grep sed mktemp rm mkdir chmod cat env dirname touch; do ln -s "$(command -v $tool)" "$dir/tools/"; done

mkdir "$dir/bin"
expect 1 with_stubs sh "$dir/checkout/testbed/setup.sh"
said err 'Go is not installed' '1.21'
stub go 'echo go1.20.14'
expect 1 with_stubs sh "$dir/checkout/testbed/setup.sh"
said err 'go1.20.14 is too old'
stub go 'echo devel'
expect 1 with_stubs sh "$dir/checkout/testbed/setup.sh"
said err "printed 'devel'"
stub go 'case $1 in env) echo go1.21.0 ;; *) echo "$*" >>'"$dir"'/listed; while [ "$1" != -o ]; do shift; done; touch "$2" ;; esac'
expect 1 with_stubs sh "$dir/checkout/testbed/setup.sh"
said err 'not a Debian system'

# No package is missing: setup.sh prints nothing and installs nothing.
stub apt-get 'echo "unexpected: apt-get $*" >&2; exit 9'
stub dpkg-query 'shift 3; for p; do echo "ii  $p"; done'
expect 0 with_stubs sh "$dir/checkout/testbed/setup.sh"
[ ! -s "$dir/out" ] && [ ! -s "$dir/err" ] || fail "setup.sh prints something although no package is missing"
# It lists the packages, once.
expect 0 with_stubs sh "$dir/checkout/testbed/setup.sh"
grep -q "^run .* host -o $dir/checkout/build/host/base/.downloads.json -for host .* perftest" "$dir/listed" || fail "packages were listed like this: $(cat "$dir/listed")"
[ "$(grep -c . "$dir/listed")" -eq 1 ] || fail "packages were listed again although none has changed: $(cat "$dir/listed")"

# Two packages are missing, and the user is not root: setup.sh prints the exact command.
stub dpkg-query 'shift 3; for p; do case $p in make|perftest) ;; *) echo "ii  $p" ;; esac; done'
user=()
[ "$(id -u)" -ne 0 ] || user=(setpriv --reuid=65534 --regid=65534 --clear-groups)
expect 1 "${user[@]}" env -i PATH="$dir/bin:$dir/tools" sh "$dir/checkout/testbed/setup.sh"
[ "$(tail -n 1 "$dir/err")" = '  apt-get update && apt-get install --no-install-recommends make perftest' ] ||
	fail "setup.sh does not print the command that installs what is missing"

# The same as root, with package lists that are out of date.
stub id 'echo 0'
stub apt-get 'for a; do case $a in
	update) echo update >>'"$dir"'/apt; exit 0 ;;
	install) echo "install ${*##* }" >>'"$dir"'/apt; [ "$(grep -c install '"$dir"'/apt)" -gt 1 ]; exit ;;
	esac; done'
expect 0 with_stubs sh "$dir/checkout/testbed/setup.sh"
[ "$(cut -d' ' -f1 "$dir/apt" | tr '\n' ' ')" = 'install update install ' ] || fail "apt-get was run like this: $(cat "$dir/apt")"
grep -q 'perftest' "$dir/apt" || fail "what is missing was not installed"
tail -n 1 "$dir/listed" | grep -q ' host -o .* -debs /.* perftest' || fail "what was installed is not listed: $(cat "$dir/listed")"

# apt refuses an index for its age: setup.sh says what to do.
stub apt-get 'for a; do case $a in
	update) echo "E: Release file for http://mirror.example/InRelease is expired (invalid since 21d)." >&2; exit 100 ;;
	install) exit 100 ;;
	esac; done'
expect 1 with_stubs sh "$dir/checkout/testbed/setup.sh"
said err 'is expired' 'apt-get update failed: ' 'use another mirror'
: >"$dir/out"
echo "ok setup"

# killed PATTERN COMMAND... starts a command, and kills it and its children as
# soon as a file matches the pattern, as a power cut would. It fails if the
# command was not at work any more.
killed() {
	local pattern=$1 pid i
	shift
	setsid "$@" >"$dir/out" 2>"$dir/err" </dev/null &
	pid=$!
	for ((i = 0; i < 3000; i++)); do
		if compgen -G "$pattern" >/dev/null; then break; fi
		kill -0 $pid 2>/dev/null || fail "$* ended before it could be killed"
		sleep 0.02
	done
	kill -KILL -- -$pid
	wait $pid 2>/dev/null && fail "$* had ended when it was killed"
	return 0
}

# A fetch, with a build directory of its own. It takes over the packages that are
# downloaded already, all but a small one.
export GPURDMA_BUILD=$dir/build
mkdir -p "$GPURDMA_BUILD/dl"
cp -l build/dl/*6.1.* "$GPURDMA_BUILD/dl/" 2>/dev/null || cp build/dl/*6.1.* "$GPURDMA_BUILD/dl/" 2>/dev/null || true
rm -f "$GPURDMA_BUILD"/dl/linux-kbuild-*
killed "$GPURDMA_BUILD/dl/partial-*" "$testbed" fetch -kernel 6.1
[ ! -e "$GPURDMA_BUILD/kernels/6.1" ] || fail "a fetch that was killed while downloading left a kernel"
killed "$GPURDMA_BUILD/kernels/stage-6.1-*/image/*" "$testbed" fetch -kernel 6.1
[ ! -e "$GPURDMA_BUILD/kernels/6.1" ] || fail "a fetch that was killed while unpacking left a kernel"
run 0 fetch -kernel 6.1
[ "$(cat "$dir/out")" = "$(cat "$GPURDMA_BUILD/kernels/6.1/release")" ] || fail "fetch does not print the release"
if compgen -G "$GPURDMA_BUILD/kernels/stage-*" >/dev/null; then fail "a fetch that was killed left its stage"; fi
echo "ok killed fetch"

killed "$GPURDMA_BUILD/modules/6.1/.work.*/src/*" env BUILD="$GPURDMA_BUILD" kernel/build.sh 6.1
[ ! -e "$GPURDMA_BUILD/modules/6.1/inputs" ] || fail "a build that was killed counts as done"
expect 0 env BUILD="$GPURDMA_BUILD" kernel/build.sh 6.1
said out 'built rdma_rxe.ko'
expect 0 env BUILD="$GPURDMA_BUILD" kernel/build.sh 6.1
said out 'up to date'
if compgen -G "$GPURDMA_BUILD/modules/6.1/.work.*" >/dev/null; then fail "a build that was killed left its files"; fi
unset GPURDMA_BUILD
echo "ok killed build"

# make demo without the newest kernels: they cannot be had (77), or the fetch fails (1). And
# with a kernel that the user asks for.
mkdir "$dir/demo"
printf '#!/bin/sh\n[ "$1" = build ] || exec %s "$@"\n' "$(command -v go)" >"$dir/demo/go" # nothing is built anew
cat >"$dir/demo/testbed" <<'STUB'
#!/bin/sh
case "$1 $3" in
"fetch 7."*) echo "the reason" >&2; exit "$UNAVAILABLE" ;;
fetch*) exit 0 ;;
esac
echo "$1 on $3"
STUB
chmod 755 "$dir/demo/go" "$dir/demo/testbed"
demo() { env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL -u KERNEL PATH="$dir/demo:$PATH" UNAVAILABLE="$1" make -s demo TESTBED="$dir/demo/testbed" "${@:2}"; }
for status in 77 1; do
	expect 0 demo $status
	said out 'run on 6.12'
	said err 'the reason' 'kernel 7.3 cannot be had here' 'kernel 7.2 cannot be had here'
done
expect 2 demo 77 KERNEL=7.3
said err 'the reason' 'kernel 7.3 cannot be had here'
if grep -q 'run on' "$dir/out"; then fail "make demo KERNEL=7.3 ran on another kernel"; fi
echo "ok demo without the newest kernel"

# The installed commands, on a system that has the C library and nothing else.
root=$dir/root
expect 0 env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make -s install DESTDIR="$root" PREFIX=/usr
for bin in "$root"/usr/bin/*; do
	for lib in $(ldd "$bin" | grep -o '/[^ ]*'); do
		case $lib in *ibverbs* | *nvidia*) fail "$bin is linked to $lib" ;; esac
		mkdir -p "$root$(dirname "$lib")"
		cp -L "$lib" "$root$lib"
	done
	name=$(basename "$bin")
	enter=("$(command -v chroot)" "$root")
	[ "$(id -u)" -eq 0 ] || enter=("$(command -v unshare)" --map-root-user "${enter[@]}")
	expect 0 env -i "${enter[@]}" "/usr/bin/$name" --version
	said out "$name"
	# Without libibverbs, /sys or /dev there is nothing to list: the command
	# says so, and does not crash.
	status=0
	env -i "${enter[@]}" "/usr/bin/$name" devices >"$dir/out" 2>"$dir/err" || status=$?
	[ $status -le 2 ] || fail "$name devices on a bare system: status $status"
	if grep -E '^(panic|fatal error|goroutine )|while loading shared' "$dir/err"; then fail "$name devices on a bare system crashed"; fi
done
[ -n "${name-}" ] || fail "nothing was installed"
echo "ok installed commands on a bare system"
