// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/fault"
	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// needFlush says that the library in use is new enough, so that a queue pair
// without FLUSH is a failure.
const needFlush = "GPURDMA_NEED_FLUSH"

// FLUSH between other operations of the same queue, where kernel and library
// have it, and what it is refused for; elsewhere, as with Debian 12's library, the
// queue pair is refused with the reason.
func TestVMFlush(t *testing.T) {
	pd := openPD(t)
	flushRights(t, pd)
	cq := waitCQ(t, pd)
	attr := ibvfd.QPAttr{Type: ibvfd.RC, SendCQ: cq, RecvCQ: cq, SendDepth: 8, SendSGE: 1, Flush: true}
	qp, err := pd.CreateQP(attr)
	if err != nil {
		if os.Getenv(needFlush) != "" {
			t.Fatalf("with %s: %v", ibvfd.Version(), err)
		}
		for _, both := range []bool{false, true} {
			attr.AtomicWrite = both
			if _, err := pd.CreateQP(attr); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "FLUSH takes Linux 6.2, libibverbs 45") {
				t.Errorf("with atomic writes %v: %v", both, err)
			}
		}
		return
	}
	closed(t, qp)
	if !testenv.AtLeast(t, "6.12") {
		t.Fatal("a kernel without FLUSH made a queue pair for it")
	}
	t.Logf("with %s", ibvfd.Version())
	p := connectOne(t, pd, ibvfd.QPAttr{SendDepth: 8, SendSGE: 1, Flush: true, AtomicWrite: true})
	flushes(t, pd, p)
	refusedFlushes(t, pd, p)
	flushed(t, pd, p)
}

// flushMR is host memory with that access.
func flushMR(t testing.TB, pd *ibvfd.PD, size int, access ibvfd.Access) (*hostmem.Buf, *ibvfd.MR) {
	t.Helper()
	mem, err := hostmem.Alloc(size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, mem) })
	mr, err := pd.RegMR(ibvfd.MRAttr{Kind: ibvfd.HostMemory, Host: mem.Bytes(), Length: uint64(size), Access: access, Owner: mem})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, mr) })
	return mem, mr
}

// flushRights: the kernel gives the right to flush, and to persistent memory only
// where the memory is. A library need not know of it.
func flushRights(t *testing.T, pd *ibvfd.PD) {
	mem, err := hostmem.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, mem)
	host := ibvfd.MRAttr{Kind: ibvfd.HostMemory, Host: mem.Bytes(), Length: 4096, Access: ibvfd.AccessFlushPersistent, Owner: mem}
	refused := func(err error) {
		t.Helper()
		if e := asRegError(t, err); e.Cause != fault.CauseAccess || e.Errno != unix.EINVAL || !strings.Contains(e.Remedy, "out") {
			t.Errorf("%v", err)
		}
	}
	_, err = pd.RegMR(host)
	refused(err)
	host.Access = ibvfd.AccessFlushGlobal
	mr, err := pd.RegMR(host)
	if !testenv.AtLeast(t, "6.12") {
		refused(err)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, mr)
	// A right that the kernel refuses does not come by changing the MR either.
	before := mr.State()
	refused(mr.Rereg(ibvfd.ReregAttr{Change: ibvfd.ReregAccess, MRAttr: ibvfd.MRAttr{Access: ibvfd.AccessFlushPersistent}}))
	if after := mr.State(); after != before {
		t.Errorf("%+v became %+v", before, after)
	}
}

// flushes posts them among others: ranges, the whole MR, in order.
func flushes(t *testing.T, pd *ibvfd.PD, p *pair) {
	const size = 1 << 16
	src, smr := hostMR(t, pd, size+8)
	dst, dmr := flushMR(t, pd, size, allRemote|ibvfd.AccessFlushGlobal)
	fill(src.Bytes(), 9)
	before := bytes.Clone(src.Bytes()[:size])
	to := func(op ibvfd.Opcode, off uint64) ibvfd.SendWR {
		return ibvfd.SendWR{Op: op, Flags: ibvfd.SendSignaled, RemoteAddr: dmr.IOVA() + off, RKey: dmr.RKey(), Placement: ibvfd.FlushGlobal}
	}
	var wrs []ibvfd.SendWR
	var want []ibvfd.WCOpcode
	add := func(wr ibvfd.SendWR, op ibvfd.WCOpcode) {
		wr.ID = uint64(len(wrs))
		wrs, want = append(wrs, wr), append(want, op)
	}
	wr := to(ibvfd.OpWrite, 0)
	wr.SGE = sge(smr, 0, size)
	add(wr, ibvfd.WCOpWrite)
	wr = to(ibvfd.OpFlush, 0)
	wr.FlushLength = size
	add(wr, ibvfd.WCOpFlush)
	wr = to(ibvfd.OpFlush, 4095)
	wr.FlushLength = 2
	add(wr, ibvfd.WCOpFlush)
	wr = to(ibvfd.OpAtomicWrite, size-8)
	wr.CompareAdd = 41
	add(wr, ibvfd.WCOpAtomicWrite)
	wr = to(ibvfd.OpFlush, 0)
	wr.RemoteAddr = 0 // the whole MR has no address
	add(wr, ibvfd.WCOpFlush)
	wr = to(ibvfd.OpFetchAdd, size-8)
	wr.SGE, wr.CompareAdd = sge(smr, size, 8), 1
	add(wr, ibvfd.WCOpFetchAdd)
	wr = to(ibvfd.OpFlush, size-1)
	wr.FlushLength = 1
	add(wr, ibvfd.WCOpFlush)
	if n, err := p.a.PostSend(wrs); n != len(wrs) || err != nil {
		t.Fatal(n, err)
	}
	for i, op := range want {
		if c := one(t, p.cq); c.Err() != nil || c.ID != uint64(i) || c.Opcode != op {
			t.Fatalf("completion %d: %+v", i, c)
		}
	}
	binary.NativeEndian.PutUint64(before[size-8:], 42)
	if !bytes.Equal(dst.Bytes(), before) || binary.NativeEndian.Uint64(src.Bytes()[size:]) != 41 {
		t.Errorf("the bytes did not arrive, or %x was fetched", src.Bytes()[size:])
	}
}

// refusedFlushes: MR and queue pair must both allow the placement, and a range
// lies in the MR.
func refusedFlushes(t *testing.T, pd *ibvfd.PD, p *pair) {
	const size = 4096
	_, plain := hostMR(t, pd, size)
	_, global := flushMR(t, pd, size, ibvfd.AccessFlushGlobal)
	flush := func(mr *ibvfd.MR, length uint32, placement ibvfd.FlushPlacement) ibvfd.SendWR {
		return ibvfd.SendWR{Op: ibvfd.OpFlush, RemoteAddr: mr.IOVA(), RKey: mr.RKey(), FlushLength: length, Placement: placement}
	}
	past, wrong := flush(global, size, ibvfd.FlushGlobal), flush(global, size, ibvfd.FlushGlobal)
	past.RemoteAddr++
	wrong.RKey++
	for _, c := range []struct {
		name  string
		wr    ibvfd.SendWR
		allow ibvfd.Access // of the peer's queue pair; 0: the default
		want  ibvfd.WCStatus
	}{
		{"a range", flush(global, size, ibvfd.FlushGlobal), 0, ibvfd.WCSuccess},
		{"a range of an MR without the right", flush(plain, size, ibvfd.FlushGlobal), 0, ibvfd.WCRemAccessErr},
		{"an MR without the right", flush(plain, 0, ibvfd.FlushGlobal), 0, ibvfd.WCRemAccessErr},
		{"a placement without the right", flush(global, size, ibvfd.FlushPersistent), 0, ibvfd.WCRemAccessErr},
		{"one of two without the right", flush(global, 0, ibvfd.FlushGlobal|ibvfd.FlushPersistent), 0, ibvfd.WCRemAccessErr},
		{"past the end", past, 0, ibvfd.WCRemAccessErr},
		{"a key that is none", wrong, 0, ibvfd.WCRemAccessErr},
		{"a queue pair without the right", flush(global, size, ibvfd.FlushGlobal), allRemote, ibvfd.WCRemInvReqErr},
		{"a queue pair with this one", flush(global, size, ibvfd.FlushGlobal), allRemote | ibvfd.AccessFlushGlobal, ibvfd.WCSuccess},
		{"a queue pair without this one", flush(global, size, ibvfd.FlushGlobal), allRemote | ibvfd.AccessFlushPersistent, ibvfd.WCRemInvReqErr},
	} {
		join(t, p.a, p.b, ibvfd.ConnectAttr{Access: c.allow, RetryCount: 3})
		c.wr.ID = 1
		if w := p.do(t, c.wr); w.Status != c.want {
			t.Errorf("%s: %v, want %v", c.name, w.Status, c.want)
		}
	}
}

// flushed: a peer can flush to a queue pair that was made without Flush, and that queue
// pair refuses OpFlush.
func flushed(t *testing.T, pd *ibvfd.PD, p *pair) {
	plain := newQP(t, pd, ibvfd.QPAttr{Type: ibvfd.RC, SendCQ: p.cq, RecvCQ: p.cq})
	join(t, p.a, plain, ibvfd.ConnectAttr{Access: allRemote | ibvfd.AccessFlushGlobal})
	_, mr := flushMR(t, pd, 4096, ibvfd.AccessFlushGlobal)
	wr := ibvfd.SendWR{ID: 2, Op: ibvfd.OpFlush, RKey: mr.RKey(), Placement: ibvfd.FlushGlobal}
	if w := p.do(t, wr); w.Status != ibvfd.WCSuccess || w.Opcode != ibvfd.WCOpFlush {
		t.Errorf("%+v", w)
	}
	if n, err := plain.PostSend([]ibvfd.SendWR{wr}); n != 0 || !errors.Is(err, unix.EINVAL) {
		t.Errorf("%d, %v", n, err)
	}
}

// newerRoot is the build root of the running kernel's series (kernel/buildroot.sh),
// whose Debian has a libibverbs with FLUSH.
var newerRoot = "../build/roots/" + os.Getenv("GPURDMA_KERNEL")

// inNewerRoot runs a program, in a directory of its own, in the root $1: a
// provider is loaded from where the library was installed. The mounts go with
// the namespace.
const inNewerRoot = `root=$1 dir=$2 program=$3
shift 3
for d in /dev /proc /sys; do mount --rbind "$d" "$root$d"; done
mount --rbind "$dir" "$root/mnt"
exec chroot "$root" "/mnt/$program" "$@"`

// TestVMFlush with that library, where it must find FLUSH.
//
//testbed:kernel 7.2
func TestVMFlushNewerLibrary(t *testing.T) {
	testenv.VM(t)
	root, err := filepath.Abs(newerRoot)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-euc", inNewerRoot, "sh",
		root, filepath.Dir(self), filepath.Base(self), "-test.v", "-test.run=^TestVMFlush$")
	cmd.Env = append(os.Environ(), needFlush+"=1")
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil || !bytes.Contains(out, []byte("--- PASS: TestVMFlush")) {
		t.Errorf("%v", err)
	}
}
