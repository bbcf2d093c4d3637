// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/internal/libibverbs"
	"github.com/gpurdma/gpurdma/ibvfd/internal/lkeys"
)

// sendQueue encodes send work requests for the library. One goroutine at a time may
// use it.
type sendQueue struct {
	*libibverbs.SendQueue
	ud      *parent    // the PD whose address handles work requests name; nil unless UD
	foreign *lkeys.Set // what SendInline may not name

	every int // QPAttr.SignalEvery
	since int // work requests posted after the last that makes a completion
}

// post encodes and posts wrs until one is refused. It returns how many the
// provider took, and why the next one was refused.
func (q *sendQueue) post(wrs []SendWR) (posted int, bad postRefusal, errno unix.Errno) {
	for len(wrs) > 0 {
		n, refusal := q.encode(wrs)
		if n > 0 {
			if q.every > 0 {
				q.signal(n)
			}
			took, errno := q.Post(n)
			posted += took
			if q.every > 0 {
				q.count(took)
			}
			if errno != 0 {
				return posted, postProvider, errno
			}
		}
		if refusal != postOK {
			return posted, refusal, unix.EINVAL
		}
		wrs = wrs[n:]
	}
	return posted, postOK, 0
}

// encode fills the array and returns how many work requests are in it, and the
// refusal of the next one if it is invalid.
func (q *sendQueue) encode(wrs []SendWR) (n int, bad postRefusal) {
	room, sges := len(q.WR), q.SGEs
	for i := range wrs[:min(len(wrs), room)] {
		w, a := &wrs[i], &q.WR[i]
		if len(w.SGE) > sges {
			return i, postTooMany
		}
		if w.Flags&SendInline != 0 && (foreign(w.SGE) || named(q.foreign, w.SGE)) {
			return i, postForeign
		}
		a.WRID, a.Opcode, a.SendFlags = w.ID, uint32(w.Op), uint32(w.Flags)
		a.RemoteAddr = w.RemoteAddr
		switch w.Op {
		case OpSend, OpSendImm:
			a.Imm = bigEndian(w.Imm)
			if q.ud != nil {
				if w.AH == nil || w.AH.home != q.ud || w.AH.addr == 0 {
					return i, postNoAH
				}
				a.RemoteAddr = uint64(w.AH.addr)
				a.RKey = [2]uint32{w.QPN, w.QKey}
			}
		case OpWrite, OpRead:
			a.RKey[0] = w.RKey
		case OpWriteImm:
			a.RKey[0], a.Imm = w.RKey, bigEndian(w.Imm)
		case OpCompareSwap, OpFetchAdd:
			if w.RemoteAddr%atomicSize != 0 {
				return i, postUnaligned
			}
			a.SetOperand(w.CompareAdd)
			a.Swap, a.AtomicRKey = w.Swap, w.RKey
		case OpAtomicWrite:
			if !q.AtomicWrite {
				return i, postNoAtomic
			}
			if len(w.SGE) > 0 {
				return i, postNoSGE
			}
			if w.RemoteAddr%atomicSize != 0 {
				return i, postUnaligned
			}
			a.SetOperand(w.CompareAdd)
			a.AtomicRKey = w.RKey
		case OpFlush:
			switch {
			case !q.Flush:
				return i, postNoFlush
			case len(w.SGE) > 0:
				return i, postNoSGE
			case w.Placement == 0 || w.Placement&^(FlushGlobal|FlushPersistent) != 0:
				return i, postNoPlacement
			}
			// Where an atomic operation has its operands: post_one in verbs_queue.c.
			a.SetOperand(uint64(w.FlushLength))
			a.Swap, a.AtomicRKey = uint64(w.Placement), w.RKey
		case OpSendInv, OpLocalInv:
			a.Imm = w.RKey // invalidate_rkey, in the host's byte order
		default:
			return i, postOpcode
		}
		if q.ud != nil && w.Op != OpSend && w.Op != OpSendImm {
			return i, postOpcode
		}
		a.NumSGE = int32(len(w.SGE))
		putSGEs(q.SGE[i*sges:], w.SGE)
		n++
	}
	return n, postOK
}

// named reports whether one of the SGEs has a key of the set. An SGE without a key, or
// of no bytes, does not count.
func named(keys *lkeys.Set, sges []SGE) bool {
	if keys == nil || keys.Empty() {
		return false
	}
	for i := range sges {
		if key := sges[i].LKey; key != 0 && sges[i].Length > 0 && keys.Has(key) {
			return true
		}
	}
	return false
}

// signal sets SendSignaled on those of the first n work requests in the array that
// every makes complete.
func (q *sendQueue) signal(n int) {
	since := q.since
	for i := range q.WR[:n] {
		if since++; since >= q.every {
			q.WR[i].SendFlags |= uint32(SendSignaled)
		}
		if q.WR[i].SendFlags&uint32(SendSignaled) != 0 {
			since = 0
		}
	}
}

// count brings since up to date after n work requests were posted.
func (q *sendQueue) count(n int) {
	for i := range q.WR[:n] {
		if q.since++; q.WR[i].SendFlags&uint32(SendSignaled) != 0 {
			q.since = 0
		}
	}
}

func putSGEs(to []libibverbs.SGE, from []SGE) {
	for i, s := range from {
		to[i] = libibverbs.SGE{Addr: s.Addr, Length: s.Length, LKey: s.LKey}
	}
}

// bigEndian is v as it lies in memory in network byte order, and back.
func bigEndian(v uint32) uint32 {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], v)
	return binary.NativeEndian.Uint32(b[:])
}

// recvQueue encodes receives; see sendQueue.
type recvQueue struct{ *libibverbs.RecvQueue }

// recvQueueOf is nil without a queue.
func recvQueueOf(q *libibverbs.RecvQueue) *recvQueue {
	if q == nil {
		return nil
	}
	return &recvQueue{q}
}

func (q *recvQueue) post(wrs []RecvWR) (posted int, bad postRefusal, errno unix.Errno) {
	for len(wrs) > 0 {
		n, refusal := q.encode(wrs)
		if n > 0 {
			took, errno := q.Post(n)
			posted += took
			if errno != 0 {
				return posted, postProvider, errno
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
	room, sges := len(q.WR), q.SGEs
	for i := range wrs[:min(len(wrs), room)] {
		w, a := &wrs[i], &q.WR[i]
		if len(w.SGE) > sges {
			return i, postTooMany
		}
		a.WRID, a.NumSGE = w.ID, int32(len(w.SGE))
		putSGEs(q.SGE[i*sges:], w.SGE)
		n++
	}
	return n, postOK
}

// completionQueue decodes completions. One goroutine at a time may use it.
type completionQueue struct{ *libibverbs.CompletionQueue }

// poll returns how many completions it stored, negative if the provider fails.
func (q *completionQueue) poll(wc []WC) int {
	if len(wc) == 0 {
		return 0
	}
	n := q.Poll(min(len(wc), len(q.WC)))
	if n <= 0 {
		return n
	}
	from := q.WC[:n]
	to := wc[:len(from)]
	for i := range from {
		// Field by field: a literal is built beside the slice first.
		a, w := &from[i], &to[i]
		w.ID, w.Status, w.Opcode, w.VendorErr = a.WRID, WCStatus(a.Status), WCOpcode(a.Opcode), a.VendorErr
		w.ByteLen, w.QPN, w.SrcQP, w.Flags = a.ByteLen, a.QPNum, a.SrcQP, WCFlags(a.Flags)
		w.PKeyIndex, w.SLID, w.SL, w.PathBits = a.PKeyIndex, a.SLID, a.SL, a.DLIDBits
		switch w.Flags & (WCWithImm | WCWithInv) {
		case 0:
			w.Imm = 0
		case WCWithInv:
			w.Imm = a.Imm // invalidated_rkey, in the host's byte order
		default:
			w.Imm = bigEndian(a.Imm)
		}
	}
	return n
}
