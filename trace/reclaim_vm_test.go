// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"os"
	"os/exec"
	"testing"

	"github.com/gpurdma/gpurdma/trace/internal/abi"
)

// The tracer frees the slots of a thread whose end it has not seen, and counts their records as
// lost. The slots of threads that live stay taken.
func TestVMReclaim(t *testing.T) {
	tr := open(t, mine())
	d, b := openDevice(t), alloc(t, "drm:vgem", 1<<20)
	done := exec.Command("true")
	if err := done.Run(); err != nil {
		t.Fatal(err)
	}
	dead := uint64(done.Process.Pid)
	threads := []uint64{dead<<32 | dead, uint64(os.Getpid())<<32 | dead, uint64(os.Getpid())<<32 | uint64(os.Getpid())}
	for what := range uint32(abi.OwnersTypes) {
		var owners abi.Owners
		for n, thread := range threads {
			owners.Thread[100+n] = thread
			owners.Taken[thread*0x9e3779b97f4a7c15>>58]++ // spread(), group_of()
		}
		if err := tr.loader.Map("owners").Put(what, &owners); err != nil {
			t.Fatal(err)
		}
	}
	if err := tr.loader.Map("pids").Put(dead, uint8(1)); err != nil {
		t.Fatal(err)
	}
	before := tr.Loss()
	if err := tr.loader.ReclaimAll(); err != nil {
		t.Fatal(err)
	}
	for what := range uint32(abi.OwnersTypes) {
		var owners abi.Owners
		if err := tr.loader.Map("owners").Lookup(what, &owners); err != nil {
			t.Fatal(err)
		}
		left, taken := 0, uint32(0)
		for n, thread := range owners.Thread {
			if thread != 0 {
				left++
				if n != 102 || thread != threads[2] {
					t.Errorf("slot %d is %#x's", n, thread)
				}
			}
		}
		for _, k := range owners.Taken {
			taken += k
		}
		if left != 1 || taken != 1 || owners.Taken[threads[2]*0x9e3779b97f4a7c15>>58] != 1 {
			t.Errorf("%d slots are left, %d counted: %v", left, taken, owners.Taken)
		}
		if err := tr.loader.Map("owners").Put(what, &abi.Owners{}); err != nil {
			t.Fatal(err)
		}
	}
	var one uint8
	if err := tr.loader.Map("pids").Lookup(dead, &one); err == nil {
		t.Error("a process that is gone is followed")
	}
	if err := tr.loader.Map("pids").Lookup(uint64(os.Getpid()), &one); err != nil {
		t.Errorf("this one is not: %v", err)
	}
	mr := d.register(t, b)
	await(t, tr, "registered", onBuffer(inode(b), Registered))
	if err := d.DestroyMR(mr.Handle); err != nil {
		t.Fatal(err)
	}
	if l := tr.Loss(); l.Events["records"] != before.Events["records"]+2 || l.Events["deregistrations"] != before.Events["deregistrations"] {
		t.Errorf("lost before: %v, and after: %v; want two records, and no deregistration of an MR that nobody knows", before, l)
	}
}
