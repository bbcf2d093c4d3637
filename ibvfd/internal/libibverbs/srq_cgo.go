// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package libibverbs

// #include "verbs_lib.h"
import "C"

import "unsafe"

func (p *libPD) CreateSRQ(init *SRQInit) (SRQ, error) {
	a := C.struct_vb_srq_init_attr{attr: C.struct_vb_srq_attr{max_wr: C.uint32_t(init.Depth), max_sge: C.uint32_t(init.SGE)}}
	q := &libSRQ{ctx: p.ctx}
	if err := result(C.vb_create_srq(p.ctx.lib.c, p.c, &a, &q.c)); err != nil {
		return nil, err
	}
	init.Depth, init.SGE = max(init.Depth, int(a.attr.max_wr)), max(init.SGE, int(a.attr.max_sge))
	q.depth, q.sges = init.Depth, init.SGE
	return q, nil
}

type libSRQ struct {
	ctx         *libContext
	c           *C.struct_vb_srq
	depth, sges int // as granted
}

func (q *libSRQ) Identity() uintptr { return uintptr(unsafe.Pointer(q.c)) }

func (q *libSRQ) Queue() (*RecvQueue, error) {
	return NewSharedQueue(unsafe.Pointer(q.c), *slot(&q.ctx.c.ops.post_srq_recv), q.depth, q.sges)
}

func (q *libSRQ) Resize(maxWR int) error {
	a := C.struct_vb_srq_attr{max_wr: C.uint32_t(maxWR)}
	return result(C.vb_modify_srq(q.ctx.lib.c, q.c, &a, C.VB_SRQ_MAX_WR))
}

func (q *libSRQ) SetLimit(limit int) error {
	a := C.struct_vb_srq_attr{srq_limit: C.uint32_t(limit)}
	return result(C.vb_modify_srq(q.ctx.lib.c, q.c, &a, C.VB_SRQ_LIMIT))
}

func (q *libSRQ) Query() (maxWR, limit int, err error) {
	var a C.struct_vb_srq_attr
	err = result(C.vb_query_srq(q.ctx.lib.c, q.c, &a))
	return int(a.max_wr), int(a.srq_limit), err
}

func (q *libSRQ) Destroy() error { return result(C.vb_destroy_srq(q.ctx.lib.c, q.c)) }
