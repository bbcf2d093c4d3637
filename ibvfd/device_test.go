// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/fault"
	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/ibvfd/internal/explain"
	"github.com/gpurdma/gpurdma/ibvfd/internal/libibverbs"
	"github.com/gpurdma/gpurdma/internal/rdmanl"
)

func TestProbe(t *testing.T) {
	sys := deviceTree(t)
	noLib := func() (libibverbs.Library, error) { return nil, ErrNoLibrary }
	// The node does not exist here: the kernel's side stays unknown.
	s, err := probe("roce0", sys, &kernel{}, noLib)
	if err != nil || s.DMABufKernel != Unknown || s.Errno != unix.ENOENT || s.ProviderReason != ErrNoLibrary.Error() || s.Remedy == "" {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := probe("none0", sys, &kernel{}, noLib); !errors.Is(err, ibdev.ErrNoDevice) {
		t.Errorf("no device: %v", err)
	}
	// Through the library both sides can be told.
	for _, c := range []struct {
		name             string
		kernel           func(int32) unix.Errno
		provider         error
		wantK, wantP     Answer
		errno            unix.Errno
		providerMentions string
	}{
		{"both", always(0), unix.EBADF, Yes, Yes, unix.EBADF, "reached the driver"},
		{"kernel only", always(0), unix.EOPNOTSUPP, Yes, No, unix.EBADF, "the kernel registers dma-bufs for this NIC"},
		{"old library", always(0), explain.NoSymbol, Yes, No, unix.EBADF, "rdma-core 34"},
		{"no driver op", func(int32) unix.Errno { return unix.EOPNOTSUPP }, unix.EOPNOTSUPP, No, Unknown, unix.EOPNOTSUPP, "cannot be distinguished"},
		{"no method", func(int32) unix.Errno { return unix.EPROTONOSUPPORT }, unix.EPROTONOSUPPORT, No, Unknown, unix.EPROTONOSUPPORT, "cannot be distinguished"},
		{"524", func(int32) unix.Errno { return 524 }, unix.Errno(524), Unknown, Unknown, 524, "cannot be distinguished"},
		{"not permitted", func(int32) unix.Errno { return unix.EPERM }, unix.EPERM, Unknown, Unknown, unix.EPERM, "cannot be distinguished"},
		{"accepted", func(int32) unix.Errno { return 0 }, unix.EIO, Unknown, Unknown, 0, "EIO"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := newScript()
			v.provider = func(int) error { return c.provider }
			k := &kernel{driver: 2, reg: c.kernel}
			s, err := probe("roce0", sys, k, func() (libibverbs.Library, error) { return v, nil })
			if err != nil || s.DMABufKernel != c.wantK || s.DMABufProvider != c.wantP || s.Errno != c.errno || s.Reason == "" || !strings.Contains(s.ProviderReason, c.providerMentions) {
				t.Errorf("%+v, %v", s, err)
			}
			v.nothingLeft(t)
			if k.live != 0 {
				t.Errorf("%d MRs left", k.live)
			}
		})
	}
}

func TestMRNumbers(t *testing.T) {
	s, k := newScript(), &kernel{reg: always(0)}
	pd := scripted(t, s, k)
	reg := func() *MR {
		t.Helper()
		mem, err := hostmem.Alloc(1)
		if err != nil {
			t.Fatal(err)
		}
		mr, err := pd.RegMR(MRAttr{Kind: HostMemory, Host: mem.Bytes(), Length: 1, Owner: mem})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := errors.Join(mr.Close(), mem.Close()); err != nil {
				t.Error(err)
			}
		})
		return mr
	}
	var table []rdmanl.MR
	dumps := 0
	pd.ctx.numbers.Dump = func(string) ([]rdmanl.MR, error) {
		dumps++
		if table == nil {
			return nil, unix.EPERM
		}
		return table, nil
	}
	me := rdmanl.Owner{PID: uint32(os.Getpid())}
	entry := func(mr *MR, number uint32) rdmanl.MR {
		return rdmanl.MR{Owner: me, Number: number, LKey: mr.LKey(), RKey: mr.RKey(), KeysKnown: true}
	}
	a, b := reg(), reg()
	if id := a.ID(); id.NumberKnown {
		t.Errorf("without netlink: %+v", id)
	}
	c := reg()
	stranger := entry(c, 9)
	stranger.PID = 1 << 22 // above any thread of ours
	hidden := entry(b, 8)
	hidden.KeysKnown = false
	table = []rdmanl.MR{entry(a, 7), hidden, stranger}
	for _, w := range []struct {
		mr     *MR
		number uint32
		known  bool
	}{{c, 0, false}, {a, 7, true}, {b, 0, false}} {
		if id := w.mr.ID(); id.Number != w.number || id.NumberKnown != w.known || id.Handle != w.mr.reg().made.handle {
			t.Errorf("%+v, want %d, %v", id, w.number, w.known)
		}
	}
	if dumps != 2 {
		t.Errorf("%d dumps, want one for each time something new was asked about", dumps)
	}
	d := reg()
	table = append(table, entry(d, 10), entry(d, 11)) // two MRs with the same keys
	if id := d.ID(); id.NumberKnown {
		t.Errorf("ambiguous keys: %+v", id)
	}
}

func TestNames(t *testing.T) {
	for got, want := range map[string]string{
		Access(0).String():                            "none",
		(AccessLocalWrite | 1<<30).String():           "local-write|0x40000000",
		(AccessRemoteRead | AccessZeroBased).String(): "remote-read|zero-based",
		fault.StageAttach.String():                    "attach",
		fault.Stage(99).String():                      "Stage(99)",
		fault.CauseNoDriverOp.String():                "no driver op",
		fault.CausePinned.String():                    "pinned for another importer",
		WCRemAccessErr.String():                       "remote access error",
		fault.Cause(-1).String():                      "Cause(-1)",
		StateRTS.String():                             "RTS",
		OpFetchAdd.String():                           "fetch-and-add",
		(&WCError{Status: WCRetryExcErr}).Error():     "work completion: transport retry counter exceeded (status 12)",
		ibdev.GIDUnknown.String():                     "unknown",
		ibdev.LinkInfiniBand.String():                 "InfiniBand",
		QPType(9).String():                            "QPType(9)",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if len(wcStatusNames) != int(WCTMRndvIncomplete)+1 {
		t.Error("a name is missing")
	}
}
