// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/uverbs"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/placement"
)

// The kernel's newer way to register, by a descriptor or an address.
//
//testbed:kernel 7.2
func TestVMRegMR(t *testing.T) {
	tr := shared(t)
	const node, size = "/dev/infiniband/uverbs0", 64 << 10
	d, b := openUverbs(t, node), alloc(t, "drm:vgem", size)
	buf, offset := b.Segments()[0].Buf, uint64(0)
	with := func(m regMR) (mr uverbs.MR, err error) {
		doErr := buf.Do(func(fd int) error {
			n := int32(fd)
			m.fd = &n
			mr, err = d.regMR(t, node, m)
			return nil
		})
		if doErr != nil {
			t.Fatal(doErr)
		}
		return mr, err
	}

	mr, err := with(regMR{fdOffset: &offset, length: size, iova: 1 << 40})
	if err != nil {
		t.Fatal(err)
	}
	r := await(t, tr, "registered", onBuffer(inode(b), Registered)).Record
	if r.Call != RegMR || !r.ArgsKnown || r.IOVA != 1<<40 || r.Length != size || r.Access != accessAll || r.RDMADevice != "rxe0" ||
		r.Placement.Memory != placement.SystemMemory || r.MR == nil || r.MR.LKey != mr.LKey || r.MR.RKey != mr.RKey {
		t.Errorf("%+v", r)
	}

	// Reregistered in place the memory is the same, and no event.
	access := uint32(1)
	if _, err := d.ReregMR(mr.Handle, uverbs.Rereg{Access: &access}); err != reregInPlace(t) {
		t.Error(err)
	}
	if events := all(t, tr); len(events) != 0 {
		t.Errorf("reregistered: %v", events)
	}
	if err := d.DestroyMR(mr.Handle); err != nil {
		t.Fatal(err)
	}
	await(t, tr, "released", onBuffer(inode(b), Released))

	// What uverbs refuses by itself, before it looks at the descriptor.
	page := pageOfRAM(t)
	for _, row := range []struct {
		what  string
		mr    regMR
		stage Stage
		words []string
	}{
		{"another place in the page", regMR{fdOffset: &offset, length: size, iova: 8}, StageUverbs, []string{"differ in their place within a page"}},
		{"no offset", regMR{length: size}, StageDriver, []string{"or the checks before it"}},
		{"an address, too", regMR{fdOffset: &offset, addr: page, length: size, iova: 8}, StageDriver, []string{"or the checks before it"}},
		{"too long", regMR{fdOffset: &offset, length: 2 * size}, StageRange, []string{"does not fit the buffer"}},
	} {
		if _, err := with(row.mr); err != unix.EINVAL {
			t.Errorf("%s: %v", row.what, err)
		}
		e := await(t, tr, row.what, func(e Event) bool { return e.Kind == Refused })
		f := e.Record.Explain()
		if f.Stage != row.stage || f.Errno != unix.EINVAL {
			t.Errorf("%s: %+v", row.what, f)
		}
		mustHave(t, f.Detail, row.words...)
	}

	// Registrations of host memory are not reported, whether they succeed or fail.
	host, err := d.regMR(t, node, regMR{addr: page, iova: uint64(uintptr(page)), length: 64})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.DestroyMR(host.Handle); err != nil {
		t.Fatal(err)
	}
	if _, err := d.regMR(t, node, regMR{addr: page, length: 64, iova: 8}); err != unix.EINVAL {
		t.Errorf("host memory at another place in the page: %v", err)
	}
	if events := all(t, tr); len(events) != 0 {
		t.Errorf("host memory: %v", events)
	}
}

// reregInPlace is what changing the access of a dma-buf's MR gives: the rxe of 6.1 has no
// such operation, and from 7.3 on ib_core refuses it.
func reregInPlace(t testing.TB) error {
	if !testenv.AtLeast(t, "6.12") || testenv.AtLeast(t, "7.3") {
		return unix.EOPNOTSUPP
	}
	return nil
}

// An MR's access changes where it is: its record goes on.
func TestVMRereg(t *testing.T) {
	testenv.VM(t)
	tr := shared(t)
	d, b := openDevice(t), alloc(t, "drm:vgem", 64<<10)
	mr := d.register(t, b)
	r := await(t, tr, "registered", onBuffer(inode(b), Registered)).Record
	want := reregInPlace(t)
	access, none := uint32(1), ^uint32(0)
	if _, err := d.ReregMR(mr.Handle, uverbs.Rereg{Access: &access}); err != want {
		t.Errorf("reregistration: %v, want %v", err, want)
	}
	if _, err := d.ReregMR(mr.Handle, uverbs.Rereg{PD: &none}); err == nil {
		t.Error("moved to a PD that there is not")
	}
	if events := all(t, tr); len(events) != 0 {
		t.Errorf("reregistered: %v", events)
	}
	if live := only(t, tr, inode(b)); live == nil || live.ID != r.ID || live.Placement.Memory != placement.SystemMemory {
		t.Errorf("%v", live)
	}
	if err := d.DestroyMR(mr.Handle); err != nil {
		t.Fatal(err)
	}
	if e := await(t, tr, "released", onBuffer(inode(b), Released)); e.Record.ID != r.ID {
		t.Errorf("%v", e.Record)
	}
}

// Every dma-buf that is exported, where that is asked for.
func TestVMExports(t *testing.T) {
	c := mine()
	c.Exports = true
	tr := open(t, c)
	eachExporter(t, func(t *testing.T, x exporter) {
		b := alloc(t, x.spec, 64<<10)
		e := await(t, tr, "exported", onBuffer(inode(b), Exported))
		if r := e.Record; r.Buffer.Exporter != x.exp || r.Buffer.Driver != x.driver || r.Buffer.Size != 64<<10 || r.Registration() || r.PID != os.Getpid() || r.Comm == "" {
			t.Errorf("%+v: %+v", r, r.Buffer)
		}
	})
	if live := tr.Records(); len(live) != 0 {
		t.Errorf("%v", live)
	}
}
