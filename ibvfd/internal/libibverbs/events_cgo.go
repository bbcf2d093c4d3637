// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package libibverbs

// #include "verbs_lib.h"
import "C"

import (
	"unsafe"
)

func (c *libContext) CreateCQ(depth, vector int, events bool) (CQ, error) {
	q := &libCQ{ctx: c}
	if events {
		if err := result(C.vb_create_comp_channel(c.lib.c, c.c, &q.channel)); err != nil {
			return nil, err
		}
	}
	if err := result(C.vb_create_cq(c.lib.c, c.c, C.int(depth), q.channel, C.int(vector), &q.c)); err != nil {
		if q.channel != nil {
			C.vb_destroy_comp_channel(c.lib.c, q.channel)
		}
		return nil, err
	}
	return q, nil
}

// libCQ is a CQ with, if it has events, a channel of its own.
type libCQ struct {
	ctx     *libContext
	c       *C.struct_vb_cq
	channel *C.struct_vb_comp_channel // nil without events
}

func (q *libCQ) Identity() uintptr { return uintptr(unsafe.Pointer(q.c)) }

func (q *libCQ) Queue() (*CompletionQueue, error) {
	return NewCompletionQueue(unsafe.Pointer(q.c), *slot(&q.ctx.c.ops.poll_cq), int(q.c.cqe))
}

func (q *libCQ) ChannelFD() int { return int(q.channel.fd) }

func (q *libCQ) Arm(solicited bool) error {
	var only C.int
	if solicited {
		only = 1
	}
	return result(C.vb_req_notify_cq(q.c, only))
}

func (q *libCQ) Event() error { return result(C.vb_get_cq_event(q.ctx.lib.c, q.channel)) }

func (q *libCQ) Ack(n int) { C.vb_ack_cq_events(q.ctx.lib.c, q.c, C.uint(n)) }

func (q *libCQ) Destroy() error {
	if err := result(C.vb_destroy_cq(q.ctx.lib.c, q.c)); err != nil {
		return err
	}
	if q.channel != nil { // which nothing uses any more
		C.vb_destroy_comp_channel(q.ctx.lib.c, q.channel)
	}
	return nil
}

func (c *libContext) EventFD() (int, error) {
	if err := result(C.vb_unblock_async(c.c)); err != nil {
		return -1, err
	}
	return int(c.c.async_fd), nil
}

func (c *libContext) Event(show func(Event)) error {
	var e C.struct_vb_async_event
	if err := result(C.vb_get_async_event(c.lib.c, c.c, &e)); err != nil {
		return err
	}
	raw := Event{Type: int(e.event_type)}
	if OfPort(raw.Type) {
		raw.Port = int(*(*C.int)(unsafe.Pointer(&e.element)))
	} else {
		raw.Object = *(*uintptr)(unsafe.Pointer(&e.element))
	}
	show(raw)
	C.vb_ack_async_event(c.lib.c, &e)
	return nil
}
