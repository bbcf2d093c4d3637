// SPDX-License-Identifier: Apache-2.0

package memnic

import (
	"encoding/binary"

	"github.com/gpurdma/gpurdma/ibvfd"
)

// Atomic is an atomic operation that has read its target and has not written it.
type Atomic struct {
	Op     ibvfd.Opcode
	Device *Device // the device that carries it out, which has the memory
	Key    uint32
	Addr   uint64
	Old    uint64 // the value that it has read
}

// OnAtomic sets a function that runs between the two halves of each atomic operation: after the
// device has read the target, and before it writes it. Atomic operations are atomic only among
// those of one device. So the function, or another goroutine that it waits for, may let another
// device write to the same memory. It must not wait for an atomic operation of the same device,
// nor for the end of the link. A nil function removes it.
func (n *Network) OnAtomic(between func(Atomic)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.onAtomic = between
}

// atomicSize is the number of bytes of an atomic operation.
const atomicSize = 8

// atomic carries out an atomic operation.
func (q *pair) atomic(wr request, peer *pair, local pieces) outcome {
	if length(wr.SGE) != atomicSize {
		return as(ibvfd.WCLocLenErr)
	}
	if wr.RemoteAddr%atomicSize != 0 || peer.link.most.NoAtomics {
		return as(ibvfd.WCRemInvReqErr)
	}
	at, _ := peer.target(&wr, atomicSize, ibvfd.AccessRemoteAtomic)
	if at == nil {
		return as(ibvfd.WCRemAccessErr)
	}
	n, dev := q.link.net, peer.link.adapter
	peer.arrive()
	if n.onAtomic != nil || dev.atomic {
		if !q.pause(&wr, peer) {
			return noAnswer
		}
		defer q.resume(dev)
		old := binary.NativeEndian.Uint64(at[0])
		n.between(Atomic{wr.Op, &Device{adapter: dev, domain: peer.link.domain}, wr.RKey, wr.RemoteAddr, old})
		// The network may have changed.
		again, _ := peer.target(&wr, atomicSize, ibvfd.AccessRemoteAtomic)
		if local, _ = q.local(&wr); again == nil || local == nil || q.peer() != peer {
			return noAnswer
		}
		wr.apply(at[0], old, local)
		return as(ibvfd.WCSuccess)
	}
	wr.apply(at[0], binary.NativeEndian.Uint64(at[0]), local)
	return as(ibvfd.WCSuccess)
}

// pause makes the queue pair busy, and waits until its turn among the atomic operations of the
// peer's device has come. It reports whether the peer still answers.
func (q *pair) pause(wr *request, peer *pair) bool {
	n, dev := q.link.net, peer.link.adapter
	q.busy = true
	for dev.atomic {
		n.idle.Wait()
	}
	if at, _ := peer.target(wr, atomicSize, ibvfd.AccessRemoteAtomic); at == nil || q.peer() != peer {
		q.busy = false
		n.idle.Broadcast()
		return false
	}
	dev.atomic = true
	return true
}

// resume ends what pause has begun.
func (q *pair) resume(dev *adapter) {
	dev.atomic, q.busy = false, false
	q.link.net.idle.Broadcast()
}

// between calls the function of OnAtomic without the mutex.
func (n *Network) between(a Atomic) {
	f := n.onAtomic
	if f == nil {
		return
	}
	n.mu.Unlock()
	defer n.mu.Lock()
	f(a)
}

// apply returns the old value, and writes the new one.
func (wr *request) apply(at []byte, old uint64, local pieces) {
	local.scatter(binary.NativeEndian.AppendUint64(nil, old))
	switch {
	case wr.Op == ibvfd.OpFetchAdd:
		binary.NativeEndian.PutUint64(at, old+wr.CompareAdd)
	case old == wr.CompareAdd:
		binary.NativeEndian.PutUint64(at, wr.Swap)
	}
}
