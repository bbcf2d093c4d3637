// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
)

// A connection has two queue pairs. READs have one of their own: they are long, and no other
// operation is ordered with them. On one pair, rxe of Linux 6.12 on a busy machine sometimes
// answers the first WRITE after a long READ only with retries.
const (
	writeQueue = iota // writes, messages, atomics; receives
	readQueue
	queues
)

// link is the queue pairs of a connection.
type link interface {
	local() [queues]ibvfd.Endpoint
	connect(remote [queues]ibvfd.Endpoint, reads uint8) error // reads: the number that the peer answers at once
	attr() linkAttr                                           // as granted
	post(queue int, wrs []ibvfd.SendWR) (int, error)
	recv(wrs []ibvfd.RecvWR) (int, error)
	fail() error  // flushes outstanding work requests
	down() error  // why the port carries nothing; nil if it works, or if that is not known
	close() error // after it the NIC touches no memory for the link; may be tried again
}

// linkAttr describes a link to make.
type linkAttr struct {
	sendDepth, recvDepth int
	sge, inline          int
	readSGE              int   // SGEs of a READ; as granted only
	readsIn, readsOut    uint8 // READs and atomics at once: answered, and sent, which the peer may lower; as granted only
	maxMsg               int64
	connect              ibvfd.ConnectAttr
	queue                completionQueue          // the completion queue of both
	broke                func(why error)          // there may be no more completions; does not block
	end                  func(func() error) error // closes a link that was not completed, now or later
	path                 *ibvfd.ManagedAttr       // the path that rdma_cm has resolved; nil over TCP
	gidSelector          gidSelector              // over TCP
	why                  string                   // why this port and GID were chosen
}

// follow applies the path that rdma_cm has resolved to the attributes that the options leave
// open.
func (a *linkAttr) follow(path *ibvfd.ManagedAttr) {
	c := &a.connect
	c.MTU = mtuOf(path.MTU, c.MTU)
	c.PKeyIndex = cmp.Or(c.PKeyIndex, path.PKeyIndex)
	if c.PathAttr == (ibvfd.PathAttr{}) {
		c.PathAttr = path.PathAttr
	}
	c.Global = c.Global || path.Global
}

// to returns the address of a queue pair of the peer's: rdma_cm knows the LID of a router on
// the path, and the peer knows only its own.
func (a *linkAttr) to(remote ibvfd.Endpoint) ibvfd.Endpoint {
	if a.path != nil {
		remote.LID = a.path.Remote.LID
	}
	return remote
}

type verbsLink struct {
	ctx   *ibvfd.Context
	watch *watch
	cq    *ibvfd.CQ
	qps   [queues]*ibvfd.QP
	a     linkAttr
}

func (d *verbsDevice) link(a linkAttr) (_ link, err error) {
	l := &verbsLink{ctx: d.ctx, watch: d.watch, cq: a.queue.(*verbsQueue).cq, a: a}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.end(l.close))
		}
	}()
	var c chosen
	if a.path == nil {
		if c, err = a.gidSelector.choose(d.ctx, d.attr.Ports); err != nil {
			return nil, err
		}
	} else {
		own, err := d.ctx.QueryGID(a.path.Port, a.path.GIDIndex)
		if err != nil {
			return nil, err
		}
		c = chosen{a.path.Port, &own, "rdma_cm has settled it"}
		l.a.follow(a.path)
	}
	for i := range l.qps {
		attr := ibvfd.QPAttr{
			Type: ibvfd.RC, SendCQ: l.cq, RecvCQ: l.cq, SendDepth: a.sendDepth, RecvDepth: 1,
			SendSGE: min(a.sge, d.attr.MaxSGE), RecvSGE: 1, Port: c.port, GID: c.gid,
		}
		if i == writeQueue {
			attr.RecvDepth, attr.RecvSGE, attr.Inline = a.recvDepth, attr.SendSGE, a.inline
		}
		if l.qps[i], err = d.qp(attr); err != nil {
			return nil, err
		}
	}
	granted := l.qps[writeQueue].Attr()
	// Depths stay as asked for: the CQ was made for them.
	l.a.sge = min(granted.SendSGE, granted.RecvSGE, l.qps[readQueue].Attr().SendSGE, a.sge)
	l.a.readSGE = readSGE(l.a.sge, d.attr.MaxSGERead)
	l.a.inline = min(granted.Inline, a.inline)
	l.a.readsIn = a.connect.Reads(d.attr)
	l.a.readsOut = l.a.readsIn
	l.a.why = c.why
	own, err := d.ctx.QueryPort(max(l.qps[0].Local().Port, 1))
	if err != nil {
		return nil, err
	}
	l.a.maxMsg = maxMessage(own)
	return l, d.watch.add(l)
}

// readSGE returns the number of SGEs that a READ may have: some devices scatter to fewer
// places than they gather from. Some drivers leave most at 0.
func readSGE(sge, most int) int {
	if most > 0 {
		return min(sge, most)
	}
	return sge
}

// mtuOf returns the MTU that a side accepts and announces: the port's or the path's, or a
// smaller one that the options ask for, rounded down to a valid MTU.
func mtuOf(most, option int) int {
	if option <= 0 || option >= most {
		return most
	}
	return 1 << (bits.Len(uint(option)) - 1)
}

// maxMessage returns the length of the longest work request. Some drivers leave the port's
// limit at 0.
func maxMessage(port ibdev.PortAttr) int64 {
	if port.MaxMsg == 0 {
		return maxWR
	}
	return min(int64(port.MaxMsg), maxWR)
}

// maxWR bounds one work request if the port allows more: lost bytes are sent again, and
// completions should not be too far apart.
const maxWR = 1 << 30

// qp makes a queue pair; if it cannot have inline data, qp makes it without.
func (d *verbsDevice) qp(attr ibvfd.QPAttr) (*ibvfd.QP, error) {
	q, err := d.pd.CreateQP(attr)
	if err != nil && attr.Inline > 0 {
		attr.Inline = 0
		return d.pd.CreateQP(attr)
	}
	return q, err
}

func (l *verbsLink) local() (e [queues]ibvfd.Endpoint) {
	for i, q := range l.qps {
		e[i] = q.Local()
		e[i].MTU = mtuOf(e[i].MTU, l.a.connect.MTU)
	}
	return e
}

func (l *verbsLink) connect(remote [queues]ibvfd.Endpoint, reads uint8) error {
	l.a.readsOut = min(l.a.readsOut, reads)
	attr := l.a.connect
	if attr.PeerReads = l.a.readsOut; attr.PeerReads == 0 {
		attr.PeerReads = ibvfd.Zero
	}
	for i, q := range l.qps {
		if err := q.Connect(l.a.to(remote[i]), attr); err != nil {
			return err
		}
	}
	return nil
}

func (l *verbsLink) attr() linkAttr { return l.a }

func (l *verbsLink) post(queue int, wrs []ibvfd.SendWR) (int, error) {
	return l.qps[queue].PostSend(wrs)
}

func (l *verbsLink) recv(wrs []ibvfd.RecvWR) (int, error) { return l.qps[writeQueue].PostRecv(wrs) }
func (l *verbsLink) fail() error {
	var err error
	for _, q := range l.qps {
		err = errors.Join(err, q.Err())
	}
	return err
}

func (l *verbsLink) down() error {
	port := l.qps[0].Local().Port
	a, err := l.ctx.QueryPort(port)
	if err != nil || a.State == ibdev.PortActive {
		return nil
	}
	return fmt.Errorf("port %d is %v", port, a.State)
}

func (l *verbsLink) close() error {
	l.watch.remove(l)
	var errs []error
	for _, q := range l.qps {
		if q != nil {
			errs = append(errs, q.Close())
		}
	}
	return errors.Join(errs...)
}
