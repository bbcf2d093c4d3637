// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"net/netip"

	"github.com/gpurdma/gpurdma/internal/errs"
	"github.com/gpurdma/gpurdma/internal/mailbox"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/progress"
	"github.com/gpurdma/gpurdma/internal/rails"
	"github.com/gpurdma/gpurdma/internal/verify"
)

// Conn is a connection to a peer. Its methods may be called from several goroutines at once. It makes progress by
// itself. After the end of the connection methods return why it has ended, such as ErrPeerGone.
type Conn struct {
	fabric *Fabric
	c      *rails.Conn
	verify verify.Mode
	peer   PeerInfo // it does not change, and the connection's mutex is not needed for it
	calls  progress.Calls
	full   operation.Full // the error if there is no room
	behind operation.Full // the same, if the peer's program takes no messages
}

func (f *Fabric) newConn(rc *rails.Conn, verify verify.Mode) (*Conn, error) {
	depth := rc.First.Depth()
	c := &Conn{fabric: f, c: rc, verify: verify, peer: PeerInfo(rc.First.Peer()), full: operation.Full{Most: depth, Format: operation.FullDepth}, behind: operation.Full{Most: depth, Format: operation.FullMessages}}
	if !f.add(func() { f.conns[c] = struct{}{} }) {
		_ = rc.Close()
		return nil, f.isClosed()
	}
	rc.OnEnd(func() {
		if !rc.Unknown() { // otherwise Close reports it, or Fabric.Close
			f.forget(c)
		}
	})
	return c, nil
}

// Export gives the peer access to local memory, until Unexport or the end of the connection. The peer finds it by
// Import of the name, of 1 to 254 bytes. The peer may use the bytes of the Span; if the Span is a View, it may use
// all bytes of its buffers. A name that is exported already is refused with EEXIST. Export takes Config.PeerTimeout
// at most.
func (c *Conn) Export(name string, s Span, access Access) error {
	x, err := c.lend("export", s, access)
	if err != nil {
		return err
	}
	ctx, cancel := c.bound()
	defer cancel()
	return plain(c.c.Export(ctx, name, x, access.verbs()))
}

// lend returns local memory that a peer is to be given, and checks the access.
func (c *Conn) lend(op string, s Span, access Access) (rails.Spans, error) {
	if s.none() {
		return nil, errZeroSpan(op)
	}
	on := func(n *rails.NIC) (memory.Span, error) { return s.on(c.fabric, n) }
	_, err := on(c.fabric.set.NICs[0])
	if err == nil {
		err = access.check(op)
	}
	return on, err
}

// Unexport withdraws the access that Export gave. A later access by the peer fails and ends the connection, so that
// the programs agree on the end of its accesses before. Unexport waits until the peer's host has confirmed it, for
// Config.PeerTimeout at most. An Import that begins later does not return the memory. A name that is not exported is
// refused with ENOENT.
func (c *Conn) Unexport(name string) error {
	ctx, cancel := c.bound()
	defer cancel()
	return plain(c.c.Unexport(ctx, name))
}

// bound bounds a call that talks with the peer's host.
func (c *Conn) bound() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), c.c.First.PeerTimeout())
}

// Import waits until the peer has exported memory under the name, and returns the memory. Once the peer's Unexport
// has returned, Import waits for the next Export of the name.
func (c *Conn) Import(ctx context.Context, name string) (Remote, error) {
	rb, more, err := c.c.Import(ctx, name)
	if err != nil {
		return Remote{}, plain(err)
	}
	return remoteOf(rb, more), nil
}

// Share gives the peer access to local memory, as Export does, but without a name and until the end of the
// connection. It returns the memory's descriptor: the program encodes it by Remote.MarshalBinary, and sends it to the
// peer by its own means.
func (c *Conn) Share(s Span, access Access) (Remote, error) {
	x, err := c.lend("share", s, access)
	if err != nil {
		return Remote{}, err
	}
	rb, more, err := c.c.Share(x, access.verbs())
	if err != nil {
		return Remote{}, plain(err)
	}
	return remoteOf(rb, more), nil
}

// Write writes local memory to the peer's memory, of the same number of bytes, and returns when the peer's NIC has
// acknowledged all bytes and the notification. With Delivered it returns when the bytes are in the memory.
func (c *Conn) Write(ctx context.Context, to Remote, from Span, opts ...Option) error {
	if len(opts) > 0 {
		return c.doWith(ctx, Op{Kind: OpWrite, Local: from, Remote: to}, opts)
	}
	_, err := c.do(ctx, &Op{Kind: OpWrite, Local: from, Remote: to})
	return err
}

// doWith is do with options. The operation is allocated for them.
func (c *Conn) doWith(ctx context.Context, o Op, opts []Option) error {
	for _, opt := range opts {
		if opt != nil {
			opt(&o)
		}
	}
	_, err := c.do(ctx, &o)
	return err
}

// Read reads the peer's memory into local memory of the same number of bytes.
func (c *Conn) Read(ctx context.Context, into Span, from Remote, opts ...Option) error {
	if len(opts) > 0 {
		return c.doWith(ctx, Op{Kind: OpRead, Local: into, Remote: from}, opts)
	}
	_, err := c.do(ctx, &Op{Kind: OpRead, Local: into, Remote: from})
	return err
}

// FetchAdd adds to 8 bytes of the peer, aligned to 8 (otherwise EINVAL), and returns their old value. The number is
// in the byte order of both hosts. It is atomic only with respect to other atomics of the peer's NIC. The peer must
// have exported the memory with Atomic (otherwise EACCES).
func (c *Conn) FetchAdd(ctx context.Context, to Remote, add uint64) (old uint64, err error) {
	return c.do(ctx, &Op{Kind: OpFetchAdd, Remote: to, Add: add})
}

// CompareSwap writes swap to 8 bytes of the peer if they equal compare, and returns their old value. The rest is as
// for FetchAdd.
func (c *Conn) CompareSwap(ctx context.Context, to Remote, compare, swap uint64) (old uint64, err error) {
	return c.do(ctx, &Op{Kind: OpCompareSwap, Remote: to, Compare: compare, Swap: swap})
}

// Send sends a message of at most Config.MessageSize bytes (otherwise EMSGSIZE), and returns when the peer's NIC has
// it. While the peer keeps its Config.Messages messages for its program, Send waits.
func (c *Conn) Send(ctx context.Context, message []byte) error {
	_, err := c.do(ctx, &Op{Kind: OpSend, Inline: message})
	return err
}

// Receive waits for a message, and returns it. After the end of the connection it returns the messages that arrived
// before, and then the reason of the end.
func (c *Conn) Receive(ctx context.Context) ([]byte, error) {
	p, err := c.c.Receive(ctx, mailbox.Message)
	return p, plain(err)
}

// ReceiveNotification waits for a notification, and returns the peer's note. All bytes of that write are then in the
// memory, and so are those of the writes before it. If the peer has Config.Verify, the note may come with an error:
// ErrCorrupt if the bytes are not those that the peer has sent, and ErrUnverified if they could not be compared. The
// connection goes on. A comparison ends at the latest Config.PeerTimeout after ctx.
func (c *Conn) ReceiveNotification(ctx context.Context) ([]byte, error) {
	p, err := c.c.Receive(ctx, mailbox.Note)
	if x := (*verify.Corrupt)(nil); errors.As(err, &x) {
		return p, fmt.Errorf("%w: %w", ErrCorrupt, &CorruptError{x, x.Memory, x.Off, x.At, x.Len, x.Sent, x.Found, x.Blocks, x.Checked})
	}
	return p, plain(err)
}

// Notifications is ReceiveNotification as an iterator. It yields ErrCorrupt and ErrUnverified with the note, and goes
// on. It ends after the first other error.
func (c *Conn) Notifications(ctx context.Context) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for {
			p, err := c.ReceiveNotification(ctx)
			if !yield(p, err) || err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrUnverified) {
				return
			}
		}
	}
}

// Close ends the connection. It withdraws work requests that the NIC does not have yet, waits for the others, and
// tells the peer the end, which the peer sees after all operations. It takes Config.PeerTimeout and a few seconds at
// most. Close returns nil if nothing of this side can reach the peer's memory any more: each work request has
// completed, or the peer's NIC has refused it, or the peer has confirmed the end. Otherwise it returns
// ErrOutcomeUnknown. In both cases the connection's memory and queue pairs are free. Its socket is closed when the
// peer has answered, within 3 s. A further call returns the same.
func (c *Conn) Close() error {
	defer c.fabric.forget(c)
	return c.c.Close()
}

// Done returns a channel that is closed when the connection has ended: by Close, by the peer, or by an error.
// Everything that the peer had sent before has then arrived.
func (c *Conn) Done() <-chan struct{} { return c.c.Done() }

// Err returns why the connection has ended, and nil before that. Once an operation has failed because of the end, Err
// is not nil. Until Done is closed, the reason may become more precise.
func (c *Conn) Err() error { return plain(c.c.First.Err()) }

// LocalAddr returns this side's address of the exchange over TCP or rdma_cm.
func (c *Conn) LocalAddr() net.Addr { return c.c.First.LocalAddr() }

// RemoteAddr returns the peer's address of the exchange over TCP or rdma_cm.
func (c *Conn) RemoteAddr() net.Addr { return c.peer.Addr }

// Peer describes the peer: its address, certificates and Hello.
func (c *Conn) Peer() PeerInfo { return c.peer }

// Stats counts what this side has done so far, also after the end. No operation waits for it.
func (c *Conn) Stats() Stats {
	return statsOf(c.c.Counts())
}

// Rail is the path of a connection over one NIC.
type Rail struct {
	NIC   string
	Port  int        // of the NIC; 0 if the rail was not made yet
	Local netip.Addr // the port's GID, or the IPv4 address in it
	Peer  netip.Addr // the same of the peer's port
	Up    bool       // the rail has a link, and the port is active
	Slow  bool       // the rate is below half of the rail's best
	Lost  int        // links that were lost and replaced (Config.Outlive)
	Rate  float64    // bytes a second while the rail was busy; 0 before it was measured, and for a single rail
	Why   string     // why this port and GID were chosen
	Err   error      // why there is no link, or why the rail was not made yet
}

// String returns the path, its state and the reasons for both in one line, without Slow, Lost and Rate.
func (r Rail) String() string {
	state := "up"
	if !r.Up {
		state = "down"
	}
	if r.Err != nil {
		state += fmt.Sprintf(": %v", r.Err)
	}
	if r.Port == 0 {
		return r.NIC + ", " + state
	}
	text := fmt.Sprintf("port %d of %s, %v to %v, %s", r.Port, r.NIC, r.Local, r.Peer, state)
	if r.Why != "" {
		text += " (" + r.Why + ")"
	}
	return text
}

// Rails returns the rails of the connection, the first one first.
func (c *Conn) Rails() (list []Rail) {
	for _, s := range c.c.States() {
		list = append(list, railOf(s))
	}
	return list
}

func railOf(s rails.State) Rail {
	return Rail{s.Path.NIC, s.Path.Port, s.Path.GID, s.Path.Peer, s.Up, s.Slow, s.Lost, s.Rate, s.Path.Why, plain(s.Err)}
}

// Events yields the new state of each rail that loses its link, gets another one, becomes slower than half of its
// best rate, or becomes fast again. A rail that changes several times before it is yielded is yielded once. While no
// iterator of Events runs, the package logs the changes by slog. Events ends after its first error: that of ctx, or
// why the connection has ended.
func (c *Conn) Events(ctx context.Context) iter.Seq2[Rail, error] {
	return func(yield func(Rail, error) bool) {
		defer c.c.Events.Read()()
		for {
			s, err := c.c.Events.Next(ctx)
			if !yield(railOf(s), plain(err)) || err != nil {
				return
			}
		}
	}
}

// String names the connection: "10.0.0.1:7471 by port 1 of mlx5_0, 10.0.0.2 to 10.0.0.1, up".
func (c *Conn) String() string { return fmt.Sprintf("%v by %v", c.RemoteAddr(), c.Rails()[0]) }

// do posts an operation, and waits for it.
func (c *Conn) do(ctx context.Context, o *Op) (uint64, error) {
	x := c.calls.New()
	t, err := c.postWait(ctx, o, false, x, &c.calls)
	if err != nil {
		c.calls.Free(x)
		return 0, c.failed(o.Kind, err)
	}
	if err := x.Wait(ctx, c.c.Polls()); err != nil {
		t.Cancel(err)
		if x.Abandon() {
			return 0, c.failed(o.Kind, err)
		}
	}
	value, err := c.calls.Result(x)
	return value, c.failed(o.Kind, err)
}

// postWait posts an operation, and waits until there is room for it.
func (c *Conn) postWait(ctx context.Context, o *Op, more bool, tag any, sink operation.Sink) (rails.Ticket, error) {
	for {
		if err := errs.Ended(ctx); err != nil {
			return rails.Ticket{}, err
		}
		t, err := c.post(ctx, o, more, tag, sink)
		if c.noRoom(err) == nil {
			return t, err
		}
		c.c.Look()
		select {
		case <-c.c.Vacancy():
		case <-ctx.Done():
			return rails.Ticket{}, errs.Ended(ctx)
		}
	}
}
