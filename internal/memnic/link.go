// SPDX-License-Identifier: Apache-2.0

package memnic

import (
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/internal/rc"
	"github.com/gpurdma/gpurdma/pciaddr"
)

const (
	maxMTU   = 4 << 10
	maxReads = 16 // READs and atomics at once
)

// Link is the queue pairs of a connection. It implements rc.Link.
type Link struct {
	net     *Network
	adapter *adapter
	domain  uint32
	queue   *Queue
	pairs   [rc.Queues]*pair
	a       rc.Attr
	times   times
	most    Limits
	workers sync.WaitGroup

	refuse int   // the work request that is refused, counted from 1
	slow   int   // polls until the device answers, in manual mode
	end    error // why there are no more completions
	closed bool
}

// Link makes the queue pairs of a connection.
func (d *Device) Link(a rc.Attr) (rc.Link, error) {
	n := d.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := d.lost(); err != nil {
		return nil, err
	}
	if a.Path == nil {
		if a.GID.Port == 0 && d.down { // as a real NIC none of whose ports is active
			return nil, &failure.Error{
				Op: "choose a port", Device: d.name, Detail: fmt.Sprintf("port 1 is %v", ibdev.PortDown), Err: unix.ENETDOWN,
				Remedy: "bring the port's network device up",
			}
		}
		own := ibdev.GID{GID: d.gid(), Type: ibdev.GIDRoCEv2}
		if _, _, err := a.GID.Wish.Choose([]ibdev.GID{own}, ibdev.LinkEthernet); err != nil {
			return nil, &failure.Error{Op: "choose a GID", Device: d.name, Detail: "port 1", Err: err}
		}
	}
	if a.PKey != 0 {
		return nil, &failure.Error{Op: "find the P_Key", Device: d.name, Detail: "the NIC has none", Err: unix.EOPNOTSUPP}
	}
	l := &Link{net: n, adapter: d.adapter, domain: d.domain, queue: a.Queue.(*Queue), a: a, most: d.limits, times: n.times(&a.Connect)}
	l.a.SGE, l.a.Inline, l.a.MaxMsg = min(a.SGE, d.limits.maxSGE()), min(a.Inline, d.limits.inline()), d.limits.maxMsg()
	l.a.ReadSGE = rc.ReadSGE(l.a.SGE, d.limits.MaxSGERead)
	l.a.ReadsIn = a.Connect.Reads(ibdev.DeviceAttr{MaxReadAtomic: maxReads, MaxInitReadAtom: 8 * maxReads})
	l.a.ReadsOut = l.a.ReadsIn
	for i := range l.pairs {
		q := &pair{link: l, num: n.nextKey(), kicked: make(chan struct{}, 1)}
		l.pairs[i], n.pairs[q.num] = q, q
		if !n.opt.manual {
			l.workers.Go(q.serve)
		}
	}
	l.queue.links = append(l.queue.links, l)
	l.adapter.links = append(l.adapter.links, l)
	n.open++
	return l, nil
}

// Local returns the addresses of the queue pairs.
func (l *Link) Local() (e [rc.Queues]ibvfd.Endpoint) {
	for i, q := range l.pairs {
		e[i] = ibvfd.Endpoint{QPN: q.num, GID: l.adapter.gid(), Port: 1, MTU: rc.MTU(maxMTU, l.a.Connect.MTU)}
	}
	return e
}

// Connect connects the queue pairs to those of a peer.
func (l *Link) Connect(remote [rc.Queues]ibvfd.Endpoint, reads uint8) error {
	local := l.Local()
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	for i, q := range l.pairs {
		q.to, q.mtu = remote[i].QPN, min(local[i].MTU, remote[i].MTU)
		q.wake()
	}
	l.a.ReadsOut = min(l.a.ReadsOut, reads)
	return nil
}

// Attr returns the attributes as granted.
func (l *Link) Attr() rc.Attr {
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	return l.a
}

// Post posts work requests to one of the queue pairs. It returns the number of those that were
// posted. It refuses a work request with ENOMEM if the send queue is full, or if it has too
// many SGEs.
func (l *Link) Post(queue int, wrs []ibvfd.SendWR) (int, error) {
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	q := l.pairs[queue]
	for i := range wrs {
		if l.closed {
			return i, unix.EBADF
		}
		if l.refuse--; l.refuse == 0 {
			return i, unix.ENOMEM
		}
		if err := q.post(&wrs[i]); err != nil {
			return i, err
		}
	}
	if l.queue.armed && l.net.opt.manual { // there may be no poll
		q.run()
	}
	q.wake()
	return len(wrs), nil
}

// Recv posts receives.
func (l *Link) Recv(wrs []ibvfd.RecvWR) (int, error) {
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	q := l.pairs[rc.WriteQueue]
	for i, wr := range wrs {
		switch {
		case l.closed:
			return i, unix.EBADF
		case len(q.recvs) >= l.a.RecvDepth, len(wr.SGE) > l.a.SGE:
			return i, unix.ENOMEM
		}
		wr.SGE = slices.Clone(wr.SGE)
		q.recvs = append(q.recvs, wr)
	}
	q.wake()
	return len(wrs), nil
}

// Down returns why the port carries nothing, nil if it works.
func (l *Link) Down() error {
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	if l.adapter.down {
		return fmt.Errorf("port 1 is %v", ibdev.PortDown)
	}
	return nil
}

// Fail puts the queue pairs into the error state, and flushes their work requests.
func (l *Link) Fail() error {
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	for _, q := range l.pairs {
		q.fail()
	}
	return nil
}

// Close destroys the queue pairs. Bytes that they have acknowledged are in the host's memory when it
// returns, or still on their way to the memory of a PCI function. Completions of theirs that were not
// polled are lost.
func (l *Link) Close() error {
	l.net.mu.Lock()
	for l.pairs[0].busy || l.pairs[1].busy {
		l.net.idle.Wait()
	}
	if !l.closed {
		l.closed = true
		for _, q := range l.pairs {
			l.adapter.arrive(func(p *placing) bool { return p.pair == q && p.region.home == pciaddr.Addr{} })
			delete(l.net.pairs, q.num)
			q.wake()
		}
		// As real NICs do: completions that were not polled are lost.
		l.queue.wcs = slices.DeleteFunc(l.queue.wcs, func(wc ibvfd.WC) bool { return wc.QPN == l.pairs[0].num || wc.QPN == l.pairs[1].num })
		gone := func(other *Link) bool { return other == l }
		l.queue.links = slices.DeleteFunc(l.queue.links, gone)
		l.adapter.links = slices.DeleteFunc(l.adapter.links, gone)
		l.net.open--
	}
	l.net.mu.Unlock()
	l.workers.Wait()
	return nil
}
