// SPDX-License-Identifier: Apache-2.0

package rc

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
	WriteQueue = iota // writes, messages, atomics; receives
	ReadQueue
	Queues
)

// ErrNotConnected means that a connection has ended, or never existed.
var ErrNotConnected = errors.New("not connected")

// Link is the queue pairs of a connection.
type Link interface {
	Local() [Queues]ibvfd.Endpoint
	Connect(remote [Queues]ibvfd.Endpoint, reads uint8) error // reads: the number that the peer answers at once
	Attr() Attr                                               // as granted
	Post(queue int, wrs []ibvfd.SendWR) (int, error)
	Recv(wrs []ibvfd.RecvWR) (int, error)
	Fail() error  // flushes outstanding work requests
	Down() error  // why the port carries nothing; nil if it works, or if that is not known
	Close() error // after success the NIC accesses no memory for the link; after an error it may be called again
}

// Attr describes a link to make.
type Attr struct {
	SendDepth, RecvDepth int
	SGE, Inline          int
	ReadSGE              int   // SGEs of a READ; as granted only
	ReadsIn, ReadsOut    uint8 // READs and atomics at once: answered, and sent, which the peer may lower; as granted only
	MaxMsg               int64
	Connect              ibvfd.ConnectAttr
	Queue                CompletionQueue          // the completion queue of both
	Broke                func(why error)          // there may be no more completions; does not block
	End                  func(func() error) error // closes a link that was not completed, now or later
	Path                 *ibvfd.ManagedAttr       // the path that rdma_cm has resolved; nil over TCP
	GID                  GIDSelector              // over TCP
	PKey                 ibdev.PKey               // the partition; 0 leaves Connect.PKeyIndex as it is
	Why                  string                   // why this port and GID were chosen
}

// follow applies the path that rdma_cm has resolved to the attributes that the options leave
// open.
func (a *Attr) follow(path *ibvfd.ManagedAttr) {
	c := &a.Connect
	c.MTU = MTU(path.MTU, c.MTU)
	c.PKeyIndex = cmp.Or(c.PKeyIndex, path.PKeyIndex)
	if c.PathAttr == (ibvfd.PathAttr{}) {
		c.PathAttr = path.PathAttr
	}
	c.Global = c.Global || path.Global
}

// to returns the address of a queue pair of the peer's: rdma_cm knows the LID of a router on the
// path; the peer has sent only its own LID.
func (a *Attr) to(remote ibvfd.Endpoint) ibvfd.Endpoint {
	if a.Path != nil {
		remote.LID = a.Path.Remote.LID
	}
	return remote
}

type verbsLink struct {
	ctx   *ibvfd.Context
	watch *watch
	cq    *ibvfd.CQ
	qps   [Queues]*ibvfd.QP
	a     Attr
}

// Link makes the queue pairs of a connection.
func (d *Verbs) Link(a Attr) (_ Link, err error) {
	l := &verbsLink{ctx: d.ctx, watch: d.watch, cq: a.Queue.(*verbsQueue).cq, a: a}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.End(l.Close))
		}
	}()
	var c chosen
	if a.Path == nil {
		if c, err = a.GID.choose(d.ctx, d.attr.Ports); err != nil {
			return nil, err
		}
	} else {
		own, err := d.ctx.QueryGID(a.Path.Port, a.Path.GIDIndex)
		if err != nil {
			return nil, err
		}
		c = chosen{a.Path.Port, &own, "rdma_cm has settled it"}
		l.a.follow(a.Path)
	}
	if a.PKey != 0 {
		if l.a.Connect.PKeyIndex, err = d.ctx.PKeyIndex(max(c.port, 1), a.PKey); err != nil {
			return nil, err
		}
	}
	for i := range l.qps {
		attr := ibvfd.QPAttr{
			Type: ibvfd.RC, SendCQ: l.cq, RecvCQ: l.cq, SendDepth: a.SendDepth, RecvDepth: 1,
			SendSGE: min(a.SGE, d.attr.MaxSGE), RecvSGE: 1, Port: c.port, GID: c.gid,
		}
		if i == WriteQueue {
			attr.RecvDepth, attr.RecvSGE, attr.Inline = a.RecvDepth, attr.SendSGE, a.Inline
		}
		if l.qps[i], err = d.qp(attr); err != nil {
			return nil, err
		}
	}
	granted := l.qps[WriteQueue].Attr()
	// Depths stay as asked for: the CQ was made for them.
	l.a.SGE = min(granted.SendSGE, granted.RecvSGE, l.qps[ReadQueue].Attr().SendSGE, a.SGE)
	l.a.ReadSGE = ReadSGE(l.a.SGE, d.attr.MaxSGERead)
	l.a.Inline = min(granted.Inline, a.Inline)
	l.a.ReadsIn = a.Connect.Reads(d.attr)
	l.a.ReadsOut = l.a.ReadsIn
	l.a.Why = c.why
	own, err := d.ctx.QueryPort(max(l.qps[0].Local().Port, 1))
	if err != nil {
		return nil, err
	}
	l.a.MaxMsg = maxMessage(own)
	return l, d.watch.add(l)
}

// ReadSGE returns the number of SGEs that a READ may have: some devices scatter to fewer
// places than they gather from. Some drivers leave most at 0.
func ReadSGE(sge, most int) int {
	if most > 0 {
		return min(sge, most)
	}
	return sge
}

// MTU returns the MTU that a side accepts and announces: the port's or the path's, or a
// smaller one that the options ask for, rounded down to a valid MTU.
func MTU(most, option int) int {
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
func (d *Verbs) qp(attr ibvfd.QPAttr) (*ibvfd.QP, error) {
	q, err := d.pd.CreateQP(attr)
	if err != nil && attr.Inline > 0 {
		attr.Inline = 0
		return d.pd.CreateQP(attr)
	}
	return q, err
}

func (l *verbsLink) Local() (e [Queues]ibvfd.Endpoint) {
	for i, q := range l.qps {
		e[i] = q.Local()
		e[i].MTU = MTU(e[i].MTU, l.a.Connect.MTU)
	}
	return e
}

func (l *verbsLink) Connect(remote [Queues]ibvfd.Endpoint, reads uint8) error {
	l.a.ReadsOut = min(l.a.ReadsOut, reads)
	attr := l.a.Connect
	if attr.PeerReads = l.a.ReadsOut; attr.PeerReads == 0 {
		attr.PeerReads = ibvfd.Zero
	}
	for i, q := range l.qps {
		if err := q.Connect(l.a.to(remote[i]), attr); err != nil {
			return err
		}
	}
	return nil
}

func (l *verbsLink) Attr() Attr { return l.a }

func (l *verbsLink) Post(queue int, wrs []ibvfd.SendWR) (int, error) {
	return l.qps[queue].PostSend(wrs)
}

func (l *verbsLink) Recv(wrs []ibvfd.RecvWR) (int, error) { return l.qps[WriteQueue].PostRecv(wrs) }
func (l *verbsLink) Fail() error {
	var err error
	for _, q := range l.qps {
		err = errors.Join(err, q.Err())
	}
	return err
}

func (l *verbsLink) Down() error {
	port := l.qps[0].Local().Port
	a, err := l.ctx.QueryPort(port)
	if err != nil || a.State == ibdev.PortActive {
		return nil
	}
	return fmt.Errorf("port %d is %v", port, a.State)
}

func (l *verbsLink) Close() error {
	l.watch.remove(l)
	var errs []error
	for _, q := range l.qps {
		if q != nil {
			errs = append(errs, q.Close())
		}
	}
	return errors.Join(errs...)
}
