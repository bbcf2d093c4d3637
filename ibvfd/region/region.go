// SPDX-License-Identifier: Apache-2.0

package region

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/fault"
	"github.com/gpurdma/gpurdma/ibvfd/internal/explain"
)

// Segment is a part of a dma-buf.
type Segment struct {
	// Buf is nil for memory that cannot be exported. Only [ibvfd.RouteAutoPeerDirect] registers such
	// a segment, by its Addr. The caller may close Buf once Register, Rereg or Move has returned.
	Buf            *dmabuf.Buf
	Offset, Length uint64 // within Buf, in bytes
	// Addr is the device pointer of the segment's first byte, for
	// [ibvfd.RouteAutoPeerDirect]; 0 if there is none.
	Addr uint64
}

// pointer returns the device pointer of the dma-buf's first byte, 0 if there is none.
func (s *Segment) pointer() uint64 {
	if s.Addr < s.Offset {
		return 0
	}
	return s.Addr - s.Offset
}

// Attr says what to register: a range of a buffer that consists of
// segments.
type Attr struct {
	Segments       []Segment
	Offset, Length uint64 // of the range, in bytes of all segments together
	IOVA           uint64 // of the range's first byte; it goes on over the ends of segments
	Access         ibvfd.Access
	Owner          dmabuf.Holder // held by every MR
	Policy         ibvfd.RoutePolicy
	SkipChecks     bool // see ibvfd.MRAttr
	Timed          bool // see ibvfd.MRAttr
	KeepOld        bool // of Rereg: the old MRs stay until DropOld
}

// Region is one range that is registered in several PDs, which may belong to several
// NICs. It has an MR for each PD and segment. Its methods may be called from several goroutines at
// once.
type Region struct {
	mu     sync.Mutex
	mrs    map[*ibvfd.PD][]*ibvfd.MR
	pds    []*ibvfd.PD
	old    []*ibvfd.MR // kept by Rereg until DropOld
	attr   Attr        // the request that is registered now
	closed bool
}

// Register registers the range in every PD, or in none. The error is that of the first
// [ibvfd.PD.RegMR] that failed. If Register then could not deregister an MR that it had made, the
// error says that too: the PD keeps this MR, and the MR its owner, until [ibvfd.PD.Close] tries
// again. The caller closes the Region before the PDs.
func Register(attr Attr, pds ...*ibvfd.PD) (*Region, error) {
	mrs, err := attr.register(pds)
	if err != nil {
		return nil, err
	}
	return &Region{mrs: mrs, pds: slices.Clone(pds), attr: attr}, nil
}

// register registers the range in every PD, or leaves nothing that PD.Close does
// not end.
func (a *Attr) register(pds []*ibvfd.PD) (map[*ibvfd.PD][]*ibvfd.MR, error) {
	if len(pds) == 0 {
		return nil, &failure.Error{Op: "register region", Detail: "no PD", Err: unix.EINVAL}
	}
	mrs := map[*ibvfd.PD][]*ibvfd.MR{}
	for i, pd := range pds {
		if slices.Contains(pds[:i], pd) {
			continue
		}
		parts, err := a.parts(pd.Context().Name())
		for _, p := range parts {
			mr, e := pd.RegMR(p)
			if err = e; err != nil {
				break
			}
			mrs[pd] = append(mrs[pd], mr)
		}
		if err != nil {
			for pd, list := range mrs {
				err = errors.Join(err, pd.Discard(list...))
			}
			return nil, err
		}
	}
	return mrs, nil
}

// Rereg registers another range, or the same with another access, in pds, or in the PDs of
// before if none are given. It registers the range in every PD, or in none, before it closes an old
// MR. Then MRs returns the new MRs, which have new keys, and Rereg closes the old ones. With
// attr.KeepOld they stay until DropOld, for operations that use them.
//
// After a *[ibvfd.RegError] or os.ErrClosed the region is as it was. Any other error
// says which old MR could not be closed: the region has changed, and DropOld
// tries again.
func (r *Region) Rereg(attr Attr, pds ...*ibvfd.PD) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return os.ErrClosed
	}
	if len(pds) == 0 {
		pds = r.pds
	}
	mrs, err := attr.register(pds)
	if err != nil {
		return asRereg(err)
	}
	for _, pd := range r.pds {
		r.old = append(r.old, r.mrs[pd]...)
		delete(r.mrs, pd) // a PD may be named twice
	}
	r.mrs, r.pds, r.attr = mrs, slices.Clone(pds), attr
	if attr.KeepOld {
		return nil
	}
	return r.dropOld()
}

// Move puts the range on another buffer and keeps all keys and addresses. The new segments must have
// the lengths of the old ones. While Move runs, some MRs are on the old buffer and some on the new
// one. Move needs what [ibvfd.InPlaceOnly] needs for memory; without that the error is
// errors.ErrUnsupported.
//
// If an MR cannot be moved, Move puts those before it back on the old buffer. If that fails too, the
// error joins both, and the region is on both buffers: the caller calls Move or Rereg again, or
// closes the region.
func (r *Region) Move(attr Attr) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return os.ErrClosed
	}
	attr.Access = r.attr.Access
	moved, err := r.move(attr)
	if err != nil {
		for _, mr := range moved {
			if e := r.back(mr); e != nil {
				err = errors.Join(err, e)
			}
		}
		return asRereg(err)
	}
	r.attr = attr
	return nil
}

// place is an MR, and its number among those of its PD.
type place struct {
	mr *ibvfd.MR
	pd *ibvfd.PD
	i  int
}

// move moves the MRs until one cannot be moved, and returns those that it has moved.
func (r *Region) move(attr Attr) (moved []place, err error) {
	for _, pd := range r.pds {
		parts, err := attr.parts(pd.Context().Name())
		if err != nil {
			return moved, err
		}
		mrs := r.mrs[pd]
		for i, mr := range mrs {
			if len(parts) != len(mrs) || parts[i].Length != mr.Length() {
				return moved, refuse(pd.Context().Name(), &parts[0], fault.CauseNotSupported, unix.EOPNOTSUPP,
					fmt.Sprintf("the %d parts of the new buffer differ from the region's %d MRs in number or length", len(parts), len(mrs)), "use a buffer of the same segments")
			}
			if err := moveTo(mr, parts[i]); err != nil {
				return moved, err
			}
			moved = append(moved, place{mr, pd, i})
		}
	}
	return moved, nil
}

// back moves an MR to where it was.
func (r *Region) back(p place) error {
	parts, err := r.attr.parts(p.pd.Context().Name())
	if err != nil {
		return err
	}
	return moveTo(p.mr, parts[p.i])
}

// moveTo puts an MR on other memory, at its address.
func moveTo(mr *ibvfd.MR, to ibvfd.MRAttr) error {
	to.IOVA = mr.IOVA()
	return mr.Rereg(ibvfd.ReregAttr{Change: ibvfd.ReregMemory, MRAttr: to, InPlace: ibvfd.InPlaceOnly})
}

// DropOld closes the MRs that Rereg kept. An MR that cannot be closed stays, and
// DropOld may be called again.
func (r *Region) DropOld() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dropOld()
}

func (r *Region) dropOld() (err error) {
	r.old, err = ibvfd.CloseAll(r.old)
	return err
}

// parts cuts the range at the ends of segments.
func (a *Attr) parts(nic string) ([]ibvfd.MRAttr, error) {
	part := ibvfd.MRAttr{Kind: ibvfd.DMABufFD, FD: -1, Access: a.Access, Owner: a.Owner, Policy: a.Policy, SkipChecks: a.SkipChecks, Timed: a.Timed}
	var total uint64
	for _, s := range a.Segments {
		if s.Buf == nil && s.pointer() == 0 || total+s.Length < total || s.Offset+s.Length < s.Offset {
			return nil, refuse(nic, &part, fault.CauseBadRange, unix.EINVAL, "a segment without a Buf, or an Addr beyond its Offset, or one that ends beyond 2^64", "")
		}
		total += s.Length
	}
	whole := part
	whole.Offset, whole.Length, whole.IOVA = a.Offset, a.Length, a.IOVA
	if len(a.Segments) == 0 {
		return nil, refuse(nic, &whole, fault.CauseBadRange, unix.EINVAL, "no segments", "")
	}
	ask := explain.Request{Offset: whole.Offset, Length: whole.Length, IOVA: whole.IOVA, Access: uint32(whole.Access)}
	broken := explain.First(explain.BadLength(&ask), explain.Beyond(&ask, total))
	if len(a.Segments) == 1 {
		whole.Buf, whole.Pointer = a.Segments[0].Buf, a.Segments[0].pointer()
		if broken != nil && !a.SkipChecks {
			return nil, refuse(nic, &whole, broken.Cause, broken.Errno, broken.Detail, broken.Remedy)
		}
		whole.Offset += a.Segments[0].Offset
		return []ibvfd.MRAttr{whole}, nil
	}
	if f := broken; f != nil {
		// Across segments no single question can be put to the kernel.
		return nil, refuse(nic, &whole, f.Cause, f.Errno, fmt.Sprintf("%s (%d segments)", f.Detail, len(a.Segments)), f.Remedy)
	}
	var list []ibvfd.MRAttr
	skip, left, iova := a.Offset, a.Length, a.IOVA
	for _, s := range a.Segments {
		if skip >= s.Length {
			skip -= s.Length
			continue
		}
		n := min(s.Length-skip, left)
		if n == 0 {
			break
		}
		p := part
		p.Buf, p.Pointer, p.Offset, p.Length, p.IOVA = s.Buf, s.pointer(), s.Offset+skip, n, iova
		list = append(list, p)
		skip, left, iova = 0, left-n, iova+n
	}
	return list, nil
}

// MRs returns the region's MRs in pd, in the order of addresses. It returns nil for a PD in which
// the region is not registered, and after Close. The region owns them: the caller does not close
// them.
func (r *Region) MRs(pd *ibvfd.PD) []*ibvfd.MR {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.mrs[pd])
}

// Close deregisters every MR. If one cannot be deregistered, Close goes on with the others and
// returns the errors joined. The caller may call it again for those that are left.
func (r *Region) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	err := r.dropOld()
	for _, pd := range r.pds {
		left, e := ibvfd.CloseAll(r.mrs[pd])
		err = errors.Join(err, e)
		if left == nil {
			delete(r.mrs, pd)
		} else {
			r.mrs[pd] = left
		}
	}
	return err
}

// refuse is the error of our own checks: nothing was called.
func refuse(nic string, attr *ibvfd.MRAttr, cause fault.Cause, n unix.Errno, detail, remedy string) error {
	return &ibvfd.RegError{
		Device: nic, Attr: *attr, Errno: n, Earliest: fault.StageArgs, Latest: fault.StageArgs,
		Cause: cause, Detail: detail, Remedy: remedy,
	}
}

// asRereg marks a refusal as that of a re-registration.
func asRereg(err error) error {
	var e *ibvfd.RegError
	if errors.As(err, &e) {
		e.Rereg = true
	}
	return err
}
