// SPDX-License-Identifier: Apache-2.0

package memnic_test

import (
	"errors"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/fault"
	"github.com/gpurdma/gpurdma/internal/memnic"
	"github.com/gpurdma/gpurdma/internal/rc"
	"github.com/gpurdma/gpurdma/pciaddr"
)

func newMemory(t testing.TB, opt memnic.MemoryOptions) *memnic.Memory {
	m := must(memnic.NewMemory(size, opt))(t)
	t.Cleanup(func() {
		if err := errors.Join(m.Close(), m.Close()); err != nil {
			t.Error(err)
		}
	})
	return m
}

// registered registers memory with a side's device.
func (s *side) registered(m *memnic.Memory, access ibvfd.Access) *rc.Registration {
	r := must(s.dev.Source(m, 0, m.Size(), access))(s.t)
	s.t.Cleanup(func() {
		if err := r.Close(); err != nil {
			s.t.Error(err)
		}
	})
	return r
}

func TestMemory(t *testing.T) {
	m := must(memnic.NewMemory(100, memnic.MemoryOptions{PCI: pciaddr.Addr{Bus: 9}}))(t)
	if at, ok := m.PCI(); !ok || at.Bus != 9 || m.Size() != 100 || m.Segments() != nil {
		t.Error(at, ok, m.Size())
	}
	if k, err := m.WriteAt([]byte("abc"), 97); k != 3 || err != nil {
		t.Error(k, err)
	}
	p := make([]byte, 4)
	if k, err := m.ReadAt(p, 97); k != 3 || err != io.EOF || string(p[:3]) != "abc" {
		t.Error(k, err, p)
	}
	for _, off := range []int64{-1, 98, 1 << 40} {
		if k, err := m.WriteAt([]byte("abc"), off); k != 0 || !errors.Is(err, failure.ErrRange) {
			t.Error(off, k, err)
		}
	}
	release := must(m.Hold())(t)
	if err := m.Close(); !errors.Is(err, failure.ErrInUse) {
		t.Errorf("close while it is held: %v", err)
	}
	release()
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if _, err := m.ReadAt(p, 0); !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
	if _, err := m.DMA(); !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
}

// foreign is a source that is not the network's.
type foreign struct{ rc.Source }

// Registrations are refused as the kernel refuses them.
func TestRefusedRegistrations(t *testing.T) {
	n := memnic.New(memnic.Manual())
	d := n.Device("nic", memnic.Limits{})
	m, staged := newMemory(t, memnic.MemoryOptions{}), newMemory(t, memnic.MemoryOptions{Staged: true})
	gone := newMemory(t, memnic.MemoryOptions{})
	n.Revoke(gone)
	for name, c := range map[string]struct {
		src    rc.Source
		off, n int64
		access ibvfd.Access
		cause  fault.Cause
		errno  unix.Errno
	}{
		"staged":         {staged, 0, size, 0, fault.CauseNotSupported, unix.EOPNOTSUPP},
		"not ours":       {foreign{m}, 0, size, 0, fault.CauseNotSupported, unix.EOPNOTSUPP},
		"past the end":   {m, 1, size, 0, fault.CauseBadRange, unix.EINVAL},
		"before it":      {m, -1, 1, 0, fault.CauseBadRange, unix.EINVAL},
		"nothing":        {m, 0, 0, 0, fault.CauseBadRange, unix.EINVAL},
		"no local write": {m, 0, size, ibvfd.AccessRemoteWrite, fault.CauseAccess, unix.EINVAL},
		"revoked":        {gone, 0, size, 0, fault.CauseGone, unix.ENODEV},
	} {
		r, err := d.Source(c.src, c.off, c.n, c.access)
		var refused *ibvfd.RegError
		if r != nil || !errors.As(err, &refused) || refused.Cause != c.cause || refused.Errno != c.errno || refused.Device != "nic" {
			t.Errorf("%s: %v, %v", name, r, err)
		}
	}
	r := must(d.Source(rc.PeerDirect{Source: m}, 8, 100, ibvfd.AccessRemoteRead))(t)
	if r.Local[0].Length != 100 || r.Remote[0].Key == r.Local[0].Key || r.Route != memnic.Route {
		t.Errorf("%+v", r)
	}
	if err := m.Close(); !errors.Is(err, failure.ErrInUse) {
		t.Errorf("close of memory that is registered: %v", err)
	}
	if err := r.Close(); err != nil || n.Open() != 0 {
		t.Error(err, n.Open())
	}
}

// Memory that is revoked is accessed neither by peers nor by its own device.
func TestRevoke(t *testing.T) {
	eachMode(t, func(t *testing.T, n *memnic.Network) {
		a, b := pairOf(t, n, ibvfd.ConnectAttr{})
		m := newMemory(t, memnic.MemoryOptions{})
		r, own := b.registered(m, allAccess), a.registered(m, allAccess)
		write := a.op(ibvfd.OpWrite, 0, 8, b, 0)
		write.RemoteAddr, write.RKey = r.Remote[0].Addr, r.Remote[0].Key
		a.mem[0] = 1
		a.post(rc.WriteQueue, write)
		a.done(100, ibvfd.WCSuccess)
		n.Revoke(m)
		a.mem[0] = 2
		a.post(rc.WriteQueue, write)
		a.done(100, ibvfd.WCRemAccessErr)
		if m.Bytes()[0] != 1 {
			t.Error("revoked memory was written")
		}
		read := a.op(ibvfd.OpRead, 0, 8, b, 0)
		read.SGE = []ibvfd.SGE{{Addr: own.Local[0].Addr, Length: 8, LKey: own.Local[0].Key}}
		a.post(rc.ReadQueue, read)
		a.done(104, ibvfd.WCLocProtErr)
	})
}
