// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/fault"
	"github.com/gpurdma/gpurdma/ibvfd/uverbs"
)

// Request is what a registration asks for, as far as the rules look at it.
type Request struct {
	Offset, Length, IOVA uint64
	Access               uint32 // uverbs.AccessLocalWrite and so on
}

// Breach is a rule of the kernel's that a Request breaks.
type Breach struct {
	Cause          fault.Cause
	Errno          unix.Errno
	Detail, Remedy string
}

// First is the first breach of those that are not nil.
func First(breaches ...*Breach) *Breach {
	for _, b := range breaches {
		if b != nil {
			return b
		}
	}
	return nil
}

// OfDMABuf says which rule for a dma-buf of size bytes the request breaks, if it does:
// nil where it is sound.
func OfDMABuf(a *Request, size uint64) *Breach {
	return First(BadLength(a), badAlignment(a), BadDMABufAccess(a.Access), BadRemoteAccess(a.Access), Beyond(a, size))
}

// OfHost is that for host memory of size bytes.
func OfHost(a *Request, size uint64) *Breach {
	return First(BadLength(a), Beyond(a, size), BadRemoteAccess(a.Access))
}

// Sound reports whether a breaks no rule for a dma-buf of that many bytes;
// math.MaxUint64 stands for a size that is not known. A valid registration runs only
// this check.
func (a *Request) Sound(size uint64) bool {
	return a.Length != 0 && a.Length <= size && a.Offset <= size-a.Length &&
		a.IOVA <= math.MaxUint64-a.Length && (a.Offset^a.IOVA)&uint64(pageSize-1) == 0 &&
		a.Access&^dmabufAccess == 0 &&
		(a.Access&uverbs.AccessLocalWrite != 0 || a.Access&(uverbs.AccessRemoteWrite|uverbs.AccessRemoteAtomic) == 0)
}

// BadLength refuses length 0, which no driver registers, and sums that overflow
// (ib_umem_dmabuf_get in drivers/infiniband/core/umem_dmabuf.c).
func BadLength(attr *Request) *Breach {
	switch {
	case attr.Length == 0:
		return &Breach{fault.CauseBadRange, unix.EINVAL, "length 0", "register 1 byte or more"}
	case attr.Offset > math.MaxUint64-attr.Length:
		return &Breach{fault.CauseBadRange, unix.EINVAL, fmt.Sprintf("offset %#x + length %#x overflows", attr.Offset, attr.Length), "choose a range inside the buffer"}
	case attr.IOVA > math.MaxUint64-attr.Length:
		return &Breach{fault.CauseBadRange, unix.EINVAL, fmt.Sprintf("IOVA %#x + length %#x overflows", attr.IOVA, attr.Length), "choose a smaller IOVA"}
	}
	return nil
}

// Beyond refuses a range that does not lie in the buffer.
func Beyond(attr *Request, size uint64) *Breach {
	if attr.Offset <= size && attr.Length <= size-attr.Offset {
		return nil
	}
	return &Breach{
		fault.CauseBadRange, unix.EINVAL,
		fmt.Sprintf("offset %#x + length %#x > size %#x", attr.Offset, attr.Length, size),
		"choose a range inside the buffer",
	}
}

// badAlignment: a NIC maps whole pages, so the range begins at the same place
// in a page for both sides (UVERBS_METHOD_REG_DMABUF_MR).
func badAlignment(attr *Request) *Breach {
	mask := uint64(pageSize - 1)
	if attr.Offset&mask == attr.IOVA&mask {
		return nil
	}
	return &Breach{
		fault.CauseAlignment, unix.EINVAL,
		fmt.Sprintf("offset %#x and IOVA %#x differ within a page of %#x bytes", attr.Offset, attr.IOVA, mask+1),
		fmt.Sprintf("use an IOVA that ends like the offset, such as %#x", attr.IOVA&^mask|attr.Offset&mask),
	}
}

// BadDMABufAccess refuses access flags that the kernel gives to no dma-buf MR
// (UVERBS_METHOD_REG_DMABUF_MR in drivers/infiniband/core/uverbs_std_types_mr.c).
func BadDMABufAccess(a uint32) *Breach {
	more := a &^ dmabufAccess
	if more == 0 {
		return nil
	}
	f := &Breach{fault.CauseAccess, unix.EINVAL, "a dma-buf MR cannot have " + uverbs.AccessNames(more), "leave " + uverbs.AccessNames(more) + " out"}
	if more&^accessFlush == 0 {
		f.Remedy += ": only host memory can be registered for FLUSH; a READ behind the WRITEs shows that they have arrived"
	}
	return f
}

// badFlushAccess is why a kernel answers EINVAL to these flags on host memory: it
// is older than they are, or rxe has found the memory not to be persistent
// (rxe_mr_fill_pages_from_sgt in rxe_mr.c).
func badFlushAccess(a uint32) *Breach {
	a &= accessFlush
	if a == 0 {
		return nil
	}
	f := &Breach{fault.CauseAccess, unix.EINVAL, uverbs.AccessNames(a) + " takes Linux 6.2", "leave " + uverbs.AccessNames(a) + " out"}
	if a&uverbs.AccessFlushPersistent != 0 {
		f.Detail += " and memory that is persistent"
		f.Remedy = "register memory of a DAX file or device, or leave flush-persistent out: flush-global is for all memory"
	}
	return f
}

// BadRemoteAccess refuses an MR that lets a peer write and does not let the NIC write
// (ib_check_mr_access in include/rdma/ib_verbs.h).
func BadRemoteAccess(a uint32) *Breach {
	if a&(uverbs.AccessRemoteWrite|uverbs.AccessRemoteAtomic) != 0 && a&uverbs.AccessLocalWrite == 0 {
		return &Breach{fault.CauseAccess, unix.EINVAL, uverbs.AccessNames(a) + " without local-write", "add local-write"}
	}
	return nil
}

// accessFlush are the flags that FLUSH asks for.
const accessFlush = uverbs.AccessFlushGlobal | uverbs.AccessFlushPersistent

// dmabufAccess is what the kernel accepts for a dma-buf MR. Source:
// UVERBS_METHOD_REG_DMABUF_MR in drivers/infiniband/core/uverbs_std_types_mr.c,
// ibv_reg_dmabuf_mr(3).
const dmabufAccess = uverbs.AccessLocalWrite | uverbs.AccessRemoteWrite | uverbs.AccessRemoteRead | uverbs.AccessRemoteAtomic | uverbs.AccessRelaxedOrdering
