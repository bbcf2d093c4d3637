// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// fault is a rule of the kernel's that an MRAttr breaks.
type fault struct {
	cause          Cause
	errno          unix.Errno
	detail, remedy string
}

// refuse is the error of our own checks: nothing was called.
func (c *Context) refuse(attr *MRAttr, cause Cause, n unix.Errno, detail, remedy string) *RegError {
	return &RegError{
		Device: c.name, Attr: *attr, Errno: n, Earliest: StageArgs, Latest: StageArgs,
		Cause: cause, Detail: detail, Remedy: remedy,
	}
}

// because adds a sentinel to Unwrap's answer.
func (e *RegError) because(err error) *RegError {
	e.err = err
	return e
}

// check refuses for the first fault.
func (c *Context) check(attr *MRAttr, faults ...*fault) error {
	for _, f := range faults {
		if f != nil {
			return c.refuse(attr, f.cause, f.errno, f.detail, f.remedy)
		}
	}
	return nil
}

// faultOf says which rule for a dma-buf attr breaks, if it does: nil where it is
// sound.
func (c *Context) faultOf(attr *MRAttr, size uint64) error {
	return c.check(attr, badLength(attr), badAlignment(attr), badDMABufAccess(attr.Access), badRemoteAccess(attr.Access), beyond(attr, size))
}

// sound reports whether attr breaks no rule for a dma-buf of that many bytes;
// math.MaxUint64 stands for a size that is not known. It is what a registration
// that is right pays for the rules.
func (a *MRAttr) sound(size uint64) bool {
	return a.Length != 0 && a.Length <= size && a.Offset <= size-a.Length &&
		a.IOVA <= math.MaxUint64-a.Length && (a.Offset^a.IOVA)&uint64(pageSize-1) == 0 &&
		a.Access&^dmabufAccess == 0 &&
		(a.Access&AccessLocalWrite != 0 || a.Access&(AccessRemoteWrite|AccessRemoteAtomic) == 0)
}

func (c *Context) checkHost(attr *MRAttr) error {
	return c.check(attr, badLength(attr), beyond(attr, uint64(len(attr.Host))), badRemoteAccess(attr.Access))
}

// badLength: no driver registers nothing, and sums must not overflow
// (ib_umem_dmabuf_get in drivers/infiniband/core/umem_dmabuf.c).
func badLength(attr *MRAttr) *fault {
	switch {
	case attr.Length == 0:
		return &fault{CauseBadRange, unix.EINVAL, "length 0", "register 1 byte or more"}
	case attr.Offset > math.MaxUint64-attr.Length:
		return &fault{CauseBadRange, unix.EINVAL, fmt.Sprintf("offset %#x + length %#x overflows", attr.Offset, attr.Length), "choose a range inside the buffer"}
	case attr.IOVA > math.MaxUint64-attr.Length:
		return &fault{CauseBadRange, unix.EINVAL, fmt.Sprintf("IOVA %#x + length %#x overflows", attr.IOVA, attr.Length), "choose a smaller IOVA"}
	}
	return nil
}

// beyond: the range must lie in the buffer.
func beyond(attr *MRAttr, size uint64) *fault {
	if attr.Offset <= size && attr.Length <= size-attr.Offset {
		return nil
	}
	return &fault{
		CauseBadRange, unix.EINVAL,
		fmt.Sprintf("offset %#x + length %#x > size %#x", attr.Offset, attr.Length, size),
		"choose a range inside the buffer",
	}
}

// badAlignment: a NIC maps whole pages, so the range begins at the same place
// in a page for both sides (UVERBS_METHOD_REG_DMABUF_MR).
func badAlignment(attr *MRAttr) *fault {
	mask := uint64(pageSize - 1)
	if attr.Offset&mask == attr.IOVA&mask {
		return nil
	}
	return &fault{
		CauseAlignment, unix.EINVAL,
		fmt.Sprintf("offset %#x and IOVA %#x differ within a page of %#x bytes", attr.Offset, attr.IOVA, mask+1),
		fmt.Sprintf("use an IOVA that ends like the offset, such as %#x", attr.IOVA&^mask|attr.Offset&mask),
	}
}

func badDMABufAccess(a Access) *fault {
	more := a &^ dmabufAccess
	if more == 0 {
		return nil
	}
	f := &fault{CauseAccess, unix.EINVAL, "a dma-buf MR cannot have " + more.String(), "leave " + more.String() + " out"}
	if more&^accessFlush == 0 {
		f.remedy += ": only host memory can be registered for FLUSH; a READ behind the WRITEs shows that they have arrived"
	}
	return f
}

// badFlushAccess is why a kernel answers EINVAL to these flags on host memory: it
// is older than they are, or rxe has found the memory not to be persistent
// (rxe_mr_fill_pages_from_sgt in rxe_mr.c).
func badFlushAccess(a Access) *fault {
	a &= accessFlush
	if a == 0 {
		return nil
	}
	f := &fault{CauseAccess, unix.EINVAL, a.String() + " takes Linux 6.2", "leave " + a.String() + " out"}
	if a&AccessFlushPersistent != 0 {
		f.detail += " and memory that is persistent"
		f.remedy = "register memory of a DAX file or device, or leave flush-persistent out: flush-global is for all memory"
	}
	return f
}

// badRemoteAccess: who lets a peer write must let the NIC write
// (ib_check_mr_access in include/rdma/ib_verbs.h).
func badRemoteAccess(a Access) *fault {
	if a&(AccessRemoteWrite|AccessRemoteAtomic) != 0 && a&AccessLocalWrite == 0 {
		return &fault{CauseAccess, unix.EINVAL, a.String() + " without local-write", "add local-write"}
	}
	return nil
}
