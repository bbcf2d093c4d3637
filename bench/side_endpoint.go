// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net"
	"net/netip"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/gid"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/internal/engine"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/rma"
)

// application is one end of a connection, as a program makes it that imports package
// engine. It uses the package's own means: the sides find each other's memory by offers,
// and read memory that the NIC writes by Buffer.ReadAt.
type application struct {
	traffic
	closers
	ep       *engine.Endpoint
	out, in  *memory.Buffer // what goes out, or is read into, and where it lands
	peer     operation.Peer
	mine     *memory.RemoteBuffer
	msg      rma.Msg
	done     [pollBatch]operation.Completion
	came     int // received messages that this side has not taken yet
	ended    int // completions of posted operations, likewise
	lastByte [1]byte
}

func newApplication(device string, t traffic) (a *application, err error) {
	a = &application{traffic: t}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.close())
		}
	}()
	opt, err := t.endpointOptions(device)
	if err != nil {
		return a, err
	}
	nic, err := memory.OpenNIC(device, memory.NICOptions{})
	if err != nil {
		return a, err
	}
	a.closers = append(a.closers, nic)
	for _, b := range []**memory.Buffer{&a.out, &a.in} {
		if *b, err = nic.AllocHost(int64(t.size)); err != nil {
			return a, err
		}
		a.closers = append(a.closers, *b)
	}
	if t.latency && t.op == "write" { // its last byte is waited for
		if a.in, err = a.in.StrictSlice(0, int64(t.size)); err != nil {
			return a, err
		}
		a.closers = append(a.closers, a.in)
	}
	if a.ep, err = engine.NewEndpoint(nic, opt); err == nil {
		a.closers = append(a.closers, a.ep)
	}
	return a, err
}

// endpointOptions are those that correspond to perftest's arguments.
func (t traffic) endpointOptions(device string) (engine.EndpointOptions, error) {
	gid, err := t.gidOf(device)
	return engine.EndpointOptions{
		Depth: t.depth, SendDepth: t.depth, RecvDepth: trafficRecvs, Selective: true,
		InjectSize: 1, // nothing inline
		Port:       1, GID: onlyGID(gid),
		Connect: ibvfd.ConnectAttr{MTU: t.mtu, MaxRead: uint8(t.reads)},
	}, err
}

// gidOf is the GID at the index that perftest gets as an argument.
func (t traffic) gidOf(device string) (gid ibdev.GID, err error) {
	c, err := ibvfd.Open(device)
	if err != nil {
		return gid, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	return c.QueryGID(1, t.gid)
}

// onlyGID is the wish that nothing but this GID fits.
func onlyGID(g ibdev.GID) gid.Wish {
	w := gid.Wish{Subnet: netip.PrefixFrom(g.Addr(), g.Addr().BitLen())}
	switch g.Type {
	case ibdev.GIDRoCEv1:
		w.RoCE = 1
	case ibdev.GIDRoCEv2:
		w.RoCE = 2
	}
	return w
}

// serve waits for a client, and does its part.
func (a *application) serve(port string) error {
	ctx := context.Background()
	_, err := a.ep.Listen(net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		return err
	}
	if a.peer, err = a.ep.Accept(ctx); err != nil {
		return err
	}
	if err := a.meet(ctx); err != nil {
		return err
	}
	switch {
	case a.latency && a.op == "write":
		_, err = a.bounceWrites(false)
	case a.latency && a.op == "send":
		_, err = a.bounceSends(false)
	case a.op == "send":
		err = a.receive()
	}
	if err != nil {
		return err
	}
	// The client ends the connection, when it has heard that we are ready for that. It
	// reads from us until then, or writes.
	if err := a.ep.Offer(ctx, a.peer, a.mine); err != nil {
		return err
	}
	if err := a.ep.Lost(ctx, a.peer); !errors.Is(err, engine.ErrNotConnected) {
		return err
	}
	return nil
}

// call runs the client's part.
func (a *application) call(addr string) (result float64, err error) {
	ctx := context.Background()
	if a.peer, err = a.ep.Connect(ctx, addr); err != nil {
		return 0, err
	}
	if err := a.meet(ctx); err != nil {
		return 0, err
	}
	switch {
	case !a.latency:
		result, err = a.stream()
	case a.op == "write":
		result, err = a.bounceWrites(true)
	case a.op == "send":
		result, err = a.bounceSends(true)
	default:
		result, err = a.readOneByOne()
	}
	if err != nil {
		return 0, err
	}
	_, err = a.ep.Offered(ctx, a.peer)
	return result, err
}

// meet returns when both sides are ready, and know each other's memory.
func (a *application) meet(ctx context.Context) (err error) {
	if a.op == "send" {
		for range min(trafficRecvs, a.count) {
			if err := a.ep.Recv(a.in.All(), a.peer, nil); err != nil {
				return err
			}
		}
	}
	if a.mine, err = a.ep.Share(a.peer, a.in.All(), ibvfd.AccessRemoteRead|ibvfd.AccessRemoteWrite); err != nil {
		return err
	}
	if err := a.ep.Offer(ctx, a.peer, a.mine); err != nil {
		return err
	}
	theirs, err := a.ep.Offered(ctx, a.peer)
	if err != nil {
		return err
	}
	a.msg = rma.Msg{Local: []memory.Span{a.out.All()}, Peer: a.peer}
	if a.op != "send" {
		a.msg.Remote = []memory.RemoteSpan{theirs.All()}
	}
	return nil
}

// flagsOf are the flags of the i-th operation of a batch. The endpoint posts all of a
// batch together, and only the last makes a completion.
func (t traffic) flagsOf(i int) operation.Flags {
	if i < t.batch-1 {
		return operation.FlagMore
	}
	return operation.FlagCompletion
}

// post posts a batch.
func (a *application) post() (err error) {
	for i := range a.batch {
		flags := a.flagsOf(i)
		switch a.op {
		case "write":
			err = a.ep.WriteMsg(a.msg, flags)
		case "read":
			err = a.ep.ReadMsg(a.msg, flags)
		default:
			err = a.ep.SendMsg(a.msg, flags)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// poll polls once; operations that failed are an error.
func (a *application) poll() error {
	n, err := a.ep.Poll(a.done[:])
	for i := range a.done[:n] {
		c := &a.done[i]
		switch {
		case c.Err != nil:
			return c.Err
		case c.Op == operation.Recv:
			a.came++
		default:
			a.ended++
		}
	}
	return err
}

// one polls until count is above 0, and takes one from it.
func (a *application) one(count *int) error {
	for *count == 0 {
		if err := a.poll(); err != nil {
			return err
		}
	}
	*count--
	return nil
}

// stream keeps the queue full, and returns messages a second.
func (a *application) stream() (float64, error) {
	start := clock()
	for posted, done := 0, 0; done < a.count; {
		for posted < a.count && posted-done+a.batch <= a.depth {
			if err := a.post(); err != nil {
				return 0, err
			}
			posted += a.batch
		}
		if err := a.poll(); err != nil {
			return 0, err
		}
		done = a.ended * a.batch
	}
	return float64(a.count) / (clock() - start).Seconds(), nil
}

// receive takes as many messages as the client sends.
func (a *application) receive() error {
	for posted, came := min(trafficRecvs, a.count), 0; came < a.count; came += a.came {
		a.came = 0
		if err := a.poll(); err != nil {
			return err
		}
		for range min(a.came, a.count-posted) {
			if err := a.ep.Recv(a.in.All(), a.peer, nil); err != nil {
				return err
			}
			posted++
		}
	}
	return nil
}

// readOneByOne is the time of a read.
func (a *application) readOneByOne() (float64, error) {
	at := make(times, a.count)
	for i := range at {
		at[i] = clock()
		if err := a.post(); err != nil {
			return 0, err
		}
		if err := a.one(&a.ended); err != nil {
			return 0, err
		}
	}
	return at.median(1), nil
}

// bounceWrites is the time of a write one way: each side sees the other's in memory
// and answers it.
func (a *application) bounceWrites(first bool) (float64, error) {
	at := make(times, a.count)
	for i := range at {
		if !first || i > 0 {
			number := i // of the message that is waited for
			if !first {
				number++
			}
			if err := a.awaitByte(byte(number)); err != nil {
				return 0, err
			}
		}
		at[i] = clock()
		a.lastByte[0] = byte(i + 1)
		if _, err := a.out.WriteAt(a.lastByte[:], int64(a.size-1)); err != nil {
			return 0, err
		}
		if err := a.post(); err != nil {
			return 0, err
		}
		if err := a.one(&a.ended); err != nil {
			return 0, err
		}
	}
	if first { // the answer to the last
		if err := a.awaitByte(byte(a.count)); err != nil {
			return 0, err
		}
	}
	return at.median(2), nil
}

// awaitByte spins until the last byte that a peer writes has a value.
func (a *application) awaitByte(value byte) error {
	for {
		if _, err := a.in.ReadAt(a.lastByte[:], int64(a.size-1)); err != nil || a.lastByte[0] == value {
			return err
		}
	}
}

// bounceSends is the same with messages.
func (a *application) bounceSends(first bool) (float64, error) {
	at := make(times, a.count)
	posted := min(trafficRecvs, a.count)
	take := func() error {
		if err := a.one(&a.came); err != nil || posted == a.count {
			return err
		}
		posted++
		return a.ep.Recv(a.in.All(), a.peer, nil)
	}
	for i := range at {
		if !first || i > 0 {
			if err := take(); err != nil {
				return 0, err
			}
		}
		at[i] = clock()
		if err := a.post(); err != nil {
			return 0, err
		}
		if err := a.one(&a.ended); err != nil {
			return 0, err
		}
	}
	if first {
		if err := take(); err != nil {
			return 0, err
		}
	}
	return at.median(2), nil
}
