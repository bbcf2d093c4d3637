// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/uverbs"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/placement"
)

// testNIC is kernel/testnic on a function: an RDMA device that takes dma-bufs for its
// queues and counters, and exports its BAR.
func testNIC(t *testing.T, function string) (d device, node string) {
	t.Helper()
	if out, err := exec.Command("modprobe", "testnic").CombinedOutput(); err != nil {
		t.Fatalf("modprobe testnic (make vm-build builds it): %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("modprobe", "-r", "testnic").CombinedOutput(); err != nil {
			t.Errorf("modprobe -r testnic: %v: %s", err, out)
		}
	})
	driveBy(t, "testnic", function)
	nodes, _ := filepath.Glob("/sys/class/infiniband/testnic0/device/infiniband_verbs/uverbs*")
	if len(nodes) != 1 {
		t.Fatalf("testnic0 has %v", nodes)
	}
	node = "/dev/infiniband/" + filepath.Base(nodes[0])
	return openUverbs(t, node), node
}

// usesOf are the records on a buffer, oldest first.
func usesOf(t *testing.T, tr *Tracer, ino uint64) []Record {
	t.Helper()
	if err := tr.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(tr.Records(), func(r Record) bool { return r.Buffer == nil || r.Buffer.Inode != ino })
}

// notAnMR checks an attachment of the test NIC's that no registration made.
func notAnMR(t *testing.T, r Record, want Use, nic string) {
	t.Helper()
	t.Log(&r)
	if r.Use != want || r.Registration() || r.Call != Attachment || r.MR != nil {
		t.Errorf("use %q, want %q; call %s, MR %+v", r.Use, want, r.Call, r.MR)
	}
	if r.RDMADevice != "testnic0" || r.Importer == nil || r.Importer.PCI != nic || r.Importer.Mode != ModePinned {
		t.Errorf("on %q, importer %+v", r.RDMADevice, r.Importer)
	}
	mustHave(t, r.String(), "attach for ", want.Words())
}

// Buffers of CQs and QPs and completion counters that the RDMA core of 7.3 attaches are
// named, and are no MRs: Prove for an MR on the same buffer does not answer with their
// placement.
//
//testbed:machine fabric+EPYC
//testbed:kernel 7.3
func TestVMUses(t *testing.T) {
	testenv.VM(t)
	nic := pciOf(t, "gpu0")
	d, node := testNIC(t, nic)
	tr := open(t, mine())
	const size = 16 << 10
	b := alloc(t, "udmabuf", size)
	ino := inode(b)
	err := b.Segments()[0].Buf.Do(func(fd int) error {
		return makeUses(t, tr, d, node, nic, ino, fd)
	})
	if err != nil {
		t.Fatal(err)
	}

	// The MR is answered for, its own placement and no other.
	mr := d.register(t, b)
	p, err := tr.Prove(within(t), placement.Key{Inode: ino})
	if err != nil || p.Memory != placement.SystemMemory {
		t.Errorf("the MR: %v, %v", p, err)
	}
	list := usesOf(t, tr, ino)
	last := list[len(list)-1]
	if !last.Registration() || last.Use != UseMR || last.MR == nil || last.MR.LKey != mr.LKey {
		t.Errorf("the MR: %v", &last)
	}

	// All end with their device's file.
	d.Close()
	if left := usesOf(t, tr, ino); len(left) != 0 {
		t.Errorf("closed, and %d live: %v", len(left), &left[0])
	}
	var ended int
	for _, e := range tr.Pending() {
		if onBuffer(ino, Released)(e) {
			ended++
		}
	}
	if ended != len(list) {
		t.Errorf("%d of %d were released", ended, len(list))
	}
}

// makeUses attaches a buffer for everything but an MR.
func makeUses(t *testing.T, tr *Tracer, d device, node, nic string, ino uint64, fd int) error {
	t.Helper()
	page := uint64(unix.Getpagesize())
	seen := 0
	check := func(want Use, n int) {
		t.Helper()
		list := usesOf(t, tr, ino)
		if len(list) != seen+n {
			t.Fatalf("%s: %d attachments, want %d", want, len(list)-seen, n)
		}
		for _, r := range list[seen:] {
			notAnMR(t, r, want, nic)
			if r.Placement.Memory != placement.SystemMemory || !r.ArgsKnown || r.FD != fd {
				t.Errorf("%v, descriptor %d (want %d), arguments known: %v", r.Placement, r.FD, fd, r.ArgsKnown)
			}
		}
		seen += n
		if e := func() *entry { tr.mu.Lock(); defer tr.mu.Unlock(); return tr.join.find(placement.Key{Inode: ino}) }(); e != nil {
			t.Errorf("%s: an MR is asked for, and %v answers", want, &e.rec)
		}
	}
	cq, err := d.createCQ(node, func(c *verbsCall) { at(c, createCQUmem, umemOf(fd, page, page)) })
	if err != nil {
		return err
	}
	check(UseCQ, 1)
	// The older way to say the same (Linux 6.17).
	if _, err := d.createCQ(node, func(c *verbsCall) {
		c.value(createCQLength, 8, page)
		c.value(createCQFD, 0, uint64(fd))
		c.value(createCQOffset, 8, 0)
	}); err != nil {
		return err
	}
	check(UseCQ, 1)
	if _, err := d.createQP(node, cq, func(c *verbsCall) {
		at(c, createQPUmem, umemOf(fd, 0, page))
		at(c, createQPRQUmem, umemOf(fd, page, page))
		at(c, createQPSQUmem, umemOf(fd, 2*page, page))
	}); err != nil {
		return err
	}
	check(UseQP, 3)
	// The NIC takes the first buffer, and lets it go when the second is refused.
	if _, err := d.createQP(node, cq, func(c *verbsCall) {
		at(c, createQPUmem, umemOf(fd, 0, page))
		at(c, createQPSQUmem, umemOf(fd, 4*page, page))
	}); err != unix.EINVAL {
		t.Errorf("a QP whose send queue is beyond the buffer: %v", err)
	}
	check(UseQP, 0)
	if _, err := d.createCounter(node, umemOf(fd, 0, 8), umemOf(fd, 8, 8)); err != nil {
		return err
	}
	check(UseCompletionCounter, 2)

	// A refusal is named, too, with the stage of the core's helper.
	all(t, tr)
	if _, err := d.createCQ(node, func(c *verbsCall) { at(c, createCQUmem, umemOf(fd, 3*page, 2*page)) }); err != unix.EINVAL {
		t.Errorf("a CQ beyond the buffer: %v", err)
	}
	refused := await(t, tr, "a refused CQ", onBuffer(ino, Refused)).Record
	f := refused.Explain()
	t.Log(f)
	if refused.Use != UseCQ || f.Stage != StageRange {
		t.Errorf("use %q, %+v", refused.Use, f)
	}
	return nil
}

// A NIC exports its own memory, and the record's buffer says so. Importers of it reach the NIC's
// BAR. An MR of it is reported as an MR.
//
//testbed:machine fabric+EPYC
//testbed:kernel 7.3
func TestVMNICMemory(t *testing.T) {
	testenv.VM(t)
	nic := pciOf(t, "gpu0")
	d, node := testNIC(t, nic)
	imp := testenv.TestImporter(t)
	c := mine()
	c.Exports = true
	tr := open(t, c)
	buf, err := d.exportNIC(node, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer buf.Close()
	ino := inodeOf(t, buf)
	bar := largestBAR(t, nic)
	exported := await(t, tr, "the export", onBuffer(ino, Exported)).Record
	if b := exported.Buffer; !b.NIC || b.Exporter != "ib_uverbs" || b.Size != uint64(bar.Size) {
		t.Errorf("%+v, BAR %+v", b, bar)
	}
	check := func(r Record) {
		t.Helper()
		t.Log(&r)
		p := r.Placement
		if p.Memory != placement.PeerToPeer || len(p.Places) != 1 || p.Places[0].Device != nic || p.Places[0].BAR != bar.Index {
			t.Errorf("%v at %+v, want BAR %d of %s", p, p.Places, bar.Index, nic)
		}
		if !r.Buffer.NIC {
			t.Errorf("%+v", r.Buffer)
		}
		mustHave(t, r.String(), "memory of a NIC")
	}

	// Another device in the switch.
	a, err := imp.Attach(pciOf(t, "edu0"), int(buf.Fd()), testenv.DynamicImporter, true)
	if err != nil {
		t.Fatalf("attach: %v", err)
	}
	if _, err := a.Map(); err != nil {
		t.Fatalf("map: %v: %v", err, lastFailure(t, tr, ino, MapRefused))
	}
	r := only(t, tr, ino)
	check(*r)
	if r.Use != UseOther || r.Registration() || !strings.HasPrefix(r.Importer.Module, "testimporter") {
		t.Errorf("use %q of %+v", r.Use, r.Importer)
	}
	if err := a.Detach(); err != nil {
		t.Error(err)
	}

	// Another NIC makes an MR of it, which may be revoked.
	driveBy(t, "testnic", pciOf(t, "gpu1"))
	other := openNIC(t, "testnic1")
	page := uint64(unix.Getpagesize())
	mr, err := other.RegDMABufMR(uverbs.DMABufMR{PD: other.pd, FD: int32(buf.Fd()), Access: accessAll, Length: page})
	if err != nil {
		t.Fatalf("an MR of a NIC's memory: %v: %v", err, lastFailure(t, tr, ino, Refused))
	}
	r = only(t, tr, ino)
	check(*r)
	if r.Use != UseMR || r.MR == nil || r.MR.LKey != mr.LKey || r.RDMADevice != "testnic1" || r.Importer.PCI != pciOf(t, "gpu1") {
		t.Errorf("use %q, MR %+v", r.Use, r.MR)
	}
	if p, err := tr.Prove(within(t), placement.Key{Device: "testnic1", LKey: mr.LKey}); err != nil || p.Memory != placement.PeerToPeer {
		t.Errorf("by its key: %v, %v", p, err)
	}
	if err := other.DestroyMR(mr.Handle); err != nil {
		t.Error(err)
	}

	// The RDMA core's exporter refuses all pins, and so refuses rxe, which pins.
	rxe := openNIC(t, "rxe0")
	testenv.SetImporter(t, "rxe0", "pinned")
	if _, err := rxe.RegDMABufMR(uverbs.DMABufMR{PD: rxe.pd, FD: int32(buf.Fd()), Access: accessAll, Length: page}); err == nil {
		t.Error("rxe pinned the memory of a NIC")
	}
	f := lastFailure(t, tr, ino, Refused)
	if f.Stage != StagePin && f.Stage != StageAttach {
		t.Errorf("%+v", f)
	}

	// With the last context of the NIC its memory is gone, and so says the record.
	b, err := imp.Attach(pciOf(t, "edu0"), int(buf.Fd()), testenv.DynamicImporter, true)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Detach()
	if _, err := b.Map(); err != nil {
		t.Fatal(err)
	}
	check(*only(t, tr, ino))
	d.Close()
	if r := only(t, tr, ino); r.Moves == 0 || r.Placement.Memory != placement.Stale && r.Placement.Memory != placement.NotMapped {
		t.Errorf("after %d moves: %v", r.Moves, r.Placement)
	}
}
