// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"os/exec"
	"strings"
	"testing"
)

// The interface below rxe0 of the default machine, and its address.
const (
	link        = "dummy0"
	linkAddress = "10.9.0.1/24"
)

// LinkDown takes the link below rxe0 of the default machine down. up brings it
// back, and is called when the test is over, too.
func LinkDown(t testing.TB) (up func()) {
	t.Helper()
	ip := func(line string) {
		t.Helper()
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", line, err, out)
		}
	}
	up = func() {
		t.Helper()
		ip("link set " + link + " up")
		// On some kernels the address goes with the link's state.
		ip("address replace " + linkAddress + " dev " + link)
	}
	t.Cleanup(up)
	ip("link set " + link + " down")
	return up
}
