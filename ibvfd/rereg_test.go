// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd/fault"
	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
)

const (
	driverRXE   = 14
	driverMLX5  = 1
	driverIRDMA = 9
)

// reregCase is a scripted device with an MR on host memory and one on a dma-buf.
type reregCase struct {
	s        *script
	k        *kernel
	pd       *PD
	mem      *hostmem.Buf
	fd       int
	host, db *MR
}

func newRereg(t *testing.T, driver uint32) *reregCase {
	t.Helper()
	c := &reregCase{s: newScript(), k: &kernel{driver: driver, reg: always(0)}, fd: openFile(t)}
	c.pd = scripted(t, c.s, c.k)
	var err error
	if c.mem, err = hostmem.Alloc(100); err != nil {
		t.Fatal(err)
	}
	if c.host, err = c.pd.RegMR(MRAttr{Kind: HostMemory, Host: c.mem.Bytes(), Length: 100, Owner: c.mem}); err != nil {
		t.Fatal(err)
	}
	if c.db, err = c.pd.RegMR(MRAttr{Kind: DMABufFD, FD: c.fd, Length: 100, SkipChecks: true, Policy: RouteIoctlOnly}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, x := range []interface{ Close() error }{c.host, c.db, c.mem} {
			if err := x.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return c
}

func (c *reregCase) newPD(t *testing.T) *PD {
	t.Helper()
	pd, err := c.pd.ctx.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	return pd
}

func mustRereg(t *testing.T, m *MR, attr ReregAttr) MRState {
	t.Helper()
	if err := m.Rereg(attr); err != nil {
		t.Fatal(err)
	}
	return m.State()
}

// In place: by the library where its provider has the op, by the kernel where
// not, and for dma-bufs always by the kernel. The keys stay.
func TestReregInPlace(t *testing.T) {
	for _, c := range []struct {
		name     string
		driver   uint32
		provider unix.Errno // ibv_rereg_mr's
		asked    int        // the kernel, for the host MR
	}{
		{"rxe", driverRXE, unix.EOPNOTSUPP, 1},
		{"mlx5", driverMLX5, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRereg(t, c.driver)
			if c.provider != 0 {
				r.s.failWith("rereg", c.provider)
			}
			for _, m := range []*MR{r.host, r.db} {
				before, asked, live := m.State(), len(r.k.changed), r.s.live["MR"]+r.k.live
				after := mustRereg(t, m, ReregAttr{Change: ReregAccess, MRAttr: MRAttr{Access: AccessLocalWrite | AccessRemoteWrite}, InPlace: InPlaceOnly})
				want := before
				want.Access = AccessLocalWrite | AccessRemoteWrite
				if after != want {
					t.Errorf("%+v became %+v", before, after)
				}
				if got := len(r.k.changed) - asked; m == r.host && got != c.asked || m == r.db && got != 1 {
					t.Errorf("the kernel was asked %d times", got)
				}
				if now := r.s.live["MR"] + r.k.live; now != live {
					t.Errorf("%d MRs, were %d", now, live)
				}
			}
			if len(r.k.changed) > 0 {
				if b := r.k.changed[len(r.k.changed)-1]; b.flags != 4 || b.access != 3 {
					t.Errorf("REREG_MR was asked %+v", b)
				}
			}
			// The PD: its old one is free, the new one in use.
			pd := r.newPD(t)
			for _, m := range []*MR{r.host, r.db} {
				if s := mustRereg(t, m, ReregAttr{Change: ReregPD | ReregAccess, PD: pd, MRAttr: MRAttr{Access: AccessRemoteRead}}); s.PD != pd || s.Access != AccessRemoteRead {
					t.Errorf("%+v", s)
				}
			}
			if b := r.k.changed[len(r.k.changed)-1]; b.flags != 6 || b.pd != pd.handle || b.access != uint32(AccessRemoteRead) {
				t.Errorf("REREG_MR was asked %+v", b)
			}
			if err := r.pd.inUse("", ""); err != nil {
				t.Errorf("the old PD: %v", err)
			}
			if err := pd.Close(); !errors.Is(err, failure.ErrInUse) {
				t.Errorf("the new PD: %v", err)
			}
			for _, m := range []*MR{r.host, r.db} {
				if err := m.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if err := pd.Close(); err != nil {
				t.Error(err)
			}
			if err := r.mem.Close(); err != nil {
				t.Errorf("the memory is still held: %v", err)
			}
		})
	}
}

// libibverbs refuses to re-register dma-buf MRs, those that it made itself
// included: the kernel is asked directly.
func TestReregInPlacePastTheLibrary(t *testing.T) {
	r := newRereg(t, driverMLX5)
	r.s.provider = func(fd int) error {
		if n := always(0)(int32(fd)); n != 0 {
			return n
		}
		return nil
	}
	mr, err := r.pd.RegMR(MRAttr{Kind: DMABufFD, FD: r.fd, Length: 100, SkipChecks: true, Policy: RouteProviderOnly})
	if err != nil {
		t.Fatal(err)
	}
	want := mr.State()
	want.Access = AccessRemoteRead
	if got := mustRereg(t, mr, ReregAttr{Change: ReregAccess, MRAttr: MRAttr{Access: AccessRemoteRead}, InPlace: InPlaceOnly}); got != want || got.Route != RouteProvider {
		t.Errorf("%+v, want %+v", got, want)
	}
	if r.s.reregs != 0 || len(r.k.changed) != 1 || r.k.changed[0].handle != want.LKey {
		t.Errorf("ibv_rereg_mr was called %d times, REREG_MR got %+v", r.s.reregs, r.k.changed)
	}
	if err := mr.Close(); err != nil {
		t.Error(err)
	}
}

// The right to flush to persistent memory is the kernel's to judge when it
// registers: rxe does not look again. A dma-buf MR gets none.
func TestReregToFlush(t *testing.T) {
	r := newRereg(t, driverRXE)
	r.s.failWith("rereg", unix.EOPNOTSUPP)
	persistent := ReregAttr{Change: ReregAccess, MRAttr: MRAttr{Access: AccessFlushPersistent}, InPlace: InPlaceOnly}
	if err := r.host.Rereg(persistent); !errors.Is(err, unix.EOPNOTSUPP) || len(r.k.changed) != 0 {
		t.Errorf("in place: %v, REREG_MR was asked %+v", err, r.k.changed)
	}
	before := r.host.State()
	persistent.InPlace = InPlaceAuto
	if after := mustRereg(t, r.host, persistent); after.RKey == before.RKey || after.Access != AccessFlushPersistent || len(r.k.changed) != 0 {
		t.Errorf("%+v became %+v, REREG_MR was asked %+v", before, after, r.k.changed)
	}
	before = r.host.State()
	global := ReregAttr{Change: ReregAccess, MRAttr: MRAttr{Access: AccessFlushPersistent | AccessFlushGlobal}, InPlace: InPlaceOnly}
	if after := mustRereg(t, r.host, global); after.Access != global.Access || len(r.k.changed) != 1 {
		t.Errorf("%+v became %+v, REREG_MR was asked %+v", before, after, r.k.changed)
	}
	var e *RegError
	global.Access = AccessFlushGlobal
	if err := r.db.Rereg(global); !errors.As(err, &e) || e.Cause != fault.CauseAccess || len(r.k.changed) != 1 {
		t.Errorf("dma-buf: %v", err)
	}
}

// Anew where the keys cannot stay, and the old registration is gone.
func TestReregAnew(t *testing.T) {
	all := AccessLocalWrite | AccessRemoteRead | AccessRemoteWrite
	for _, c := range []struct {
		name   string
		driver uint32
		attr   ReregAttr
		kernel unix.Errno // REREG_MR's answer
	}{
		{"a driver that may lose the MR", driverIRDMA, ReregAttr{Change: ReregAccess, MRAttr: MRAttr{Access: all}}, 0},
		{"flags that mlx5 may not change in place", driverMLX5, ReregAttr{Change: ReregAccess, MRAttr: MRAttr{Access: all | AccessRemoteAtomic}}, 0},
		{"new keys asked for", driverRXE, ReregAttr{Change: ReregAccess, InPlace: InPlaceNever}, 0},
		{"the kernel refuses", driverRXE, ReregAttr{Change: ReregAccess, MRAttr: MRAttr{Access: all}}, unix.EACCES},
		{"no such op", driverRXE, ReregAttr{Change: ReregAccess, MRAttr: MRAttr{Access: all}}, unix.EOPNOTSUPP},
		{"the memory", driverRXE, ReregAttr{Change: ReregMemory | ReregAccess, MRAttr: MRAttr{Access: all}}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRereg(t, c.driver)
			r.k.rereg = c.kernel
			r.s.failWith("rereg", unix.EOPNOTSUPP)
			mem, err := hostmem.Alloc(50)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range []*MR{r.host, r.db} {
				attr := c.attr
				before, live := m.State(), r.s.live["MR"]+r.k.live
				switch {
				case m == r.db: // its descriptor was borrowed, so it is given again
					attr.Change |= ReregMemory
					attr.Kind, attr.FD, attr.Offset, attr.Length, attr.IOVA, attr.SkipChecks, attr.Policy = DMABufFD, r.fd, 7, 80, 7, true, RouteIoctlOnly
				case attr.Change&ReregMemory != 0:
					attr.Kind, attr.Host, attr.Length, attr.Owner = HostMemory, mem.Bytes(), 50, mem
				}
				after := mustRereg(t, m, attr)
				if after.LKey == before.LKey || after.Access != attr.Access || after.PD != before.PD {
					t.Errorf("%+v became %+v", before, after)
				}
				if attr.Change&ReregMemory != 0 && (after.Length != attr.Length || m == r.db && after.IOVA != 7) {
					t.Errorf("the range is %+v", after)
				}
				if now := r.s.live["MR"] + r.k.live; now != live {
					t.Errorf("%d MRs, were %d", now, live)
				}
			}
			if c.attr.Change&ReregMemory != 0 {
				if err := r.mem.Close(); err != nil {
					t.Errorf("the old memory is still held: %v", err)
				}
				if err := mem.Close(); !errors.Is(err, failure.ErrInUse) {
					t.Errorf("the new memory is not held: %v", err)
				}
				if err := r.host.Close(); err != nil {
					t.Error(err)
				}
			}
			if err := mem.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Whatever fails, the MR is as it was, with one registration.
func TestReregFails(t *testing.T) {
	r := newRereg(t, driverIRDMA)
	other := scripted(t, newScript(), &kernel{driver: driverIRDMA, reg: always(0)})
	gone := r.newPD(t)
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	write := MRAttr{Access: AccessLocalWrite}
	for _, c := range []struct {
		name string
		mr   *MR
		attr ReregAttr
		fn   string // fails with errno
		want error
	}{
		{"nothing to change", r.host, ReregAttr{}, "", unix.EINVAL},
		{"unknown change", r.host, ReregAttr{Change: 8}, "", unix.EINVAL},
		{"no PD", r.host, ReregAttr{Change: ReregPD}, "", unix.EINVAL},
		{"another context's PD", r.host, ReregAttr{Change: ReregPD, PD: other}, "", unix.EINVAL},
		{"a closed PD", r.host, ReregAttr{Change: ReregPD, PD: gone}, "", os.ErrClosed},
		{"keys must stay", r.host, ReregAttr{Change: ReregAccess, MRAttr: write, InPlace: InPlaceOnly}, "", errors.ErrUnsupported},
		{"memory and keys must stay", r.db, ReregAttr{Change: ReregMemory, InPlace: InPlaceOnly}, "", errors.ErrUnsupported},
		{"the library refuses", r.host, ReregAttr{Change: ReregAccess, MRAttr: write}, "regHost", unix.ENOMEM},
		{"the old one cannot end", r.host, ReregAttr{Change: ReregAccess, MRAttr: write}, "dereg", unix.EBUSY},
		{"remote write without local", r.host, ReregAttr{Change: ReregAccess, MRAttr: MRAttr{Access: AccessRemoteWrite}}, "", unix.EINVAL},
		{"no descriptor at hand", r.db, ReregAttr{Change: ReregAccess, MRAttr: write}, "", os.ErrClosed},
		{"an access dma-bufs do not have", r.db, ReregAttr{Change: ReregMemory | ReregAccess, MRAttr: MRAttr{Kind: DMABufFD, FD: r.fd, Length: 1, Access: AccessMWBind}}, "", unix.EINVAL},
		{"memory of no kind", r.db, ReregAttr{Change: ReregMemory, MRAttr: MRAttr{Kind: 9}}, "", errors.ErrUnsupported},
		{"not a dma-buf", r.db, ReregAttr{Change: ReregMemory, MRAttr: MRAttr{Kind: DMABufFD, FD: r.fd, Length: 1}}, "", dmabuf.ErrNotDMABuf},
	} {
		before := c.mr.State()
		n, _ := c.want.(unix.Errno)
		if c.fn != "" {
			r.s.failWith(c.fn, n)
		}
		err := c.mr.Rereg(c.attr)
		r.s.failWith(c.fn, nil)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		var e *RegError
		if errors.As(err, &e) && !e.Rereg {
			t.Errorf("%s: the error speaks of a registration: %v", c.name, err)
		}
		if after := c.mr.State(); after != before {
			t.Errorf("%s: %+v became %+v", c.name, before, after)
		}
		if err := c.mr.DropOld(); err != nil { // those that could not end the first time
			t.Errorf("%s: %v", c.name, err)
		}
		if r.s.live["MR"] != 1 || r.k.live != 1 {
			t.Errorf("%s: %d and %d MRs, want 1 and 1", c.name, r.s.live["MR"], r.k.live)
		}
	}
	if err := r.host.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.host.Rereg(ReregAttr{Change: ReregAccess}); !errors.Is(err, os.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// A change that changes nothing calls neither the library nor the kernel.
func TestReregToTheSame(t *testing.T) {
	r := newRereg(t, driverRXE)
	before, requests := r.db.State(), r.k.requests
	if after := mustRereg(t, r.db, ReregAttr{Change: ReregPD | ReregAccess, PD: r.pd}); after != before || r.k.requests != requests {
		t.Errorf("%+v became %+v, with %d requests", before, after, r.k.requests-requests)
	}
}

// KeepOld: both are registered until DropOld or Close.
func TestReregKeepsOld(t *testing.T) {
	r := newRereg(t, driverRXE)
	for i := range 3 {
		before := r.host.State()
		after := mustRereg(t, r.host, ReregAttr{Change: ReregAccess, MRAttr: MRAttr{Access: Access(1 - i%2)}, KeepOld: true})
		if after.LKey == before.LKey || r.s.live["MR"] != i+2 {
			t.Errorf("%d MRs, keys %#x and %#x", r.s.live["MR"], before.LKey, after.LKey)
		}
	}
	r.s.failWith("dereg", unix.EBUSY)
	if err := r.host.DropOld(); !errors.Is(err, unix.EBUSY) {
		t.Errorf("DropOld: %v, want EBUSY", err)
	}
	if err := r.host.Close(); !errors.Is(err, unix.EBUSY) {
		t.Errorf("Close: %v, want EBUSY", err)
	}
	if r.s.live["MR"] != 4 {
		t.Errorf("%d MRs, want 4", r.s.live["MR"])
	}
	r.s.failWith("dereg", nil)
	for range 2 {
		if err := r.host.DropOld(); err != nil || r.s.live["MR"] != 1 {
			t.Errorf("%v, %d MRs", err, r.s.live["MR"])
		}
	}
	mustRereg(t, r.host, ReregAttr{Change: ReregAccess, MRAttr: MRAttr{Access: AccessRemoteRead}, KeepOld: true})
	if err := r.host.Close(); err != nil || r.s.live["MR"] != 0 {
		t.Errorf("Close: %v, %d MRs", err, r.s.live["MR"])
	}
}

// If an old registration of an MR cannot end, Close fails and leaves the present
// registration: calls on the open MR still work.
func TestOpenMRIsRegistered(t *testing.T) {
	r := newRereg(t, driverRXE)
	if err := r.db.Rereg(ReregAttr{Change: ReregMemory, MRAttr: MRAttr{Kind: HostMemory, Host: r.mem.Bytes(), Length: 1}, KeepOld: true}); err != nil {
		t.Fatal(err)
	}
	r.k.destroy = unix.EBUSY // of the old one, which the ioctl made
	if err := r.db.Close(); !errors.Is(err, unix.EBUSY) {
		t.Errorf("Close: %v, want EBUSY", err)
	}
	if r.s.live["MR"] != 2 || r.k.live != 1 || r.db.reg().ended {
		t.Errorf("%d and %d MRs, want 2 and 1", r.s.live["MR"], r.k.live)
	}
	mustRereg(t, r.db, ReregAttr{Change: ReregAccess, MRAttr: MRAttr{Access: AccessLocalWrite}, InPlace: InPlaceOnly})
	r.k.destroy = 0
}

// State's parts belong together while the MR changes.
func TestStateUnderRereg(t *testing.T) {
	r := newRereg(t, driverIRDMA)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range uint64(2000) {
			attr := ReregAttr{Change: ReregMemory | ReregAccess, MRAttr: MRAttr{
				Kind: DMABufFD, FD: r.fd, Offset: i, IOVA: i, Length: i + 1, Access: Access(i & 1), SkipChecks: true, Policy: RouteIoctlOnly,
			}}
			if err := r.db.Rereg(attr); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	for seen := 0; ; seen++ {
		s := r.db.State() // keys count up from the first MR's
		if s.LKey > 1 && (s.Length != s.IOVA+1 || uint64(s.LKey) != s.IOVA+2 || s.Access != Access(s.IOVA&1)) {
			t.Fatalf("torn: %+v", s)
		}
		select {
		case <-done:
			return
		default:
		}
	}
}
