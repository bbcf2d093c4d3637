// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd

/*
#include "verbs_queue.h"
*/
import "C"

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxRoom bounds a queue's array: a batch beyond it takes several crossings
// into C.
const maxRoom = 1024

// address is a queue in C memory, for verbs_queue.c. It is no pointer, which cgo would
// look at.
func address[T any](queue *T) C.uintptr_t { return C.uintptr_t(uintptr(unsafe.Pointer(queue))) }

// sendQueue posts through an array of struct ibv_send_wr in C memory. One
// goroutine at a time may use it.
type sendQueue struct {
	c       *C.struct_vb_send_queue
	wr      []abiSendWR  // C memory
	sge     []abiSGE     // C memory, sges for each wr
	ud      *parent      // whose address handles work requests name; nil unless UD
	foreign *foreignKeys // what SendInline may not name

	atomicWrite, flush bool // they can be posted

	every int // QPAttr.SignalEvery
	since int // work requests posted after the last that makes a completion
}

// newSendQueue makes the array; post is a vb_post_send_fn.
func newSendQueue(qp, post unsafe.Pointer, depth, sges int) (*sendQueue, error) {
	room := min(depth, maxRoom)
	c := C.vb_send_queue_new((*C.struct_vb_qp)(qp), (*C.vb_post_send_fn)(post), C.uint32_t(room), C.uint32_t(sges))
	if c == nil {
		return nil, unix.ENOMEM
	}
	return &sendQueue{
		c:   c,
		wr:  unsafe.Slice((*abiSendWR)(unsafe.Pointer(c.wr)), room),
		sge: unsafe.Slice((*abiSGE)(unsafe.Pointer(c.sge)), room*sges),
	}, nil
}

func (q *sendQueue) free() { C.vb_send_queue_free(q.c) }

// extend lets atomic writes, or FLUSH, be posted, by a struct ibv_qp_ex of the
// same queue pair that was made for them.
func (q *sendQueue) extend(ex unsafe.Pointer, atomicWrite, flush bool) {
	q.c.ex = (*C.struct_vb_qp_ex)(ex)
	q.atomicWrite, q.flush = atomicWrite, flush
}

// post encodes and posts wrs until one is refused. It says how many the
// provider took, and why not the next.
func (q *sendQueue) post(wrs []SendWR) (posted int, bad postRefusal, errno unix.Errno) {
	for len(wrs) > 0 {
		n, refusal := q.encode(wrs)
		if n > 0 {
			if q.every > 0 {
				q.signal(n)
			}
			p := C.vb_post_send(address(q.c), C.uint32_t(n))
			posted += int(p.n)
			if q.every > 0 {
				q.count(int(p.n))
			}
			if p.err != 0 {
				return posted, postProvider, unix.Errno(p.err)
			}
		}
		if refusal != postOK {
			return posted, refusal, unix.EINVAL
		}
		wrs = wrs[n:]
	}
	return posted, postOK, 0
}

// encode fills the array and returns how many work requests are in it, and
// why not the next, if it is at fault.
func (q *sendQueue) encode(wrs []SendWR) (n int, bad postRefusal) {
	room, sges := len(q.wr), int(q.c.sges)
	for i := range wrs[:min(len(wrs), room)] {
		w, a := &wrs[i], &q.wr[i]
		if len(w.SGE) > sges {
			return i, postTooMany
		}
		if w.Flags&SendInline != 0 && (foreign(w.SGE) || q.foreign.has(w.SGE)) {
			return i, postForeign
		}
		a.wrID, a.opcode, a.sendFlags = w.ID, uint32(w.Op), uint32(w.Flags)
		a.remoteAddr = w.RemoteAddr
		switch w.Op {
		case OpSend, OpSendImm:
			a.imm = bigEndian(w.Imm)
			if q.ud != nil {
				if w.AH == nil || w.AH.home != q.ud || w.AH.addr == 0 {
					return i, postNoAH
				}
				a.remoteAddr = uint64(w.AH.addr)
				a.rkey = [2]uint32{w.QPN, w.QKey}
			}
		case OpWrite, OpRead:
			a.rkey[0] = w.RKey
		case OpWriteImm:
			a.rkey[0], a.imm = w.RKey, bigEndian(w.Imm)
		case OpCompareSwap, OpFetchAdd:
			if w.RemoteAddr%atomicSize != 0 {
				return i, postUnaligned
			}
			*(*uint64)(unsafe.Pointer(&a.rkey)) = w.CompareAdd
			a.swap, a.atomicRKey = w.Swap, w.RKey
		case OpAtomicWrite:
			if !q.atomicWrite {
				return i, postNoAtomic
			}
			if len(w.SGE) > 0 {
				return i, postNoSGE
			}
			if w.RemoteAddr%atomicSize != 0 {
				return i, postUnaligned
			}
			*(*uint64)(unsafe.Pointer(&a.rkey)) = w.CompareAdd
			a.atomicRKey = w.RKey
		case OpFlush:
			switch {
			case !q.flush:
				return i, postNoFlush
			case len(w.SGE) > 0:
				return i, postNoSGE
			case w.Placement == 0 || w.Placement&^(FlushGlobal|FlushPersistent) != 0:
				return i, postNoPlacement
			}
			// Where an atomic operation has its operands: post_one in verbs_queue.c.
			*(*uint64)(unsafe.Pointer(&a.rkey)) = uint64(w.FlushLength)
			a.swap, a.atomicRKey = uint64(w.Placement), w.RKey
		case OpSendInv, OpLocalInv:
			a.imm = w.RKey // invalidate_rkey, in the host's byte order
		default:
			return i, postOpcode
		}
		if q.ud != nil && w.Op != OpSend && w.Op != OpSendImm {
			return i, postOpcode
		}
		a.numSGE = int32(len(w.SGE))
		putSGEs(q.sge[i*sges:], w.SGE)
		n++
	}
	return n, postOK
}

// signal asks for completions among the first n in the array, as often as every
// says.
func (q *sendQueue) signal(n int) {
	since := q.since
	for i := range q.wr[:n] {
		if since++; since >= q.every {
			q.wr[i].sendFlags |= uint32(SendSignaled)
		}
		if q.wr[i].sendFlags&uint32(SendSignaled) != 0 {
			since = 0
		}
	}
}

// count goes on from the n that were posted.
func (q *sendQueue) count(n int) {
	for i := range q.wr[:n] {
		if q.since++; q.wr[i].sendFlags&uint32(SendSignaled) != 0 {
			q.since = 0
		}
	}
}

func putSGEs(to []abiSGE, from []SGE) {
	for i, s := range from {
		to[i] = abiSGE{addr: s.Addr, length: s.Length, lkey: s.LKey}
	}
}

// bigEndian is v as it lies in memory in network byte order, and back.
func bigEndian(v uint32) uint32 {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], v)
	return binary.NativeEndian.Uint32(b[:])
}

// recvQueue posts receives; see sendQueue.
type recvQueue struct {
	c   *C.struct_vb_recv_queue
	wr  []abiRecvWR
	sge []abiSGE
}

func newRecvQueue(qp, post unsafe.Pointer, depth, sges int) (*recvQueue, error) {
	room := min(depth, maxRoom)
	c := C.vb_recv_queue_new((*C.struct_vb_qp)(qp), (*C.vb_post_recv_fn)(post), C.uint32_t(room), C.uint32_t(sges))
	if c == nil {
		return nil, unix.ENOMEM
	}
	return recvQueueOf(c), nil
}

// newSharedQueue is newRecvQueue for an SRQ; post is a vb_post_srq_recv_fn.
func newSharedQueue(srq, post unsafe.Pointer, depth, sges int) (*recvQueue, error) {
	room := min(depth, maxRoom)
	c := C.vb_shared_queue_new((*C.struct_vb_srq)(srq), (*C.vb_post_srq_recv_fn)(post), C.uint32_t(room), C.uint32_t(sges))
	if c == nil {
		return nil, unix.ENOMEM
	}
	return recvQueueOf(c), nil
}

func recvQueueOf(c *C.struct_vb_recv_queue) *recvQueue {
	return &recvQueue{
		c:   c,
		wr:  unsafe.Slice((*abiRecvWR)(unsafe.Pointer(c.wr)), int(c.room)),
		sge: unsafe.Slice((*abiSGE)(unsafe.Pointer(c.sge)), int(c.room)*int(c.sges)),
	}
}

func (q *recvQueue) free() { C.vb_recv_queue_free(q.c) }

func (q *recvQueue) post(wrs []RecvWR) (posted int, bad postRefusal, errno unix.Errno) {
	for len(wrs) > 0 {
		n, refusal := q.encode(wrs)
		if n > 0 {
			p := C.vb_post_recv(address(q.c), C.uint32_t(n))
			posted += int(p.n)
			if p.err != 0 {
				return posted, postProvider, unix.Errno(p.err)
			}
		}
		if refusal != postOK {
			return posted, refusal, unix.EINVAL
		}
		wrs = wrs[n:]
	}
	return posted, postOK, 0
}

func (q *recvQueue) encode(wrs []RecvWR) (n int, bad postRefusal) {
	room, sges := len(q.wr), int(q.c.sges)
	for i := range wrs[:min(len(wrs), room)] {
		w, a := &wrs[i], &q.wr[i]
		if len(w.SGE) > sges {
			return i, postTooMany
		}
		a.wrID, a.numSGE = w.ID, int32(len(w.SGE))
		putSGEs(q.sge[i*sges:], w.SGE)
		n++
	}
	return n, postOK
}

// completionQueue polls into an array of struct ibv_wc in C memory. One
// goroutine at a time may use it.
type completionQueue struct {
	c  *C.struct_vb_completion_queue
	wc []abiWC
}

func newCompletionQueue(cq, poll unsafe.Pointer, depth int) (*completionQueue, error) {
	room := min(depth, maxRoom)
	c := C.vb_completion_queue_new((*C.struct_vb_cq)(cq), (*C.vb_poll_cq_fn)(poll), C.uint32_t(room))
	if c == nil {
		return nil, unix.ENOMEM
	}
	return &completionQueue{c, unsafe.Slice((*abiWC)(unsafe.Pointer(c.wc)), room)}, nil
}

func (q *completionQueue) free() { C.vb_completion_queue_free(q.c) }

// poll returns how many completions it stored, negative if the provider fails.
func (q *completionQueue) poll(wc []WC) int {
	if len(wc) == 0 {
		return 0
	}
	n := int(C.vb_poll(address(q.c), C.uint32_t(min(len(wc), len(q.wc)))))
	if n <= 0 {
		return n
	}
	from := q.wc[:n]
	to := wc[:len(from)]
	for i := range from {
		// Field by field: a literal is built beside the slice first.
		a, w := &from[i], &to[i]
		w.ID, w.Status, w.Opcode, w.VendorErr = a.wrID, WCStatus(a.status), WCOpcode(a.opcode), a.vendorErr
		w.ByteLen, w.QPN, w.SrcQP, w.Flags = a.byteLen, a.qpNum, a.srcQP, WCFlags(a.wcFlags)
		w.PKeyIndex, w.SLID, w.SL, w.PathBits = a.pkeyIndex, a.slid, a.sl, a.dlidBits
		switch w.Flags & (WCWithImm | WCWithInv) {
		case 0:
			w.Imm = 0
		case WCWithInv:
			w.Imm = a.imm // invalidated_rkey, in the host's byte order
		default:
			w.Imm = bigEndian(a.imm)
		}
	}
	return n
}
