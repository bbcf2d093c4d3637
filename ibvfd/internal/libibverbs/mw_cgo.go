// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package libibverbs

// #include "verbs_lib.h"
import "C"

func (p *libPD) AllocMW(typ int) (MW, error) {
	w := &libMW{}
	if err := result(C.vb_alloc_mw(p.c, C.int(typ), &w.c)); err != nil {
		return nil, err
	}
	return w, nil
}

type libMW struct{ c *C.struct_vb_mw }

func (w *libMW) RKey() uint32 { return uint32(w.c.rkey) }

func (w *libMW) Dealloc() error { return result(C.vb_dealloc_mw(w.c)) }

func (q *libQP) BindMW(mw MW, mr MR, b *Bind) error {
	c := C.struct_vb_mw_bind{wr_id: C.uint64_t(b.ID), send_flags: C.uint(b.Flags)}
	c.bind_info.addr, c.bind_info.length = C.uint64_t(b.Addr), C.uint64_t(b.Length)
	c.bind_info.mw_access_flags = C.uint(b.Access)
	if mr != nil {
		c.bind_info.mr = mr.(*libMR).c
	}
	return result(C.vb_bind_mw(q.c, mw.(*libMW).c, &c))
}
