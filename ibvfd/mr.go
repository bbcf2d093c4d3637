// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/uverbs"
	"github.com/gpurdma/gpurdma/internal/errno"
)

// MR is a memory region. Its keys work with the queue pairs of its PD, and the
// remote key with their peers.
type MR struct {
	mu      sync.Mutex // held while Close or ID is under way
	closed  bool
	pd      *PD
	made    registered
	length  uint64
	iova    uint64
	access  Access
	route   Route
	took    time.Duration
	release func() // of the owner; nil without one
	serial  uint64 // counts the context's registrations
}

// registered is what a route hands back.
type registered struct {
	v                  verbsMR // nil on the ioctl route
	lkey, rkey, handle uint32
}

// RegMR registers memory. A refusal is a *[RegError]; a PD or Owner that is
// closed already is os.ErrClosed.
//
// For a dma-buf the kernel needs Linux 5.12 and a driver that registers them:
// in 6.1 mlx5 and efa, in 6.12 also irdma and bnxt_re, in 7.2 also mana and
// ionic. rdma-core has ibv_reg_dmabuf_mr since version 34. Where the provider
// lacks the op, RouteAuto calls the kernel directly; [MR.Route] tells.
func (pd *PD) RegMR(attr MRAttr) (*MR, error) {
	if err := pd.join(kindMR); err != nil {
		return nil, err
	}
	mr := pd.mrs.next()
	mr.pd, mr.length, mr.iova, mr.access = pd, attr.Length, attr.IOVA, attr.Access
	var err error
	if attr.Owner != nil {
		if mr.release, err = attr.Owner.Hold(); err != nil {
			pd.drop(kindMR)
			return nil, err
		}
	}
	switch attr.Kind {
	case HostMemory:
		err = mr.registerHost(&attr)
	case DMABufFD:
		err = mr.registerDMABuf(&attr)
	default:
		err = pd.ctx.refuse(&attr, CauseNotSupported, unix.EOPNOTSUPP, "", "register the memory as a dma-buf")
	}
	if err != nil {
		mr.letGo()
		pd.drop(kindMR)
		return nil, err
	}
	mr.serial = pd.ctx.numbers.registered()
	return mr, nil
}

// mrBlocks hands out MRs from blocks: to allocate each by itself takes longer
// than all else that Go does for a registration. A block lives as long as one
// of its MRs is referred to.
type mrBlocks struct{ now atomic.Pointer[mrBlock] }

type mrBlock struct {
	used atomic.Int32
	mrs  [16]MR
}

// next returns an MR that nobody else has. Of two callers that find a block
// used up, one's new block is lost to the other's, but for the MR it took.
func (b *mrBlocks) next() *MR {
	if now := b.now.Load(); now != nil {
		if i := now.used.Add(1) - 1; int(i) < len(now.mrs) {
			return &now.mrs[i]
		}
	}
	fresh := new(mrBlock)
	fresh.used.Store(1)
	b.now.Store(fresh)
	return &fresh.mrs[0]
}

func (m *MR) registerHost(attr *MRAttr) error {
	c := m.pd.ctx
	addr := addrOf(attr.Host) + attr.Offset
	if attr.IOVA == 0 {
		m.iova = addr
	}
	if !attr.SkipChecks {
		if err := c.checkHost(attr); err != nil {
			return err
		}
	}
	m.route = RouteHost
	var start time.Time
	if attr.Timed {
		start = time.Now()
	}
	v, err := m.pd.v.regHost(addr, attr.Length, m.iova, attr.Access)
	if attr.Timed {
		m.took = time.Since(start)
	}
	if err != nil {
		return c.explainHost(attr, err)
	}
	m.made = fromVerbs(v)
	return nil
}

func fromVerbs(v verbsMR) registered {
	lkey, rkey, handle := v.keys()
	return registered{v, lkey, rkey, handle}
}

func (m *MR) registerDMABuf(attr *MRAttr) error {
	if attr.Buf == nil {
		return m.registerFD(attr)
	}
	fd, err := attr.Buf.Acquire()
	if err != nil {
		return m.pd.ctx.refuse(attr, CauseClosedFD, 0, "the Buf is closed", "register before closing it").because(err)
	}
	err = m.registerOpen(attr, fd, uint64(attr.Buf.Size()))
	attr.Buf.Release()
	return err
}

// registerOpen registers an open descriptor of a buffer of size bytes.
func (m *MR) registerOpen(attr *MRAttr, fd int, size uint64) error {
	if !attr.SkipChecks && !attr.sound(size) {
		if err := m.pd.ctx.faultOf(attr, size); err != nil {
			return err
		}
	}
	var start time.Time
	if attr.Timed {
		m.pd.prepare(attr.Policy)
		start = time.Now()
	}
	var n unix.Errno
	m.made, m.route, n = m.pd.routes(attr, fd)
	if attr.Timed {
		m.took = time.Since(start)
	}
	if n != 0 {
		return m.pd.explainDMABuf(attr, fd, m.route, n)
	}
	return nil
}

// prepare finds out, once per context, what routes would, so that it is not
// part of a registration's time.
func (pd *PD) prepare(p RoutePolicy) {
	switch p {
	case RouteAuto:
		pd.dmabufSupport()
	case RouteIoctlOnly:
		_, _ = pd.ctx.file.Identify() // the registration reports a failure
	}
}

// routes tries what the policy allows and returns which route was the last.
func (pd *PD) routes(attr *MRAttr, fd int) (registered, Route, unix.Errno) {
	if attr.Policy == RouteIoctlOnly || attr.Policy == RouteAuto && pd.ctx.onlyIoctl() {
		return pd.byIoctl(attr, fd)
	}
	v, err := pd.v.regDMABuf(attr.Offset, attr.Length, attr.IOVA, fd, attr.Access)
	if err == nil {
		return fromVerbs(v), RouteProvider, 0
	}
	n := errnoOf(err)
	if attr.Policy == RouteAuto && (n == unix.EOPNOTSUPP || n == errNoSymbol) && pd.dmabufSupport().provider != Yes {
		return pd.byIoctl(attr, fd)
	}
	return registered{}, RouteProvider, n
}

func (pd *PD) byIoctl(attr *MRAttr, fd int) (registered, Route, unix.Errno) {
	mr, err := pd.ctx.file.RegDMABufMR(pd.kernelMR(attr, fd))
	if err != nil {
		return registered{}, RouteIoctl, errnoOf(err)
	}
	return registered{nil, mr.LKey, mr.RKey, mr.Handle}, RouteIoctl, 0
}

func (pd *PD) kernelMR(attr *MRAttr, fd int) uverbs.DMABufMR {
	return uverbs.DMABufMR{
		PD: pd.handle, FD: int32(fd), Access: uint32(attr.Access),
		Offset: attr.Offset, Length: attr.Length, IOVA: attr.IOVA,
	}
}

// errnoOf is err's errno; an error without one would be a fault of ours, and
// EIO then at least says that it failed.
func errnoOf(err error) unix.Errno {
	if n, ok := errno.Of(err); ok {
		return n
	}
	return unix.EIO
}

// PD is the protection domain that the MR belongs to.
func (m *MR) PD() *PD { return m.pd }

// LKey is the key for the SGEs of work requests of this PD.
func (m *MR) LKey() uint32 { return m.made.lkey }

// RKey is the key for the peer's RDMA operations. Some drivers have none (0)
// for an MR without remote access.
func (m *MR) RKey() uint32 { return m.made.rkey }

// IOVA is the address of the MR's first byte in work requests.
func (m *MR) IOVA() uint64 { return m.iova }

// Length is the MR's length in bytes.
func (m *MR) Length() uint64 { return m.length }

// Access is what the MR allows.
func (m *MR) Access() Access { return m.access }

// Route is the way the registration took.
func (m *MR) Route() Route { return m.route }

// RegTime is how long the library or the kernel took to register: neither our
// own checks nor a context's first probe are in it. It is 0 unless MRAttr.Timed
// asked for it.
func (m *MR) RegTime() time.Duration { return m.took }

// Close deregisters the MR and lets go of its owner. Queue pairs that still
// use it get errors. If the kernel refuses (a memory window is bound to it),
// the MR stays registered and open, and Close may be called again. Closing
// again after success does nothing.
func (m *MR) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	// A device that is gone does not refuse: the kernel has destroyed the MR,
	// and says so (rdma_lookup_get_uobject in core/rdma_core.c).
	if m.made.v != nil {
		if err := m.made.v.dereg(); err != nil {
			return m.explainDereg("ibv_dereg_mr", err)
		}
	} else if err := m.pd.ctx.file.DestroyMR(m.made.handle); err != nil {
		return m.explainDereg("UVERBS_METHOD_MR_DESTROY", err)
	}
	m.closed = true
	m.pd.drop(kindMR)
	m.letGo()
	return nil
}

// letGo ends the hold on the owner, and forgets it: a block of MRs may live on.
func (m *MR) letGo() {
	if m.release != nil {
		m.release()
		m.release = nil
	}
}
