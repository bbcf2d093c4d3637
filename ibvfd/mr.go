// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// MR is a memory region. The queue pairs of its PD name it by the local key, and their peers by the
// remote key. [MR.Rereg] may change everything but the *MR itself.
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

// RegMR registers memory. A refusal is a *[RegError]. The error is os.ErrClosed if the PD or the Owner
// is closed. The caller closes the MR before the PD.
//
// For a dma-buf the kernel needs Linux 5.12 and a driver that registers them:
// in 6.1 mlx5 and efa, in 6.12 also irdma and bnxt_re, in 7.2 also mana and
// ionic. rdma-core has ibv_reg_dmabuf_mr since version 34. If the provider
// does not implement it, RouteAuto calls the kernel directly: [MR.Route] says so.
func (pd *PD) RegMR(attr MRAttr) (*MR, error) {
	mr := pd.mrs.next()
	if err := mr.first.register(pd, &attr); err != nil {
		return nil, err
	}
	return mr, nil
}

// mrBlocks allocates MRs in blocks, because an allocation for each takes longer than all else that Go
// does for a registration. The garbage collector keeps a block as long as one of its MRs is in use.
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

// MRState has the values of an MR that belong together.
type MRState struct {
	PD         *PD
	LKey, RKey uint32
	IOVA       uint64
	Length     uint64
	Access     Access
	Route      Route
}

// State returns the values of one registration. If another goroutine calls Rereg meanwhile, a call of
// LKey and one of IOVA may return the values of two registrations.
func (m *MR) State() MRState {
	r := m.reg()
	return MRState{r.pd, r.made.lkey, r.made.rkey, r.iova, r.length, r.access, r.route()}
}

// PD returns the protection domain that the MR belongs to.
func (m *MR) PD() *PD { return m.reg().pd }

// LKey returns the key for the SGEs of work requests of this PD.
func (m *MR) LKey() uint32 { return m.reg().made.lkey }

// RKey returns the key for the peer's RDMA operations. Some drivers have none (0)
// for an MR without remote access.
func (m *MR) RKey() uint32 { return m.reg().made.rkey }

// IOVA returns the address of the MR's first byte in work requests.
func (m *MR) IOVA() uint64 { return m.reg().iova }

// Length returns the MR's length in bytes.
func (m *MR) Length() uint64 { return m.reg().length }

// Access returns the access that the MR allows.
func (m *MR) Access() Access { return m.reg().access }

// Route returns the call that registered the MR.
func (m *MR) Route() Route { return m.reg().route() }

// Why gives the reason for the route. With Data Direct it names the PCI function that moves the bytes;
// if the NIC's card has such a function and the MR does not use it, it says why. Otherwise it is "".
func (m *MR) Why() string { return m.reg().why }

// RegTime returns how long the library or the kernel took to register, without this package's checks
// and a context's first probe. It is 0 without MRAttr.Timed.
func (m *MR) RegTime() time.Duration { return m.reg().took }

// Close deregisters the MR and the registrations that [MR.Rereg] kept, and releases the owner. Work
// requests that still name the MR fail. If the kernel refuses, as while a memory window is bound, the
// MR stays registered and open, and the caller may call Close again. Closing again after success
// does nothing.
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

// keep keeps a registration that the MR does not show any more. m.mu is held.
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

// CloseAll closes MRs. If one cannot be closed, CloseAll goes on with the others. It returns those
// that are left, and the errors joined.
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

// ID returns the MR's identity. It asks RDMA netlink for the device's MRs, once for all MRs that were
// registered before.
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
