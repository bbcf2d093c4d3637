// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// MR is a memory region. Its keys work with the queue pairs of its PD, and the
// remote key with their peers. [MR.Rereg] may change everything but the MR
// itself.
type MR struct {
	mu     sync.Mutex // held while Close, Rereg, DropOld or ID is under way
	closed bool
	first  registration
	now    atomic.Pointer[registration] // nil until the first Rereg, so that RegMR allocates nothing for it
	old    *registration                // still registered after a Rereg: a list
}

// reg returns the registration that the MR shows.
func (m *MR) reg() *registration {
	if r := m.now.Load(); r != nil {
		return r
	}
	return &m.first
}

// RegMR registers memory. A refusal is a *[RegError]; a PD or Owner that is
// closed already is os.ErrClosed.
//
// For a dma-buf the kernel needs Linux 5.12 and a driver that registers them:
// in 6.1 mlx5 and efa, in 6.12 also irdma and bnxt_re, in 7.2 also mana and
// ionic. rdma-core has ibv_reg_dmabuf_mr since version 34. Where the provider
// lacks the op, RouteAuto calls the kernel directly; [MR.Route] tells.
func (pd *PD) RegMR(attr MRAttr) (*MR, error) {
	mr := pd.mrs.next()
	if err := mr.first.register(pd, &attr); err != nil {
		return nil, err
	}
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

// next returns an MR that no other caller has. If two callers find a block used up,
// each makes a new one: later calls use only one of the two.
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

// MRState is what an MR is at one moment.
type MRState struct {
	PD         *PD
	LKey, RKey uint32
	IOVA       uint64
	Length     uint64
	Access     Access
	Route      Route
}

// State returns what belongs together. While another goroutine may call Rereg,
// LKey and then IOVA can be those of two registrations; State's never are.
func (m *MR) State() MRState {
	r := m.reg()
	return MRState{r.pd, r.made.lkey, r.made.rkey, r.iova, r.length, r.access, r.route()}
}

// PD is the protection domain that the MR belongs to.
func (m *MR) PD() *PD { return m.reg().pd }

// LKey is the key for the SGEs of work requests of this PD.
func (m *MR) LKey() uint32 { return m.reg().made.lkey }

// RKey is the key for the peer's RDMA operations. Some drivers have none (0)
// for an MR without remote access.
func (m *MR) RKey() uint32 { return m.reg().made.rkey }

// IOVA is the address of the MR's first byte in work requests.
func (m *MR) IOVA() uint64 { return m.reg().iova }

// Length is the MR's length in bytes.
func (m *MR) Length() uint64 { return m.reg().length }

// Access is what the MR allows.
func (m *MR) Access() Access { return m.reg().access }

// Route is the way the registration took.
func (m *MR) Route() Route { return m.reg().route() }

// Why says more about the route: which DMA function moves the bytes (Data Direct), or why
// none does although the NIC's card has one. It is "" otherwise.
func (m *MR) Why() string { return m.reg().why }

// RegTime is how long the library or the kernel took to register: neither our
// own checks nor a context's first probe are in it. It is 0 unless MRAttr.Timed
// asked for it.
func (m *MR) RegTime() time.Duration { return m.reg().took }

// Close deregisters the MR and the registrations that [MR.Rereg] kept, and releases
// its owner. Queue pairs that still use it get errors. If the kernel refuses (a
// memory window is bound to it), the MR stays registered and open, and Close
// may be called again. Closing again after success does nothing.
func (m *MR) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	// The registration that the MR shows ends last: an MR that stays open is still registered.
	var err error
	if m.old != nil {
		err = m.dropOld()
	}
	if err == nil {
		err = m.reg().end()
	}
	m.closed = err == nil
	return err
}

// keep keeps r beside what the MR shows; m.mu is held.
func (m *MR) keep(r *registration) { r.older, m.old = m.old, r }

// dropOld deregisters the registrations that Rereg kept; m.mu is held. A
// registration that cannot end stays.
func (m *MR) dropOld() (err error) {
	list := m.old
	m.old = nil
	for list != nil {
		r := list
		list = r.older
		if e := r.end(); e != nil {
			err = errors.Join(err, e)
			m.keep(r)
		}
	}
	return err
}

// CloseAll closes MRs. It goes on after a failure and returns what is left.
func CloseAll(mrs []*MR) (left []*MR, err error) {
	for _, mr := range mrs {
		if e := mr.Close(); e != nil {
			err = errors.Join(err, e)
			left = append(left, mr)
		}
	}
	return left, err
}

// MRID identifies an MR for tracers and for `rdma resource show mr`.
type MRID struct {
	Device string `json:"device"`
	// Number is the kernel's mrn. NumberKnown is false if it could not be told
	// for certain: RDMA netlink shows the keys, by which the MR is found, to
	// CAP_NET_ADMIN only.
	Number      uint32 `json:"mrn"`
	NumberKnown bool   `json:"mrn_known"`
	LKey        uint32 `json:"lkey"`
	RKey        uint32 `json:"rkey"`
	PID         int    `json:"pid"`
	Handle      uint32 `json:"handle"` // uverbs object handle, of the context's descriptor
}

// ID returns the MR's identity. It asks RDMA netlink for the device's MRs,
// once for all MRs registered so far.
func (m *MR) ID() MRID {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.reg()
	id := MRID{Device: r.pd.ctx.name, LKey: r.made.lkey, RKey: r.made.rkey, PID: os.Getpid(), Handle: r.made.handle}
	if m.closed {
		return id // deregistered: its keys may be another MR's by now
	}
	id.Number, id.NumberKnown = r.pd.ctx.numbers.Find(r.pd.ctx.name, r.serial, r.made.lkey, r.made.rkey)
	return id
}
