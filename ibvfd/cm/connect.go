// SPDX-License-Identifier: Apache-2.0

package cm

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd"
)

// The number of bytes of private data for which a message of the connection manager has room, over
// InfiniBand and RoCE.
const (
	MaxConnectData = 56  // with Connect: rdma_cm itself takes 36 of 92
	MaxAcceptData  = 196 // with Accept
	MaxRejectData  = 148 // with Reject
)

// Param holds the parameters of a connection. A field that is 0 takes its default.
type Param struct {
	// PrivateData goes to the peer with Connect or Accept: MaxConnectData or
	// MaxAcceptData bytes at most.
	PrivateData []byte
	// ResponderResources is how many READs and atomics the peer may have in flight to this side,
	// InitiatorDepth how many this side may have in flight to the peer. The connection takes the
	// smaller number of both sides. Default: the device's limit, 16 at most.
	ResponderResources, InitiatorDepth uint8
	// RetryCount is how often the NIC repeats a packet that the peer's NIC does not acknowledge: 7 at
	// most, default 6. rxe repeats without end at 7.
	RetryCount uint8
	// RNRRetry is how often the NIC repeats a message for which the peer has no receive: 7, the
	// default, is without end.
	RNRRetry uint8
	// Timeout is how long the NIC waits for an acknowledgement: 4.096 us * 2^Timeout, 31 at most.
	// Default: what rdma_cm computes for the path.
	Timeout uint8
	// MinRNRTimer is how long the peer's NIC waits at least before it repeats a message for which this
	// side had no receive: a number of enum ib_rnr_timeout in the kernel's include/rdma/ib_verbs.h,
	// 31 at most. Default: 12, which is 0.64 ms. rdma_cm's own is 0, which is 655.36 ms.
	MinRNRTimer uint8
	// Access is what the peer may do, where the MR allows it too. Default: all that rdma_cm grants,
	// which is READ, WRITE and atomics.
	Access ibvfd.Access
}

// Connect asks the peer for a connection to qp, waits for the answer and brings qp to RTS. It
// returns the answer's private data: over InfiniBand and RoCE always 196 bytes, with zeros after
// the peer's own. qp must be of this ID's device. A qp in INIT keeps its receives.
//
// If the peer refused, the error is a *[RejectedError]. Connect checks p first: if a number is out of
// range (EINVAL), or the private data too long (failure.ErrLimit), it sends nothing, and the caller
// may call it again. After any other error the ID can only be closed.
func (id *ID) Connect(ctx context.Context, qp *ibvfd.QP, p Param) ([]byte, error) {
	return id.connectTo(ctx, qp, p)
}

func (id *ID) connectTo(ctx context.Context, qp queuePair, p Param) ([]byte, error) {
	if err := id.begin(opConnect, stateResolved); err != nil {
		return nil, err
	}
	addr := id.remote.String()
	c, err := p.settle(opConnect, addr, MaxConnectData, id.dev.most)
	if err != nil {
		id.state.Store(int32(stateResolved)) // nothing was sent
		return nil, err
	}
	c.qpn = qp.Num()
	if err := id.call(func() error {
		id.qp = qp
		return id.id.connect(c)
	}); err != nil {
		return nil, refused(opConnect, addr, err)
	}
	ev, err := id.expect(ctx, opConnect, addr, eventConnectResponse)
	if err != nil {
		return nil, err
	}
	// The answer's depths are in the attributes by now.
	if err := id.bringUp(qp, &p, depths{0xff, 0xff}); err != nil {
		return nil, err
	}
	if err := id.call(id.id.establish); err != nil {
		return nil, refused("rdma_establish", addr, err)
	}
	id.state.CompareAndSwap(int32(stateBusy), int32(stateConnected))
	return ev.data, nil
}

// Accept answers a peer that has asked for a connection: it brings qp to RTS, and returns when the
// peer has confirmed. A message of the peer may have come before that. qp must be of this ID's
// device. A qp in INIT keeps its receives. Errors are as with [ID.Connect].
func (id *ID) Accept(ctx context.Context, qp *ibvfd.QP, p Param) error {
	return id.acceptWith(ctx, qp, p)
}

func (id *ID) acceptWith(ctx context.Context, qp queuePair, p Param) error {
	if err := id.begin(opAccept, stateRequest); err != nil {
		return err
	}
	addr := id.remote.String()
	c, err := p.settle(opAccept, addr, MaxAcceptData, id.dev.most)
	if err != nil {
		id.state.Store(int32(stateRequest))
		return err
	}
	c.qpn = qp.Num()
	c.depths = depths{min(c.depths.in, id.asked.in), min(c.depths.out, id.asked.out)}
	if err := id.call(func() error {
		id.qp = qp
		return nil
	}); err != nil {
		return refused(opAccept, addr, err)
	}
	if err := id.bringUp(qp, &p, c.depths); err != nil {
		return err
	}
	if err := id.call(func() error { return id.id.accept(c) }); err != nil {
		return refused(opAccept, addr, err)
	}
	if _, err := id.expect(ctx, opAccept, addr, eventEstablished); err != nil {
		return err
	}
	id.state.CompareAndSwap(int32(stateBusy), int32(stateConnected))
	return nil
}

// Reject refuses a peer that has asked for a connection, and sends it up to MaxRejectData bytes. The
// caller then closes the ID.
func (id *ID) Reject(data []byte) error {
	if err := id.begin(opReject, stateRequest); err != nil {
		return err
	}
	addr := id.remote.String()
	if err := fits(opReject, addr, data, MaxRejectData); err != nil {
		id.state.Store(int32(stateRequest))
		return err
	}
	if err := id.call(func() error { return id.id.reject(data) }); err != nil {
		return refused(opReject, addr, err)
	}
	return nil
}

// bringUp takes qp to RTS with the attributes of rdma_cm, and no more READs in flight than most.
func (id *ID) bringUp(qp queuePair, p *Param, most depths) error {
	a, err := id.Attributes()
	if err != nil {
		return err
	}
	a.MaxDestRead, a.MaxRead = min(a.MaxDestRead, most.in), min(a.MaxRead, most.out)
	a.MinRNRTimer = cmp.Or(p.MinRNRTimer, 12)
	if p.Timeout != 0 {
		a.Timeout = p.Timeout
	}
	if p.Access != 0 {
		a.Access &= p.Access
	}
	// Not after a Close, which has taken it to the error state.
	return id.call(func() error { return qp.ConnectManaged(a) })
}

// Attributes returns the attributes that rdma_cm has negotiated with the peer. It may be called
// once Accept or Connect was. They serve for more queue pairs on the same path: the two programs
// tell each other the numbers of those over the connection.
func (id *ID) Attributes() (ibvfd.ManagedAttr, error) {
	if err := id.enter(); err != nil {
		return ibvfd.ManagedAttr{}, err
	}
	defer id.leave()
	a, err := id.id.attributes()
	if err != nil {
		return a, refused("rdma_init_qp_attr", id.remote.String(), err)
	}
	return a, nil
}

// settle checks p and fills in the defaults.
func (p *Param) settle(op, addr string, most int, dev depths) (*connParam, error) {
	if err := fits(op, addr, p.PrivateData, most); err != nil {
		return nil, err
	}
	if p.RetryCount > 7 || p.RNRRetry > 7 || p.Timeout > 31 || p.MinRNRTimer > 31 {
		return nil, &failure.Error{
			Op: op, Device: addr, Err: unix.EINVAL, Remedy: "7, 7, 31 and 31 at most",
			Detail: fmt.Sprintf("RetryCount %d, RNRRetry %d, Timeout %d, MinRNRTimer %d", p.RetryCount, p.RNRRetry, p.Timeout, p.MinRNRTimer),
		}
	}
	c := &connParam{
		data: p.PrivateData, depths: depths{p.ResponderResources, p.InitiatorDepth},
		retryCount: p.RetryCount, rnrRetry: p.RNRRetry,
	}
	for _, d := range []struct{ v, def *uint8 }{{&c.depths.in, &dev.in}, {&c.depths.out, &dev.out}} {
		if *d.v == 0 {
			*d.v = 16
		}
		*d.v = min(*d.v, *d.def)
	}
	if c.retryCount == 0 {
		c.retryCount = 6
	}
	if c.rnrRetry == 0 {
		c.rnrRetry = 7
	}
	return c, nil
}

func fits(op, addr string, data []byte, most int) error {
	if len(data) <= most {
		return nil
	}
	return &failure.Error{
		Op: op, Device: addr, Err: failure.ErrLimit,
		Detail: fmt.Sprintf("%d bytes of private data", len(data)), Remedy: fmt.Sprintf("send %d at most, and the rest over the connection", most),
	}
}

// Disconnect ends the connection and waits for the peer's answer, which the peer's kernel
// sends when its program calls Disconnect or Close. The queue pair goes to the error state, in which
// the NIC completes what is posted as flushed. It is no error if the connection has ended before.
// The error is ENOTCONN if there was none, and ctx's if that ends first.
func (id *ID) Disconnect(ctx context.Context) error {
	addr := id.remote.String()
	if idState(id.state.Load()) < stateConnected {
		return &failure.Error{Op: opEnd, Device: addr, Err: unix.ENOTCONN}
	}
	if err := id.call(func() error {
		_ = id.qp.Err() // closed already, or its device is gone
		return id.id.disconnect()
	}); err != nil && !(id.ended() && errors.Is(err, unix.EINVAL)) {
		return refused(opEnd, addr, err)
	}
	return id.Wait(ctx)
}

// Wait waits until either side ends the connection, and then returns nil. If the peer ended it, the
// caller answers with Disconnect or Close. The error is ENOTCONN if there was no connection, ENODEV
// if the device is removed, and ctx's if that ends first.
func (id *ID) Wait(ctx context.Context) error {
	addr := id.remote.String()
	if idState(id.state.Load()) < stateConnected {
		return &failure.Error{Op: opEvent, Device: addr, Err: unix.ENOTCONN}
	}
	for {
		if _, err := id.next(ctx, id.ended, id.see); err != nil {
			return refused(opEvent, addr, err)
		}
		switch idState(id.state.Load()) {
		case stateEnded:
			return nil
		case stateRemoved:
			return unexpected(opEvent, addr, &event{typ: eventDeviceRemoval})
		}
	}
}
