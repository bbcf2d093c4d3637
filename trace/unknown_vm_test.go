// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"bytes"
	"os"
	"slices"
	"testing"

	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/placement"
	"github.com/gpurdma/gpurdma/trace/internal/loader"
)

// kernelWithout are the kernel's types, with other names for those that it shall
// not have.
func kernelWithout(t *testing.T, names ...string) *btf.Spec {
	t.Helper()
	raw, err := os.ReadFile("/sys/kernel/btf/vmlinux")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		old := append(append([]byte{0}, name...), 0)
		if n := bytes.Count(raw, old); n != 1 {
			t.Fatalf("the name %s is %d times among the kernel's types", name, n)
		}
		raw = bytes.Replace(raw, old, append(append([]byte{0}, bytes.Repeat([]byte{'_'}, len(name))...), 0), 1)
	}
	s, err := btf.LoadSpecFromReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Where the RDMA modules have no type information, the tracer looks for their types in the
// kernel's, and it also works with a kernel that has fewer of them than Debian's. Hooks names the
// facts that stay hidden, and Prove answers Unknown for a key that needs them. The verdict on
// where the bytes are needs no type of a module.
func TestVMUnknownTypes(t *testing.T) {
	testenv.VM(t)
	const keys, device = "keys are not seen", "names of devices are not seen"
	for _, row := range []struct {
		missing []string
		hides   []string
	}{
		{[]string{"ib_device"}, []string{device}},
		{[]string{"ib_mr"}, []string{keys}},
		{[]string{"ib_mr", "ib_device", "rdma_restrack_entry", "ib_pd", "ib_device_ops"}, []string{keys, device}},
	} {
		name := row.missing[0]
		if len(row.missing) > 1 {
			name = "all"
		}
		t.Run(name, func(t *testing.T) {
			c := mine()
			c.tests.RDMAWithoutBTF, c.tests.KernelTypes = true, kernelWithout(t, row.missing...)
			tr := open(t, c)
			noKeys, noDevice := slices.Contains(row.hides, keys), slices.Contains(row.hides, device)
			d, b := openDevice(t), alloc(t, "drm:vgem", 1<<20)
			mr := d.register(t, b)
			r := await(t, tr, "registered", onBuffer(inode(b), Registered)).Record
			if (r.MR == nil) != noKeys || !noKeys && r.MR.LKey != mr.LKey || r.Placement.Memory != placement.SystemMemory {
				t.Errorf("%+v", r)
			}
			// The rxe of 6.1 does not call the core's helper.
			if want := testenv.AtLeast(t, "6.12") || !noKeys; (r.RDMADevice == "rxe0") != (want && !noDevice) {
				t.Errorf("on %q", r.RDMADevice)
			}
			for _, q := range []struct {
				what   string
				key    placement.Key
				hidden bool
				why    string
			}{
				{"inode", placement.Key{Inode: inode(b)}, false, ""},
				{"lkey", placement.Key{LKey: mr.LKey}, noKeys, keys},
				{"rkey and inode", placement.Key{RKey: mr.RKey, Inode: inode(b)}, noKeys, keys},
				{"device", placement.Key{Inode: inode(b), Device: "rxe0"}, noDevice, device},
			} {
				if q.what == "device" && r.RDMADevice == "" && !noDevice {
					continue
				}
				p, err := tr.Prove(within(t), q.key)
				if err != nil || q.hidden != (p.Memory == placement.Unknown) || !q.hidden && p.Memory != placement.SystemMemory {
					t.Errorf("by %s: %v, %v", q.what, p, err)
				}
				if q.hidden {
					mustHave(t, p.Reason, q.why, "type information of struct ")
				}
			}
			told := false
			for _, h := range tr.Hooks() {
				told = told || h.Function == loader.Restrack && !h.Attached() && h.What == "keys of MRs"
			}
			if told != noKeys {
				t.Errorf("that keys are not seen is said: %v", told)
			}
			if err := d.DestroyMR(mr.Handle); err != nil {
				t.Fatal(err)
			}
			if e := await(t, tr, "released", onBuffer(inode(b), Released)).Record; e.Ended != "deregistered" {
				t.Errorf("%+v", e)
			}
			if _, err := d.try(b, 0, 2<<20); err != unix.EINVAL {
				t.Fatalf("a range beyond the end: %v", err)
			}
			if r := await(t, tr, "refused", func(e Event) bool { return e.Kind == Refused }).Record; r.Explain().Errno != unix.EINVAL {
				t.Errorf("%+v", r)
			}
			if l := tr.Loss(); l.Any() {
				t.Error(l)
			}
		})
	}
}
