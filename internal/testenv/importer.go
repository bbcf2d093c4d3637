// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// SetImporter chooses how an RDMA device of the patched rxe imports dma-bufs
// from now on: "pinned", "revocable" or "dynamic". It is put back when the test
// is over.
func SetImporter(t testing.TB, nic, kind string) {
	t.Helper()
	path := filepath.Join("/sys/class/infiniband", nic, "importer")
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	set := func(v string) {
		if err := os.WriteFile(path, []byte(v), 0); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	set(kind)
	t.Cleanup(func() { set(strings.TrimSpace(string(old))) })
}
