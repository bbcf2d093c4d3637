// SPDX-License-Identifier: Apache-2.0

package uverbs

import "os"

// DMABufMR are the parameters of UVERBS_METHOD_REG_DMABUF_MR.
type DMABufMR struct {
	PD     uint32 // handle
	FD     int32
	Access uint32 // enum ib_uverbs_access_flags
	Offset uint64 // bytes into the dma-buf
	Length uint64 // bytes
	IOVA   uint64
}

// MR is a registered memory region.
type MR struct {
	Handle, LKey, RKey uint32
}

// RegDMABufMR registers a range of a dma-buf. Needs Linux 5.12. The kernel
// asks that offset and IOVA are equal within a page, that only local write,
// remote read, write and atomic, and relaxed ordering are set, and that the
// range lies in the buffer; all else is EINVAL.
func (f *File) RegDMABufMR(p DMABufMR) (MR, error) {
	r, err := f.begin(regDMABufMR)
	if err != nil {
		return MR{}, err
	}
	r.in64(0, 0)
	r.in64(1, uint64(p.PD))
	r.in64(2, p.Offset)
	r.in64(3, p.Length)
	r.in64(4, p.IOVA)
	r.in32(5, uint32(p.FD))
	r.in32(6, p.Access)
	err = f.send(r)
	mr := MR{Handle: r.newHandle(0), LKey: r.out32(7), RKey: r.out32(8)}
	r.free()
	if err != nil {
		return MR{}, err
	}
	return mr, nil
}

// DMABufRereg says what of an MR on a dma-buf to change in place; nil keeps what there is.
type DMABufRereg struct {
	PD     *uint32 // handle
	Access *uint32 // enum ib_uverbs_access_flags
	Memory *DMABufRange
}

// DMABufRange is a range of a dma-buf, and the address that it gets.
type DMABufRange struct {
	FD                   int32
	Offset, Length, IOVA uint64
}

// ReregDMABufMR changes an MR that is on a dma-buf; its handle and its keys stay. After an error the MR
// is as it was. It needs the patches of kernel/patches/rdma-rereg; other kernels answer
// EPROTONOSUPPORT, and drivers without such an op EOPNOTSUPP, as do all for an MR that is not on a
// dma-buf. EBUSY: a memory window is bound to the MR.
func (f *File) ReregDMABufMR(handle uint32, p DMABufRereg) error {
	r, err := f.begin(reregDMABufMR)
	if err != nil {
		return err
	}
	defer r.free()
	var left []int
	r.in64(0, uint64(handle))
	if p.Access != nil {
		r.in32(6, *p.Access)
	} else {
		left = append(left, 6)
	}
	if m := p.Memory; m != nil {
		r.in64(2, m.Offset)
		r.in64(3, m.Length)
		r.in64(4, m.IOVA)
		r.in64(5, uint64(int64(m.FD)))
	} else {
		left = append(left, 5, 4, 3, 2)
	}
	if p.PD != nil {
		r.in64(1, uint64(*p.PD))
	} else {
		left = append(left, 1)
	}
	defer r.without(reregDMABufMR, left...)()
	return f.send(r)
}

// MRInfo is what QUERY_MR answers.
type MRInfo struct {
	LKey, RKey   uint32
	Length, IOVA uint64
}

// QueryMR asks the kernel what an MR is. Needs Linux 5.8.
func (f *File) QueryMR(handle uint32) (MRInfo, error) {
	r, err := f.begin(queryMR)
	if err != nil {
		return MRInfo{}, err
	}
	defer r.free()
	r.in64(0, uint64(handle))
	if err := f.send(r); err != nil {
		return MRInfo{}, err
	}
	return MRInfo{r.out32(1), r.out32(2), r.out64(3), r.out64(4)}, nil
}

// Rereg says what of an MR to change in place; nil keeps what there is.
type Rereg struct {
	PD     *uint32 // handle
	Access *uint32 // enum ib_uverbs_access_flags
}

// ReregMR changes an MR's PD or access where it is, and returns its keys, which
// a driver may have changed. Drivers without such an op answer EOPNOTSUPP. The
// MR's memory cannot be changed this way: the kernel knows no other than host
// memory here, and drivers exist that make a host MR of a dma-buf MR.
func (f *File) ReregMR(handle uint32, p Rereg) (MR, error) {
	r, err := f.begin(invokeReregMR)
	if err != nil {
		return MR{}, err
	}
	defer r.free()
	r.block = reregMR{mrHandle: handle}
	if p.PD != nil {
		r.block.flags |= reregPD
		r.block.pdHandle = *p.PD
	}
	if p.Access != nil {
		r.block.flags |= reregAccess
		r.block.accessFlags = *p.Access
	}
	r.in64(2, cmdReregMR)
	if err := f.send(r); err != nil {
		return MR{}, err
	}
	lkey, rkey := r.outKeys(1)
	return MR{Handle: handle, LKey: lkey, RKey: rkey}, nil
}

// DestroyMR deregisters an MR.
func (f *File) DestroyMR(handle uint32) error {
	r, err := f.begin(destroyMR)
	if err != nil {
		return err
	}
	r.in64(0, uint64(handle))
	err = f.send(r)
	r.free()
	return err
}

// ProbeDMABuf asks the driver to register a page of the dma-buf with
// descriptor -1, which no driver can. The kernel's answer shows how far the
// request came:
//
//   - EBADF: the driver looked the descriptor up, so it registers dma-bufs;
//   - EOPNOTSUPP: ib_uverbs found no reg_user_mr_dmabuf in the driver, or the
//     driver refused before it looked (mlx5 without on-demand paging);
//   - EPROTONOSUPPORT: the kernel has no such method (before Linux 5.12).
//
// Any other answer tells nothing. A driver that accepted it would be answered
// with the MR's destruction, and a nil error.
func (f *File) ProbeDMABuf(pd uint32) error {
	return f.ProbeDMABufAs(DMABufMR{PD: pd, Access: AccessLocalWrite, Length: uint64(os.Getpagesize())})
}

// ProbeDMABufAs is ProbeDMABuf with the parameters of a registration that
// failed: EBADF then proves that neither ib_uverbs nor the driver minded them
// before the descriptor was looked up.
func (f *File) ProbeDMABufAs(p DMABufMR) error {
	p.FD = -1
	mr, err := f.RegDMABufMR(p)
	if err == nil {
		return f.DestroyMR(mr.Handle)
	}
	return err
}
