// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
	"github.com/gpurdma/gpurdma/ibvfd/uverbs"
)

// Inline data are copied by the CPU: by the key of a dma-buf they are refused,
// wherever the SGE points, for as long as the key is that MR's.
func TestInlineByKey(t *testing.T) {
	c := newRereg(t, uverbs.DriverRXE)
	cq, err := c.pd.ctx.CreateCQ(8)
	if err != nil {
		t.Fatal(err)
	}
	qp, err := c.pd.CreateQP(QPAttr{Type: RC, SendCQ: cq, RecvCQ: cq, Inline: 64})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(qp.Close(), cq.Close()); err != nil {
			t.Error(err)
		}
	})
	// The script counts the two kinds of MRs apart.
	var host2 *MR
	for range 9 {
		mr, err := c.pd.RegMR(MRAttr{Kind: HostMemory, Host: c.mem.Bytes(), Length: 100, Owner: c.mem})
		if err != nil {
			t.Fatal(err)
		}
		defer mr.Close()
		host2 = mr
	}
	here := hostmem.AddrOf(c.mem.Bytes())
	try := func(what string, refused bool, sges ...SGE) {
		t.Helper()
		n, err := qp.PostSend([]SendWR{{Op: OpWrite, Flags: SendInline, SGE: sges}})
		if refused != errors.Is(err, unix.EINVAL) || !refused && (err != nil || n != 1) {
			t.Errorf("%s: posted %d, %v; want refused: %v", what, n, err, refused)
		}
	}
	host, db := host2.LKey(), c.db.LKey()
	if host == db || db == 0 {
		t.Fatalf("the script's keys are %#x and %#x", host, db)
	}
	try("host memory by its key", false, SGE{here, 8, host})
	try("host memory without one", false, SGE{here, 8, 0})
	try("a dma-buf at an address of the process", true, SGE{here, 8, db})
	try("a dma-buf in the second SGE", true, SGE{here, 8, host}, SGE{here, 8, db})
	try("nothing of a dma-buf", false, SGE{here, 8, host}, SGE{here, 0, db})
	if _, err := qp.PostSend([]SendWR{{Op: OpWrite, SGE: []SGE{{here, 8, db}}}}); err != nil {
		t.Errorf("a dma-buf that is not sent inline: %v", err)
	}
	second, err := c.pd.RegMR(MRAttr{Kind: DMABufFD, FD: c.fd, Length: 100, SkipChecks: true, Policy: RouteIoctlOnly})
	if err != nil {
		t.Fatal(err)
	}
	// Its keys change: the old ones belong to no MR.
	was := second.LKey()
	if err := second.Rereg(ReregAttr{Change: ReregMemory, MRAttr: MRAttr{Kind: DMABufFD, FD: c.fd, Length: 50, SkipChecks: true, Policy: RouteIoctlOnly}}); err != nil {
		t.Fatal(err)
	}
	if second.LKey() == was {
		t.Fatal("the script has the same key again")
	}
	try("a key of before", false, SGE{here, 8, was})
	try("the key of now", true, SGE{here, 8, second.LKey()})
	was = second.LKey()
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	try("of a closed MR", false, SGE{here, 8, was})
	try("of the one that is open", true, SGE{here, 8, db})
	// The kernel may answer a change in place with another key.
	c.k.rekeyed = 0x7700
	if err := c.db.Rereg(ReregAttr{Change: ReregAccess, MRAttr: MRAttr{Access: AccessLocalWrite}, InPlace: InPlaceOnly}); err != nil || c.db.LKey() != 0x7700 {
		t.Fatalf("%v, key %#x", err, c.db.LKey())
	}
	try("what it was before", false, SGE{here, 8, db})
	db = 0x7700
	try("what it is now", true, SGE{here, 8, db})
	// One that is still registered keeps its key.
	c.k.destroy = unix.EBUSY
	if err := c.db.Close(); err == nil {
		t.Fatal("closed against the kernel's will")
	}
	try("of one that could not be closed", true, SGE{here, 8, db})
	c.k.destroy = 0
}
