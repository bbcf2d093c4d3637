// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package libibverbs

/*
#include "verbs_queue.h"
*/
import "C"

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxRoom bounds a queue's array: a batch beyond it takes several crossings
// into C.
const maxRoom = 1024

// address is a queue in C memory, for verbs_queue.c. It is no pointer, which cgo would
// look at.
func address[T any](queue *T) C.uintptr_t { return C.uintptr_t(uintptr(unsafe.Pointer(queue))) }

// SendQueue posts through an array of struct ibv_send_wr in C memory. One
// goroutine at a time may use it.
type SendQueue struct {
	c    *C.struct_vb_send_queue
	WR   []SendWR // C memory
	SGE  []SGE    // C memory, SGEs for each of WR
	SGEs int

	AtomicWrite, Flush bool // they can be posted
}

// NewSendQueue makes the array; post is a vb_post_send_fn.
func NewSendQueue(qp, post unsafe.Pointer, depth, sges int) (*SendQueue, error) {
	room := min(depth, maxRoom)
	c := C.vb_send_queue_new((*C.struct_vb_qp)(qp), (*C.vb_post_send_fn)(post), C.uint32_t(room), C.uint32_t(sges))
	if c == nil {
		return nil, unix.ENOMEM
	}
	return &SendQueue{
		c: c, SGEs: sges,
		WR:  unsafe.Slice((*SendWR)(unsafe.Pointer(c.wr)), room),
		SGE: unsafe.Slice((*SGE)(unsafe.Pointer(c.sge)), room*sges),
	}, nil
}

// Free frees the array.
func (q *SendQueue) Free() { C.vb_send_queue_free(q.c) }

// Extend lets atomic writes, or FLUSH, be posted, by a struct ibv_qp_ex of the
// same queue pair that was made for them.
func (q *SendQueue) Extend(ex unsafe.Pointer, atomicWrite, flush bool) {
	q.c.ex = (*C.struct_vb_qp_ex)(ex)
	q.AtomicWrite, q.Flush = atomicWrite, flush
}

// Post posts the first n of WR, and says how many the provider took, and why not the
// next.
func (q *SendQueue) Post(n int) (posted int, errno unix.Errno) {
	p := C.vb_post_send(address(q.c), C.uint32_t(n))
	return int(p.n), unix.Errno(p.err)
}

// RecvQueue posts receives; see SendQueue.
type RecvQueue struct {
	c    *C.struct_vb_recv_queue
	WR   []RecvWR
	SGE  []SGE
	SGEs int
}

// NewRecvQueue makes the array; post is a vb_post_recv_fn.
func NewRecvQueue(qp, post unsafe.Pointer, depth, sges int) (*RecvQueue, error) {
	room := min(depth, maxRoom)
	c := C.vb_recv_queue_new((*C.struct_vb_qp)(qp), (*C.vb_post_recv_fn)(post), C.uint32_t(room), C.uint32_t(sges))
	if c == nil {
		return nil, unix.ENOMEM
	}
	return recvQueueOf(c), nil
}

// NewSharedQueue is NewRecvQueue for an SRQ; post is a vb_post_srq_recv_fn.
func NewSharedQueue(srq, post unsafe.Pointer, depth, sges int) (*RecvQueue, error) {
	room := min(depth, maxRoom)
	c := C.vb_shared_queue_new((*C.struct_vb_srq)(srq), (*C.vb_post_srq_recv_fn)(post), C.uint32_t(room), C.uint32_t(sges))
	if c == nil {
		return nil, unix.ENOMEM
	}
	return recvQueueOf(c), nil
}

func recvQueueOf(c *C.struct_vb_recv_queue) *RecvQueue {
	return &RecvQueue{
		c: c, SGEs: int(c.sges),
		WR:  unsafe.Slice((*RecvWR)(unsafe.Pointer(c.wr)), int(c.room)),
		SGE: unsafe.Slice((*SGE)(unsafe.Pointer(c.sge)), int(c.room)*int(c.sges)),
	}
}

// Free frees the array.
func (q *RecvQueue) Free() { C.vb_recv_queue_free(q.c) }

// Post posts the first n of WR.
func (q *RecvQueue) Post(n int) (posted int, errno unix.Errno) {
	p := C.vb_post_recv(address(q.c), C.uint32_t(n))
	return int(p.n), unix.Errno(p.err)
}

// CompletionQueue polls into an array of struct ibv_wc in C memory. One
// goroutine at a time may use it.
type CompletionQueue struct {
	c  *C.struct_vb_completion_queue
	WC []WC
}

// NewCompletionQueue makes the array; poll is a vb_poll_cq_fn.
func NewCompletionQueue(cq, poll unsafe.Pointer, depth int) (*CompletionQueue, error) {
	room := min(depth, maxRoom)
	c := C.vb_completion_queue_new((*C.struct_vb_cq)(cq), (*C.vb_poll_cq_fn)(poll), C.uint32_t(room))
	if c == nil {
		return nil, unix.ENOMEM
	}
	return &CompletionQueue{c, unsafe.Slice((*WC)(unsafe.Pointer(c.wc)), room)}, nil
}

// Free frees the array.
func (q *CompletionQueue) Free() { C.vb_completion_queue_free(q.c) }

// Poll takes up to n completions, which are then the first of WC, and says how many
// there were: negative if the provider fails.
func (q *CompletionQueue) Poll(n int) int { return int(C.vb_poll(address(q.c), C.uint32_t(n))) }
