// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/check/libcheck"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// No text in the files of a copy makes a check read a file outside of the copy.
func TestNamesStayInTheCopy(t *testing.T) {
	m := machine.Open(testenv.Machines["small-hgx"]().Write(t))
	for _, name := range []string{"../../etc/passwd", "/../etc/passwd", "sys/../../../etc", "sys/class/net/../../../../../etc/mtu", "proc/../..", "usr/../../x"} {
		file, where, anchor := m.Locate(name)
		for _, f := range []string{file, anchor} {
			if rel, err := filepath.Rel(m.Root, f); err != nil || !filepath.IsLocal(rel) {
				t.Errorf("%q: %q is not below %q", name, f, m.Root)
			}
		}
		if strings.Contains(where, "..") {
			t.Errorf("%q: %q", name, where)
		}
	}
}

// A copy without the links that lead to a NIC's function has its driver all the same.
func TestDriverWithoutFunction(t *testing.T) {
	for driver, id := range map[string]string{"mlx5_core": "NIC-DATADIRECT", "efa": "NIC-EFA-GEN"} {
		tree := testenv.Machines["small-hgx"]()
		m := machine.Open(tree.Write(t))
		dir := filepath.Join(m.Root, "sys/class/infiniband/odd0")
		testenv.WriteFile(t, filepath.Join(dir, "node_type"), "1: CA\n")
		testenv.WriteFile(t, filepath.Join(dir, "ports/1/state"), "4: ACTIVE\n")
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, "device"), 0o700), os.Symlink("../../../../bus/pci/drivers/"+driver, filepath.Join(dir, "device/driver"))); err != nil {
			t.Fatal(err)
		}
		s := subject(m)
		if !slices.ContainsFunc(s.NICs, func(n drivers.NIC) bool { return n.Name == "odd0" && n.Importer.Driver == driver }) {
			t.Fatalf("%s: %+v", driver, s.NICs)
		}
		found := slices.DeleteFunc(Run(m, s), func(f check.Finding) bool { return f.Check.ID != id || !slices.Equal(f.Scope, []string{"odd0"}) })
		if worst(found) != unknown {
			t.Errorf("%s: %v", driver, said(found))
		}
	}
}

// Limits that are used up come in a fixed order.
func TestLimitsInOrder(t *testing.T) {
	const group = "sys/fs/cgroup/user.slice/"
	for range 20 {
		found := checked(t, testenv.Machines["small-mi300"](), check.Live{}, "LIM-RDMA-CG",
			put(group+"rdma.max", "a hca_handle=1 hca_object=2\nb hca_handle=3"), put(group+"rdma.current", "a hca_handle=1 hca_object=2\nb hca_handle=3"))
		var got []string
		for _, f := range found {
			got = append(got, f.Read)
		}
		if want := []string{"a hca_handle: 1 of 1", "a hca_object: 2 of 2", "b hca_handle: 3 of 3"}; !slices.Equal(got, want) {
			t.Fatalf("%q", got)
		}
	}
}

// A program can let the kernel show as much of its memory as it likes.
func TestEndlessEnvironment(t *testing.T) {
	if text := strings.Repeat("A=1\x00", 100); !libcheck.AsAtExec(text) {
		t.Error("an ordinary one")
	}
	if libcheck.AsAtExec(strings.Repeat("A=1\x00", machine.ReadLimit/4)) {
		t.Error("one that was cut")
	}
}
