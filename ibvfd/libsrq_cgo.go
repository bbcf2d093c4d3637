// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd

// #include "verbs_lib.h"
import "C"

import "unsafe"

func (p *libPD) createSRQ(attr *SRQAttr) (verbsSRQ, error) {
	a := C.struct_vb_srq_init_attr{attr: C.struct_vb_srq_attr{max_wr: C.uint32_t(attr.Depth), max_sge: C.uint32_t(attr.SGE)}}
	q := &libSRQ{ctx: p.ctx}
	if err := result(C.vb_create_srq(p.ctx.lib.c, p.c, &a, &q.c)); err != nil {
		return nil, err
	}
	attr.Depth, attr.SGE = max(attr.Depth, int(a.attr.max_wr)), max(attr.SGE, int(a.attr.max_sge))
	q.depth, q.sges = attr.Depth, attr.SGE
	return q, nil
}

type libSRQ struct {
	ctx         *libContext
	c           *C.struct_vb_srq
	depth, sges int // as granted
}

func (q *libSRQ) identity() uintptr { return uintptr(unsafe.Pointer(q.c)) }

func (q *libSRQ) queue() (*recvQueue, error) {
	return newSharedQueue(unsafe.Pointer(q.c), *slot(&q.ctx.c.ops.post_srq_recv), q.depth, q.sges)
}

func (q *libSRQ) resize(maxWR int) error {
	a := C.struct_vb_srq_attr{max_wr: C.uint32_t(maxWR)}
	return result(C.vb_modify_srq(q.ctx.lib.c, q.c, &a, C.VB_SRQ_MAX_WR))
}

func (q *libSRQ) setLimit(limit int) error {
	a := C.struct_vb_srq_attr{srq_limit: C.uint32_t(limit)}
	return result(C.vb_modify_srq(q.ctx.lib.c, q.c, &a, C.VB_SRQ_LIMIT))
}

func (q *libSRQ) query() (maxWR, limit int, err error) {
	var a C.struct_vb_srq_attr
	err = result(C.vb_query_srq(q.ctx.lib.c, q.c, &a))
	return int(a.max_wr), int(a.srq_limit), err
}

func (q *libSRQ) destroy() error { return result(C.vb_destroy_srq(q.ctx.lib.c, q.c)) }
