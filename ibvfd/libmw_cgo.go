// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd

// #include "verbs_lib.h"
import "C"

func (p *libPD) allocMW(typ MWType) (verbsMW, error) {
	w := &libMW{}
	if err := result(C.vb_alloc_mw(p.c, C.int(typ), &w.c)); err != nil {
		return nil, err
	}
	return w, nil
}

type libMW struct{ c *C.struct_vb_mw }

func (w *libMW) rkey() uint32 { return uint32(w.c.rkey) }

func (w *libMW) dealloc() error { return result(C.vb_dealloc_mw(w.c)) }

func (q *libQP) bindMW(mw verbsMW, mr verbsMR, b *mwBind) error {
	c := C.struct_vb_mw_bind{wr_id: C.uint64_t(b.id), send_flags: C.uint(b.flags)}
	c.bind_info.addr, c.bind_info.length = C.uint64_t(b.addr), C.uint64_t(b.length)
	c.bind_info.mw_access_flags = C.uint(b.access)
	if mr != nil {
		c.bind_info.mr = mr.(*libMR).c
	}
	return result(C.vb_bind_mw(q.c, mw.(*libMW).c, &c))
}
