// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/fault"
	"github.com/gpurdma/gpurdma/ibvfd/internal/explain"
	"github.com/gpurdma/gpurdma/ibvfd/internal/libibverbs"
	"github.com/gpurdma/gpurdma/ibvfd/uverbs"
)

// ReregFlags say what of an MR to change. The numbers are those of
// IBV_REREG_MR_CHANGE_*.
type ReregFlags int

// The properties of an MR that Rereg can change.
const (
	ReregMemory ReregFlags = 1 << 0 // descriptor, host memory, range, IOVA: CHANGE_TRANSLATION
	ReregPD     ReregFlags = 1 << 1
	ReregAccess ReregFlags = 1 << 2

	reregAll = ReregMemory | ReregPD | ReregAccess
)

// InPlace says whether a re-registration may, or must, keep the keys.
type InPlace int

// The choices.
const (
	// InPlaceAuto keeps the keys where kernel and driver can, and leave the MR
	// as it was when they refuse, and makes new keys otherwise.
	InPlaceAuto InPlace = iota
	// InPlaceOnly fails where InPlaceAuto would make new keys.
	InPlaceOnly
	// InPlaceNever makes new keys, even if nothing else changes.
	InPlaceNever
)

// ReregAttr is what an MR is to become.
type ReregAttr struct {
	// Change names what to change; the rest of the MR stays.
	Change ReregFlags

	// MRAttr is the new memory, with all that belongs to it, if Change has
	// ReregMemory, and the new Access if it has ReregAccess. Timed counts
	// always, the other fields only with ReregMemory.
	MRAttr

	// PD, of the same context, is the new one if Change has ReregPD.
	PD *PD

	// InPlace is whether the keys may, must or must not stay.
	InPlace InPlace

	// KeepOld keeps the old registration beside the new one, under its old
	// keys, until [MR.DropOld] or Close: for operations in flight and for peers
	// that do not know the new keys yet. Nothing changes in place then.
	KeepOld bool
}

// Rereg changes an MR's memory, PD or access: ibv_rereg_mr(3), and for dma-bufs
// the ibv_rereg_mr_fd that was proposed.
//
// It happens in one of two ways.
//
//   - In place: the kernel makes the change and the keys stay. The memory, PD and access of
//     an MR on a dma-buf change in place with the patches of kernel/patches/rdma-rereg, if
//     the driver implements the change, as rxe does there. An operation in flight then goes
//     on, each packet of it on the old memory or on the new. rxe (Linux 6.5 and newer) and
//     mlx5 (between local write, remote write and remote read) also change PD and access of
//     other MRs in place, all of it or nothing; those of dma-bufs only before Linux 7.3,
//     whose core refuses it. The change holds for operations in flight as well.
//   - Anew: Rereg registers the memory a second time, the MR shows the new registration,
//     and the old one ends, at once or by DropOld. Keys and handle change, and [MR.State]
//     returns the new ones. An operation in flight under the old keys goes on until the old
//     registration ends, and fails from then on.
//
// Host memory is always registered anew, and so are a dma-buf in the place of host
// memory and the reverse. The kernel is never asked to change them: its call for
// that can lose the MR, and mlx5 would make a host MR of a dma-buf MR.
//
// These stay: the *MR, and all that Change does not name. These may change: keys,
// kernel handle, number ([MR.ID]), and Route. The old owner is released when the
// old registration ends.
//
// An error leaves the MR as it was, with its keys. Such an error is a
// *[RegError] as from RegMR, or says why the old registration could not end (a
// memory window is bound to it).
//
// Registering anew takes the memory from where RegMR had it. A Buf that was
// closed since, and a raw descriptor, must be given again with ReregMemory.
//
// Rereg may be called while other goroutines use the MR; re-registrations of
// one MR happen one after another.
func (m *MR) Rereg(attr ReregAttr) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return os.ErrClosed
	}
	cur := m.reg()
	pd, next, err := cur.changed(&attr)
	if err != nil {
		return err
	}
	if attr.InPlace != InPlaceNever && pd == cur.pd && next.Access == cur.access && attr.Change&ReregMemory == 0 {
		return nil // nothing changes
	}
	if err := m.inPlace(cur, pd, next, &attr); err == nil {
		return nil
	} else if attr.InPlace == InPlaceOnly {
		return cur.refuseRereg(next, err)
	}
	return m.anew(cur, pd, next, &attr)
}

// DropOld ends the registrations that Rereg kept with KeepOld; operations under
// their keys fail from then on. A registration that the kernel keeps stays, and
// DropOld may be called again. Without any it does nothing.
func (m *MR) DropOld() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dropOld()
}

// changed returns the PD and the attributes that r has after the change.
func (r *registration) changed(attr *ReregAttr) (*PD, *MRAttr, error) {
	next := attr.MRAttr
	if attr.Change&ReregMemory == 0 {
		next = r.source()
		next.Access, next.Timed = attr.Access, attr.Timed
	}
	if attr.Change&ReregAccess == 0 {
		next.Access = r.access
	}
	invalid := func(detail, remedy string) error {
		return r.pd.ctx.refuse(&next, fault.CauseUnknown, unix.EINVAL, detail, remedy).rereg()
	}
	if attr.Change == 0 || attr.Change&^reregAll != 0 {
		return nil, nil, invalid("", "say what to change: ReregMemory, ReregPD, ReregAccess")
	}
	pd := r.pd
	if attr.Change&ReregPD != 0 {
		switch pd = attr.PD; {
		case pd == nil:
			return nil, nil, invalid("no PD", "give the new one")
		case pd.ctx != r.pd.ctx:
			return nil, nil, invalid("the new PD belongs to another context, on "+pd.ctx.name, "register the memory there with RegMR")
		}
	}
	return pd, &next, nil
}

// errNotInPlace: by the rules of Rereg this change needs a new registration.
var errNotInPlace = errors.New("the keys cannot stay")

// inPlace lets the kernel change r. An error means that nothing has changed.
func (m *MR) inPlace(r *registration, pd *PD, next *MRAttr, attr *ReregAttr) error {
	c := r.pd.ctx
	switch {
	case attr.InPlace == InPlaceNever || attr.KeepOld || r.peer:
		return errNotInPlace
	case attr.Change&ReregMemory != 0:
		return m.moved(r, pd, next)
	case !c.changesInPlace(r.access ^ next.Access):
		return errNotInPlace
	}
	if MemoryKind(r.kind) == DMABufFD {
		if err := c.broken(next, explain.First(explain.BadDMABufAccess(uint32(next.Access)), explain.BadRemoteAccess(uint32(next.Access)))); err != nil {
			return err
		}
	}
	if err := pd.enter(); err != nil {
		return err
	}
	defer pd.leave()
	fresh := *r
	fresh.pd, fresh.access = pd, next.Access
	if err := fresh.change(r); err != nil {
		return err
	}
	// The hold on the owner, and the PD's count, are the new one's now.
	if pd != r.pd {
		pd.hold(kindMR)
		r.pd.drop(kindMR)
	}
	r.forget()
	r.ended = true
	m.now.Store(&fresh)
	return nil
}

// moved lets the kernel put r on the dma-buf of next. An error means that nothing has changed.
func (m *MR) moved(r *registration, pd *PD, next *MRAttr) error {
	if MemoryKind(r.kind) != DMABufFD || next.Kind != DMABufFD || next.unexported() {
		return errNotInPlace
	}
	fresh := &registration{over: r}
	if err := fresh.register(pd, next); err != nil {
		var e *RegError
		if errors.As(err, &e) && e.Earliest != fault.StageArgs && (e.Errno == unix.EPROTONOSUPPORT || e.Errno == unix.EOPNOTSUPP) {
			return unix.EOPNOTSUPP // of the kernel, or of the driver
		}
		return err
	}
	fresh.over = nil
	if pd != r.pd && r.made.v != nil {
		r.made.v.Moved(pd.v)
	}
	m.now.Store(fresh)
	r.gone()
	return nil
}

// change asks the library or the kernel to give was the PD and the access of r.
// libibverbs refuses to re-register dma-buf MRs, and rxe's provider lacks the op: the
// kernel is then called directly, which the drivers that changesInPlace accepts allow
// without vendor data.
func (r *registration) change(was *registration) error {
	var pd *PD
	var access *uint32
	if r.pd != was.pd {
		pd = r.pd
	}
	if r.access != was.access {
		bits := uint32(r.access)
		access = &bits
	}
	if MemoryKind(r.kind) == HostMemory {
		err := r.made.v.Rereg(verbsOf(pd), access)
		if err == nil {
			r.made = fromVerbs(r.made.v)
			return nil
		}
		if n := errnoOf(err); n != unix.EOPNOTSUPP && n != explain.NoSymbol {
			return err
		}
	}
	var handle *uint32
	if pd != nil {
		handle = &pd.handle
	}
	file := r.pd.ctx.file
	if MemoryKind(r.kind) == DMABufFD {
		switch err := file.ReregDMABufMR(r.made.handle, uverbs.DMABufRereg{PD: handle, Access: access}); {
		case errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.EOPNOTSUPP):
		case err != nil:
			return err
		default:
			if r.made.v != nil && pd != nil {
				r.made.v.Moved(pd.v)
			}
			return nil
		}
	}
	mr, err := file.ReregMR(r.made.handle, uverbs.Rereg{PD: handle, Access: access})
	if err != nil {
		return err
	}
	if r.made.lkey != mr.LKey && r.foreign() {
		r.pd.ctx.foreign.Add(mr.LKey)
		r.pd.ctx.foreign.Remove(r.made.lkey)
	}
	r.made.lkey, r.made.rkey = mr.LKey, mr.RKey
	if r.made.v != nil && pd != nil {
		r.made.v.Moved(pd.v)
	}
	return nil
}

// verbsOf returns the library's object of pd, nil for a nil pd.
func verbsOf(pd *PD) libibverbs.PD {
	if pd == nil {
		return nil
	}
	return pd.v
}

// changesInPlace reports whether the device's driver changes PD, and those
// access flags, either wholly or not at all. Others (irdma, hns, mlx4) take the
// MR out of the hardware first, and lose it if they cannot put it back. mlx5
// has one firmware command for these three flags on every device; for other flags
// it may have to take the MR out too (can_use_umr_rereg_access in mlx5/mr.c). rxe
// finds out only while it registers whether memory is persistent
// (rxe_rereg_user_mr in rxe_verbs.c takes the flag as it is).
func (c *Context) changesInPlace(flags Access) bool {
	switch driver, err := c.file.Identify(); {
	case err != nil:
		return false
	case driver == uverbs.DriverRXE:
		return flags&AccessFlushPersistent == 0
	case driver == uverbs.DriverMLX5:
		return flags&^(AccessLocalWrite|AccessRemoteWrite|AccessRemoteRead) == 0
	}
	return false
}

// anew registers next beside r, shows it, and ends r unless it is to be kept.
func (m *MR) anew(r *registration, pd *PD, next *MRAttr, attr *ReregAttr) error {
	pointed := next.unexported() && (r.peer || attr.Change&ReregMemory != 0)
	if next.Kind == DMABufFD && next.Buf == nil && next.FD < 0 && !pointed || next.Buf != nil && next.Buf.Closed() {
		return pd.ctx.refuse(next, fault.CauseClosedFD, 0, "the MR's keys cannot stay, and its buffer's descriptor is not at hand", "give the buffer again, with ReregMemory").because(os.ErrClosed).rereg()
	}
	fresh := new(registration)
	if err := fresh.register(pd, next); err != nil {
		return asRereg(err)
	}
	m.now.Store(fresh)
	if attr.KeepOld {
		m.keep(r)
		return nil
	}
	if err := r.end(); err != nil {
		m.now.Store(r)
		if e := fresh.end(); e != nil {
			err = errors.Join(err, e)
			m.keep(fresh)
		}
		return err
	}
	return nil
}

// refuseRereg is the error of a change that InPlaceOnly does not allow to be made anew.
func (r *registration) refuseRereg(next *MRAttr, err error) error {
	var e *RegError
	if errors.As(err, &e) {
		return e.rereg()
	}
	if errors.Is(err, os.ErrClosed) {
		return err
	}
	if errors.Is(err, errNotInPlace) {
		return r.pd.ctx.refuse(next, fault.CauseNotSupported, unix.EOPNOTSUPP, "this change would make new keys", "allow InPlaceAuto, and tell the peers the new keys").rereg()
	}
	n := errnoOf(err)
	e = &RegError{Device: r.pd.ctx.name, Route: r.route(), Attr: *next, Errno: n, Earliest: fault.StageProvider, Latest: fault.StageDriver, Cause: fault.CauseUnknown}
	switch n {
	case unix.EOPNOTSUPP:
		e.Cause, e.Detail = fault.CauseNotSupported, "the kernel or its driver does not change this in place"
	case unix.EACCES:
		e.Cause, e.Detail = fault.CausePermission, "the memory was pinned for reading only"
	}
	e.Remedy = "allow InPlaceAuto, and tell the peers the new keys"
	return e.rereg()
}

// rereg marks the error as a re-registration's.
func (e *RegError) rereg() *RegError {
	e.Rereg = true
	return e
}

func asRereg(err error) error {
	var e *RegError
	if errors.As(err, &e) {
		e.rereg()
	}
	return err
}
