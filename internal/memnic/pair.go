// SPDX-License-Identifier: Apache-2.0

package memnic

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd"
)

// pair is a queue pair.
type pair struct {
	link   *Link
	num    uint32
	to     uint32 // the peer's number; 0 until it is connected
	mtu    int
	sends  []request
	recvs  []ibvfd.RecvWR
	failed bool   // in the error state
	deaf   bool   // it answers nothing
	seq    uint64 // the number of the first of sends
	kept   uint64 // sends before this number were put into the network by Hold
	expect uint64 // the number of the peer's operation that comes next

	answers map[uint64]outcome // of sends that have arrived late
	busy    bool               // a work request is being carried out without the network's mutex

	// In live mode:
	kicked   chan struct{} // wakes the goroutine
	landed   *outcome      // the lost answer of the peer to the first work request
	until    time.Time     // of the next attempt at it
	tries    int           // its attempts without an answer
	notReady int           // its attempts that found no receive
	stuck    bool          // it gets no answer, and there is no timeout
	paced    bool          // the first work request has waited for the rates of the devices
}

// request is a posted work request.
type request struct {
	ibvfd.SendWR
	inline []byte // the data, copied when it was posted
}

// post adds a work request.
func (q *pair) post(wr *ibvfd.SendWR) error {
	l := q.link
	if len(q.sends) >= l.a.SendDepth || len(wr.SGE) > l.a.SGE || wr.Op == ibvfd.OpRead && len(wr.SGE) > l.a.ReadSGE {
		return unix.ENOMEM
	}
	r := request{SendWR: *wr}
	r.SGE = slices.Clone(wr.SGE)
	if wr.Flags&ibvfd.SendInline != 0 {
		r.inline = []byte{}
		for _, g := range wr.SGE {
			mem, _ := l.net.at(l, g.LKey, g.Addr, int(g.Length), false, 0)
			if mem == nil && g.Length > 0 {
				return unix.EINVAL
			}
			r.inline = append(r.inline, mem...)
		}
		if len(r.inline) > l.a.Inline {
			return unix.ENOMEM
		}
	}
	q.sends = append(q.sends, r)
	return nil
}

// pop removes the first work request.
func (q *pair) pop() {
	q.sends = q.sends[1:]
	q.seq++
	q.landed, q.until, q.tries, q.notReady, q.paced = nil, time.Time{}, 0, 0, false
}

// ended completes the first work request.
func (q *pair) ended(status ibvfd.WCStatus) {
	wr := &q.sends[0]
	if status != ibvfd.WCSuccess || wr.Flags&ibvfd.SendSignaled != 0 {
		wc := ibvfd.WC{ID: wr.ID, Opcode: completionOf[wr.Op], QPN: q.num}
		if status != ibvfd.WCSuccess {
			wc = failedWC(wr.ID, q.num, status)
		} else if wr.Op == ibvfd.OpRead || isAtomic(wr.Op) {
			wc.ByteLen = uint32(length(wr.SGE))
		}
		q.link.queue.complete(wc)
	}
	q.pop()
	if status != ibvfd.WCSuccess {
		q.fail()
	}
}

// fail puts the queue pair into the error state, and flushes it.
func (q *pair) fail() {
	q.failed = true
	q.flush()
	q.wake()
}

// flush completes all work requests of a queue pair in the error state. One that is being
// carried out completes first.
func (q *pair) flush() {
	if q.busy {
		return
	}
	for len(q.sends) > 0 {
		q.link.queue.complete(failedWC(q.sends[0].ID, q.num, ibvfd.WCWRFlushErr))
		q.pop()
	}
	for len(q.recvs) > 0 {
		q.link.queue.complete(failedWC(q.recvs[0].ID, q.num, ibvfd.WCWRFlushErr))
		q.recvs = q.recvs[1:]
	}
}

// run carries out all work requests, in manual mode.
func (q *pair) run() {
	for len(q.sends) > 0 && !q.failed && !q.busy && !q.link.closed {
		switch o := q.attempt(); o {
		case noAnswer:
			q.ended(ibvfd.WCRetryExcErr)
		case noReceive:
			q.ended(ibvfd.WCRNRRetryExcErr)
		default:
			q.ended(ibvfd.WCStatus(o))
		}
	}
	if q.failed {
		q.flush()
	}
}

// VendorErr returns the vendor's code of a completion with a status: it differs for each
// status, and none is equal to a status.
func VendorErr(s ibvfd.WCStatus) uint32 { return 0x5000 + uint32(s) }

func failedWC(id uint64, qpn uint32, s ibvfd.WCStatus) ibvfd.WC {
	return ibvfd.WC{ID: id, QPN: qpn, Status: s, VendorErr: VendorErr(s)}
}

// completionOf is the opcode of a send work request's completion.
var completionOf = map[ibvfd.Opcode]ibvfd.WCOpcode{
	ibvfd.OpSend: ibvfd.WCOpSend, ibvfd.OpSendImm: ibvfd.WCOpSend, ibvfd.OpWrite: ibvfd.WCOpWrite, ibvfd.OpWriteImm: ibvfd.WCOpWrite,
	ibvfd.OpRead: ibvfd.WCOpRead, ibvfd.OpCompareSwap: ibvfd.WCOpCompareSwap, ibvfd.OpFetchAdd: ibvfd.WCOpFetchAdd,
}

func isAtomic(o ibvfd.Opcode) bool { return o == ibvfd.OpCompareSwap || o == ibvfd.OpFetchAdd }

func length(sges []ibvfd.SGE) int64 {
	n := int64(0)
	for _, g := range sges {
		n += int64(g.Length)
	}
	return n
}
