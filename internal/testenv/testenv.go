// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/fd"
)

// InVM reports whether the test runs in the project's testbed.
func InVM() bool { return os.Getenv("GPURDMA_TESTBED") != "" }

// VM skips the test outside the testbed, where the devices it needs are not
// promised.
func VM(t testing.TB) {
	t.Helper()
	if !InVM() {
		t.Skip("needs the testbed's kernel and devices: run `make vm-test`")
	}
}

// Kernel returns the running kernel's version as major, minor.
func Kernel(t testing.TB) (major, minor int) {
	t.Helper()
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatalf("uname: %v", err)
	}
	release := unix.ByteSliceToString(u.Release[:])
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		t.Fatalf("kernel release %q: %v", release, err)
	}
	return major, minor
}

// AtLeast reports whether the running kernel is at least version, "6.12".
func AtLeast(t testing.TB, version string) bool {
	t.Helper()
	var wantMajor, wantMinor int
	if _, err := fmt.Sscanf(version, "%d.%d", &wantMajor, &wantMinor); err != nil {
		t.Fatalf("version %q: %v", version, err)
	}
	major, minor := Kernel(t)
	return major > wantMajor || major == wantMajor && minor >= wantMinor
}

// Need runs probe, which says whether a feature is there. A feature that the
// testbed's kernels have since the Debian series since ("6.12") and that is
// missing there is a failure; below it, outside the testbed, or where the kernels of
// this architecture lack it, a skip.
func Need(t testing.TB, feature, since string, probe func() error) {
	t.Helper()
	VM(t)
	err := probe()
	if err == nil {
		return
	}
	if Lacks(feature) {
		t.Skipf("%s: Debian's kernels of %s with pages of %d bytes have none: %v", feature, runtime.GOARCH, os.Getpagesize(), err)
	}
	if AtLeast(t, since) {
		t.Fatalf("%s is missing on a kernel that has it (testbed series %s on): %v", feature, since, err)
	}
	t.Skipf("%s: the testbed's kernels have it from series %s on: %v", feature, since, err)
}

// Node is a probe for Need: the device node exists.
func Node(path string) func() error {
	return func() error {
		_, err := os.Stat(path)
		return err
	}
}

// headersVar is set where C headers are promised: `make test` installs them.
const headersVar = "GPURDMA_NEED_HEADERS"

// NoHeaders ends a test that has no C headers, or no compiler, to compare with:
// a failure where they are promised, else a skip. pkg is the Debian package
// that they come in.
func NoHeaders(t testing.TB, pkg, why string) {
	t.Helper()
	if os.Getenv(headersVar) != "" {
		t.Fatalf("%s (apt-get install gcc %s); %s says that they are there", why, pkg, headersVar)
	}
	t.Skipf("%s (apt-get install gcc %s)", why, pkg)
}

// Main runs a package's tests and fails them if they leak a descriptor.
func Main(m *testing.M) {
	fd.Track()
	code := m.Run()
	if leaks := fd.Leaks(); len(leaks) > 0 && code == 0 {
		fmt.Fprintf(os.Stderr, "%d leaked file descriptors:\n%s\n", len(leaks), strings.Join(leaks, "\n"))
		code = 99
	}
	os.Exit(code)
}
