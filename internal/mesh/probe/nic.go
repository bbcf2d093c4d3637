// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/internal/mesh/control"
)

// Options are how a NIC takes part.
type Options struct {
	Open   func(names ...string) (*gpurdma.Fabric, error) // gpurdma.Open, or fabrictest's
	Name   string
	Listen string // the address on which the NIC takes connections; port 0 chooses one
	// Alloc makes the memory.
	Alloc func(context.Context, *gpurdma.Fabric) (*gpurdma.Buffer, error)
	Conn  gpurdma.Config // of connections: TLS, GID, port and timeouts; Hello and Admit are the package's
}

// NIC is a NIC that takes part in a mesh, with its memory and a listener. One measurement uses it at a time.
type NIC struct {
	name string
	cfg  gpurdma.Config
	fab  *gpurdma.Fabric
	buf  *gpurdma.Buffer
	ln   *gpurdma.Listener
	slot chan struct{} // full while a measurement uses the NIC

	mu       sync.Mutex
	expected map[control.Token]*Visit
	accepts  sync.WaitGroup
}

// exported is the name of a NIC's memory, for peers.
const exported = "mesh"

// Open opens a NIC, allocates its memory, and listens.
func Open(ctx context.Context, o Options) (_ *NIC, err error) {
	n := &NIC{name: o.Name, cfg: o.Conn, slot: make(chan struct{}, 1), expected: map[control.Token]*Visit{}}
	if n.fab, err = o.Open(o.Name); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.fab.Close())
		}
	}()
	if n.buf, err = o.Alloc(ctx, n.fab); err != nil {
		return nil, err
	}
	listen := o.Conn
	listen.Admit, listen.OnReject, listen.MaxConns = n.admit, n.rejected, maxConns
	listen.ConnectTimeout = max(listen.ConnectTimeout, takeTime) // the caller's plan decides
	if n.ln, err = n.fab.Listen(o.Listen, listen); err != nil {
		return nil, err
	}
	n.accepts.Go(n.accept)
	return n, nil
}

// takeTime is how long a caller may take to connect at least.
const takeTime = 30 * time.Second

// maxConns bounds the connections of a NIC: one that is measured, and some that end.
const maxConns = 8

// Buffer is the memory.
func (n *NIC) Buffer() *gpurdma.Buffer { return n.buf }

// Port is the TCP port of the listener.
func (n *NIC) Port() int {
	_, text, err := net.SplitHostPort(n.ln.Addr().String())
	if err != nil {
		return 0
	}
	port, _ := strconv.Atoi(text)
	return port
}

// Close ends all connections, and frees the memory.
func (n *NIC) Close() error {
	err := n.fab.Close()
	n.accepts.Wait()
	return err
}

// use waits until no other measurement uses the NIC.
func (n *NIC) use(ctx context.Context) error {
	select {
	case n.slot <- struct{}{}:
		return nil
	case <-ctx.Done():
		return &control.Fault{Cause: control.Timeout, Step: "wait for " + n.name, Text: "another measurement uses it"}
	}
}

func (n *NIC) free() { <-n.slot }

// admit lets in a caller that is expected.
func (n *NIC) admit(_ context.Context, p gpurdma.PeerInfo) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.expected[control.Token(p.Hello)] == nil {
		return gpurdma.Reject("no measurement with this token is expected")
	}
	return nil
}

// rejected keeps why a caller did not get a connection, for the side that is called: the caller is told
// little. A caller that has not said its token yet is taken for the one that is expected.
func (n *NIC) rejected(p gpurdma.PeerInfo, why error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	v := n.expected[control.Token(p.Hello)]
	if v == nil && len(p.Hello) == 0 && len(n.expected) == 1 {
		for _, v = range n.expected {
		}
	}
	if v == nil {
		return
	}
	select {
	case v.rejected <- faultOf("take the caller's connection", why):
	default: // there was one before
	}
}

// accept gives each connection to the visit that expects it.
func (n *NIC) accept() {
	for {
		c, err := n.ln.Accept(context.Background())
		if err != nil {
			return
		}
		n.mu.Lock()
		v := n.expected[control.Token(c.Peer().Hello)]
		delete(n.expected, control.Token(c.Peer().Hello))
		n.mu.Unlock()
		if v == nil { // it has ended meanwhile
			n.accepts.Go(func() { _ = c.Close() })
			continue
		}
		v.conn <- c
	}
}
