// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
)

// A connection has two queue pairs. READs have one of their own: they are long,
// nothing is ordered with them, and rxe of Linux 6.12 on a busy machine now and
// then answers the first WRITE after a long READ on one pair to nothing but
// retries.
const (
	writeQueue = iota // writes, messages, atomics; receives
	readQueue
	queues
)

// link is the queue pairs of a connection.
type link interface {
	local() [queues]ibvfd.Endpoint
	connect(remote [queues]ibvfd.Endpoint, reads uint8) error // reads: that the peer answers at once
	attr() linkAttr                                           // as granted
	post(queue int, wrs []ibvfd.SendWR) (int, error)
	recv(wrs []ibvfd.RecvWR) (int, error)
	fail() error  // flush what is outstanding
	down() error  // why nothing goes through the port; nil if it does, or is not known
	close() error // after it the NIC touches no memory on behalf of the link; may be tried again
}

// linkAttr is what a link is made for.
type linkAttr struct {
	sendDepth, recvDepth int
	sge, inline          int
	readSGE              int   // of a READ; as granted only
	readsIn, readsOut    uint8 // READs and atomics at once: answered, and sent, which the peer may lower; as granted only
	maxMsg               int64
	connect              ibvfd.ConnectAttr
	queue                completionQueue          // where both complete
	broke                func(why error)          // there may be no completions any more; does not block
	end                  func(func() error) error // ends a link that was not made, now or later
	path                 *ibvfd.ManagedAttr       // what rdma_cm has settled; nil over TCP
	gidSelector          gidSelector              // over TCP
	why                  string                   // the port and its GID
}

// follow has the link go the way that rdma_cm has settled, but for what the options
// ask for.
func (a *linkAttr) follow(path *ibvfd.ManagedAttr) {
	c := &a.connect
	c.MTU = mtuOf(path.MTU, c.MTU)
	c.PKeyIndex = cmp.Or(c.PKeyIndex, path.PKeyIndex)
	if c.PathAttr == (ibvfd.PathAttr{}) {
		c.PathAttr = path.PathAttr
	}
	c.Global = c.Global || path.Global
}

// to is where a queue pair of the peer's is reached: rdma_cm knows the LID of the
// router that the peer may be behind, and the peer only its own.
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
			err = joined(err, a.end(l.close))
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

// readSGE is how many SGEs a READ may have: some devices scatter what comes to
// fewer places than they gather from. There are drivers that leave most at 0.
func readSGE(sge, most int) int {
	if most > 0 {
		return min(sge, most)
	}
	return sge
}

// mtuOf is the MTU that a side is content with, and announces: the port's or the
// path's, or a smaller one that the options ask for, rounded down to one that
// there is.
func mtuOf(most, option int) int {
	if option <= 0 || option >= most {
		return most
	}
	return 1 << (bits.Len(uint(option)) - 1)
}

// maxMessage is the longest work request's. There are drivers that leave the
// port's at 0.
func maxMessage(port ibdev.PortAttr) int64 {
	if port.MaxMsg == 0 {
		return maxWR
	}
	return min(int64(port.MaxMsg), maxWR)
}

// maxWR bounds one work request where the port allows more: what is lost is
// repeated, and completions should not be too far apart.
const maxWR = 1 << 30

// qp makes a queue pair; one that has no inline data is better than none.
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
		err = joined(err, q.Err())
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
