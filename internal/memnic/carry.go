// SPDX-License-Identifier: Apache-2.0

package memnic

import (
	"github.com/gpurdma/gpurdma/ibvfd"
)

// outcome is the status of a work request that was carried out, or the reason why it was not.
type outcome int

const (
	noAnswer  outcome = -1 // the peer has not answered
	noReceive outcome = -2 // the peer has no receive
)

func as(s ibvfd.WCStatus) outcome { return outcome(s) }

// peer returns the queue pair at the other end, nil if that one does not answer.
func (q *pair) peer() *pair {
	p := q.link.net.pairs[q.to]
	if p == nil || p.to != q.num || p.failed || p.deaf || p.link.end != nil || !q.link.net.reaches(q.link.adapter, p.link.adapter) {
		return nil
	}
	return p
}

// attempt carries out the first work request, unless the peer has done so before and its answer
// was lost: the peer then answers again.
func (q *pair) attempt() outcome {
	n, peer := q.link.net, q.peer()
	if peer != nil && n.hold[span{q.link.adapter, peer.link.adapter}] {
		q.keep(peer)
		return noAnswer
	}
	if o, ok := q.answers[q.seq]; ok {
		delete(q.answers, q.seq)
		q.landed = &o
	}
	if q.landed == nil || peer == nil || q.sends[0].Op == ibvfd.OpRead {
		o := q.carryOut()
		if peer == nil || o < 0 {
			return o
		}
		q.landed, peer.expect = &o, q.seq+1
	}
	if n.mute[span{peer.link.adapter, q.link.adapter}] {
		return noAnswer
	}
	return *q.landed
}

// carryOut carries out the first work request. It does not complete it.
func (q *pair) carryOut() outcome {
	wr := &q.sends[0]
	local, status := q.local(wr)
	if status != ibvfd.WCSuccess {
		return as(status)
	}
	peer := q.peer()
	if peer == nil {
		return noAnswer
	}
	total := int(length(wr.SGE))
	switch wr.Op {
	case ibvfd.OpRead:
		from, r := peer.target(wr, total, ibvfd.AccessRemoteRead)
		if from == nil {
			return as(ibvfd.WCRemAccessErr)
		}
		peer.arrive()
		if r != nil {
			peer.link.adapter.push(r.home)
		}
		from.copyTo(local)
		return as(ibvfd.WCSuccess)
	case ibvfd.OpWrite, ibvfd.OpWriteImm, ibvfd.OpSend, ibvfd.OpSendImm:
		return q.deliver(wr, peer, local.gather(), total)
	case ibvfd.OpFetchAdd, ibvfd.OpCompareSwap:
		return q.atomic(*wr, peer, local)
	}
	return as(ibvfd.WCLocQPOpErr)
}

// deliver carries out a WRITE or a SEND, whose bytes are data.
func (q *pair) deliver(wr *request, peer *pair, data []byte, total int) outcome {
	switch wr.Op {
	case ibvfd.OpSend:
		return peer.take(ibvfd.WC{Opcode: ibvfd.WCOpRecv, ByteLen: uint32(total)}, data)
	case ibvfd.OpSendImm:
		return peer.take(ibvfd.WC{Opcode: ibvfd.WCOpRecv, ByteLen: uint32(total), Flags: ibvfd.WCWithImm, Imm: wr.Imm}, data)
	}
	return q.write(wr, peer, data, total)
}

// write carries out a WRITE. One with immediate data that finds no receive writes nothing.
func (q *pair) write(wr *request, peer *pair, data []byte, total int) outcome {
	to, r := peer.target(wr, total, ibvfd.AccessRemoteWrite)
	if to == nil {
		return as(ibvfd.WCRemAccessErr)
	}
	imm := wr.Op == ibvfd.OpWriteImm
	if imm && len(peer.recvs) == 0 {
		return noReceive
	}
	if total > 0 {
		peer.place(q, r, wr.RemoteAddr, to[0], data)
	}
	if imm {
		return peer.take(ibvfd.WC{Opcode: ibvfd.WCOpRecvWriteImm, ByteLen: uint32(total), Flags: ibvfd.WCWithImm, Imm: wr.Imm}, nil)
	}
	return as(ibvfd.WCSuccess)
}

// pieces are pieces of memory, in order.
type pieces [][]byte

// gather returns a copy of the bytes.
func (p pieces) gather() []byte {
	all := []byte{}
	for _, m := range p {
		all = append(all, m...)
	}
	return all
}

// copyTo copies the bytes. It copies as many as both have.
func (p pieces) copyTo(to pieces) { to.scatter(p.gather()) }

// scatter fills the pieces.
func (p pieces) scatter(from []byte) {
	for _, m := range p {
		from = from[copy(m, from):]
	}
}

// local returns the local memory of a work request.
func (q *pair) local(wr *request) (pieces, ibvfd.WCStatus) {
	if wr.inline != nil {
		return pieces{wr.inline}, ibvfd.WCSuccess
	}
	if length(wr.SGE) > q.link.a.MaxMsg {
		return nil, ibvfd.WCLocLenErr
	}
	need := ibvfd.Access(0)
	if wr.Op == ibvfd.OpRead || isAtomic(wr.Op) {
		need = ibvfd.AccessLocalWrite
	}
	return q.sges(wr.SGE, need)
}

func (q *pair) sges(list []ibvfd.SGE, need ibvfd.Access) (local pieces, _ ibvfd.WCStatus) {
	for _, g := range list {
		mem, _ := q.link.net.at(q.link, g.LKey, g.Addr, int(g.Length), false, need)
		if mem == nil {
			return nil, ibvfd.WCLocProtErr
		}
		local = append(local, mem)
	}
	return local, ibvfd.WCSuccess
}

// target returns the memory that a peer's work request names, nil if the peer may not access
// it. An operation on no bytes needs no key.
func (q *pair) target(wr *request, size int, need ibvfd.Access) (pieces, *region) {
	if size == 0 {
		return pieces{}, nil
	}
	mem, r := q.link.net.at(q.link, wr.RKey, wr.RemoteAddr, size, true, need)
	if mem == nil {
		return nil, nil
	}
	return pieces{mem}, r
}

// take completes a receive. All bytes that the queue pair has acknowledged before reach the
// memory first.
func (q *pair) take(wc ibvfd.WC, data []byte) outcome {
	if len(q.recvs) == 0 {
		return noReceive
	}
	q.arrive()
	wr := q.recvs[0]
	q.recvs = q.recvs[1:]
	local, status := q.sges(wr.SGE, ibvfd.AccessLocalWrite)
	answer := ibvfd.WCSuccess
	switch {
	case data != nil && status != ibvfd.WCSuccess:
		answer = ibvfd.WCRemOpErr
	case int64(len(data)) > length(wr.SGE):
		status, answer = ibvfd.WCLocLenErr, ibvfd.WCRemInvReqErr
	default:
		status = ibvfd.WCSuccess
	}
	if answer != ibvfd.WCSuccess {
		q.link.queue.complete(failedWC(wr.ID, q.num, status))
		q.fail()
		return as(answer)
	}
	local.scatter(data)
	wc.ID, wc.QPN = wr.ID, q.num
	q.link.queue.complete(wc)
	return as(ibvfd.WCSuccess)
}
