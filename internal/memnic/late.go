// SPDX-License-Identifier: Apache-2.0

package memnic

import (
	"encoding/binary"

	"github.com/gpurdma/gpurdma/ibvfd"
)

// packet is an operation that has left its sender and is kept in the network.
type packet struct {
	request
	data     []byte // as the sender's NIC has read them
	total    int
	seq      uint64 // the operation's number on its queue pair
	from     *pair  // it may be closed
	to       uint32 // the receiver's queue pair
	receiver *adapter
}

// Hold keeps the operations in the network that a device sends to another one, or lets them go on:
// all that are there arrive, late, in their order. To their sender they look lost meanwhile. A
// late operation is carried out even if its sender has given it up, or has destroyed the queue
// pair. The receiver drops it if its queue pair has failed or is destroyed, or if it has carried
// out a copy before. READs are not kept: they get no answer.
func (n *Network) Hold(by, to *Device, held bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	way := span{by.adapter, to.adapter}
	n.hold[way] = held
	if held {
		return
	}
	var rest []*packet
	for _, p := range n.late {
		if (span{p.from.link.adapter, p.receiver}) != way {
			rest = append(rest, p)
		} else if p.arrive() {
			n.landed++
		} else {
			n.dropped++
		}
	}
	n.late = rest
}

// Pass lets later operations go on at once. Those that Hold has kept stay in the network until
// Hold lets them go on.
func (n *Network) Pass(by, to *Device) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hold[span{by.adapter, to.adapter}] = false
}

// Late returns the number of operations that are kept, and of those that have arrived late: were
// carried out, and were dropped.
func (n *Network) Late() (kept, landed, dropped int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.late), n.landed, n.dropped
}

// keep puts the operations of a queue pair into the network that are not there yet.
func (q *pair) keep(peer *pair) {
	for i := range q.sends {
		seq := q.seq + uint64(i)
		wr := q.sends[i]
		if seq < q.kept || wr.Op == ibvfd.OpRead {
			continue
		}
		local, status := q.local(&wr)
		if status != ibvfd.WCSuccess {
			return
		}
		q.kept = seq + 1
		q.link.net.late = append(q.link.net.late, &packet{wr, local.gather(), int(length(wr.SGE)), seq, q, q.to, peer.link.adapter})
	}
}

// arrive carries out a late operation, and reports whether it did.
func (p *packet) arrive() bool {
	n := p.from.link.net
	peer := n.pairs[p.to]
	if peer == nil || peer.to != p.from.num || peer.failed || peer.deaf || peer.link.end != nil || peer.expect != p.seq || !p.receiver.works() {
		return false
	}
	o := noAnswer
	switch p.Op {
	case ibvfd.OpWrite, ibvfd.OpWriteImm, ibvfd.OpSend, ibvfd.OpSendImm:
		o = p.from.deliver(&p.request, peer, p.data, p.total)
	case ibvfd.OpFetchAdd, ibvfd.OpCompareSwap:
		at, _ := peer.target(&p.request, atomicSize, ibvfd.AccessRemoteAtomic)
		if at == nil {
			return false
		}
		peer.arrive()
		var local pieces // for the old value
		if p.awaited() {
			local, _ = p.from.local(&p.request)
		}
		p.apply(at[0], binary.NativeEndian.Uint64(at[0]), local)
		o = as(ibvfd.WCSuccess)
	}
	if o < 0 {
		return false
	}
	peer.expect++
	if p.awaited() {
		if p.from.answers == nil {
			p.from.answers = map[uint64]outcome{}
		}
		p.from.answers[p.seq] = o
		p.from.wake()
	}
	return true
}

// awaited reports whether the sender still waits for the answer.
func (p *packet) awaited() bool {
	q := p.from
	return !q.link.closed && !q.failed && p.seq >= q.seq && p.seq < q.seq+uint64(len(q.sends))
}
