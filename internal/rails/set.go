// SPDX-License-Identifier: Apache-2.0

package rails

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/cmstream"
	"github.com/gpurdma/gpurdma/internal/engine"
	"github.com/gpurdma/gpurdma/internal/exchange"
	"github.com/gpurdma/gpurdma/internal/homes"
	"github.com/gpurdma/gpurdma/internal/mailbox"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/workqueue"
)

// Most is the number of rails that a connection may have.
const Most = exchange.MaxRails

// NIC is a NIC of a Set.
type NIC struct {
	*memory.NIC
	Index    int
	Endpoint *engine.Endpoint
}

// Set is the NICs of a program, and the connections over them.
type Set struct {
	NICs []*NIC

	homes homes.Table // of the memory on which peers have atomics

	mu    sync.Mutex
	conns map[key]*Conn
}

// Open opens NICs by their names. Each may have a number of connections.
func Open(names []string, conns int) (*Set, error) {
	var nics []*memory.NIC
	for _, name := range names {
		n, err := memory.OpenNIC(name, memory.NICOptions{})
		if err != nil {
			return nil, errors.Join(err, closeAll(nics, (*memory.NIC).Close))
		}
		nics = append(nics, n)
	}
	return NewSet(nics, conns)
}

// NewSet makes a Set of opened NICs, which it takes over.
func NewSet(nics []*memory.NIC, conns int) (*Set, error) {
	s := &Set{conns: map[key]*Conn{}}
	for i, n := range nics {
		var e *engine.Endpoint
		var err error
		if slices.ContainsFunc(nics[:i], func(other *memory.NIC) bool { return other.Name() == n.Name() }) {
			err = &failure.Error{Op: "open a fabric", Device: n.Name(), Detail: "the NIC is named twice", Err: unix.EINVAL}
		} else {
			e, err = engine.NewEndpoint(n, engine.EndpointOptions{Background: true, MaxPeers: conns})
		}
		if err != nil {
			return nil, errors.Join(err, s.CloseEndpoints(), closeAll(nics, (*memory.NIC).Close))
		}
		s.NICs = append(s.NICs, &NIC{NIC: n, Index: i, Endpoint: e})
		s.homes.NICs = append(s.homes.NICs, n.Name())
	}
	return s, nil
}

// CloseEndpoints ends all connections.
func (s *Set) CloseEndpoints() (err error) {
	for _, n := range s.NICs {
		err = errors.Join(err, n.Endpoint.Close())
	}
	return err
}

// Close closes the NICs by a function.
func (s *Set) Close(one func(*memory.NIC) error) error { return closeAll(s.Memory(), one) }

func closeAll(nics []*memory.NIC, one func(*memory.NIC) error) (err error) {
	for _, n := range nics {
		err = errors.Join(err, one(n))
	}
	return err
}

// Memory returns the NICs for package memory.
func (s *Set) Memory() (list []*memory.NIC) {
	for _, n := range s.NICs {
		list = append(list, n.NIC)
	}
	return list
}

// Counts returns what the NICs and all connections over them have done, and the same for each NIC.
func (s *Set) Counts() (all workqueue.Sum, each map[string]*workqueue.Sum) {
	each = map[string]*workqueue.Sum{}
	for _, n := range s.NICs {
		sum := n.Endpoint.Counts()
		all.Add(&sum)
		each[n.Name()] = &sum
	}
	return all, each
}

// Options are those of connections over several rails. The zero value is usable.
type Options struct {
	One   bool // one rail only
	Order Order
}

// prepare sets the options of a connection's first rail.
func (s *Set) prepare(opt *engine.EndpointOptions, addr string, dialed bool, how Options) {
	if _, cm := cmstream.Cut(addr); how.One || cm {
		return
	}
	opt.Outlive = opt.Outlive || len(s.NICs) > 1
	if opt.Outlive {
		opt.Rails.NICs = min(len(s.NICs), Most)
		s.callbacks(&opt.Rails, dialed)
	}
}

// Dial connects over a NIC. Rails over the other NICs follow in the background.
func (s *Set) Dial(ctx context.Context, n *NIC, addr string, opt engine.EndpointOptions, how Options) (*Conn, error) {
	s.prepare(&opt, addr, true, how)
	ec, err := n.Endpoint.ConnectWith(ctx, addr, opt)
	if err != nil {
		return nil, err
	}
	return s.newConn(n, ec, opt, how, addr), nil
}

// Listener accepts connections, with the rails that callers add to them.
type Listener struct {
	*engine.Listener
	set *Set
	nic *NIC
	opt engine.EndpointOptions
	how Options
}

// Listen listens over a NIC. Callers may add rails over the others.
func (s *Set) Listen(n *NIC, addr string, opt engine.EndpointOptions, backlog int, how Options) (*Listener, error) {
	s.prepare(&opt, addr, false, how)
	l := &Listener{set: s, nic: n, opt: opt, how: how}
	if opt.Rails.NICs > 0 {
		opt.Rails.Addrs = s.addrs(n, addr, &opt)
		opt.Rails.Find, opt.Rails.Joined = s.find, l.joined
	}
	var err error
	l.Listener, err = n.Endpoint.ListenWith(addr, opt, backlog)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// addrs returns the addresses of the NICs of rails, if a listener at addr, over a NIC, listens at all of
// them.
func (s *Set) addrs(n *NIC, addr string, opt *engine.EndpointOptions) (list []netip.Addr) {
	host, _, err := net.SplitHostPort(addr)
	if ip, e := netip.ParseAddr(host); err != nil || host != "" && (e != nil || !ip.IsUnspecified()) {
		return nil
	}
	for i := range min(len(s.NICs), Most) {
		list = append(list, s.nicOf(n, i).Addr(opt.Port, opt.GID))
	}
	return list
}

// Accept waits for a connection.
func (l *Listener) Accept(ctx context.Context) (*Conn, error) {
	ec, err := l.Listener.Accept(ctx)
	if err != nil {
		return nil, err
	}
	if _, name := ec.PeerNICs(); name != 0 {
		if c := l.set.conn(key{name, false}); c != nil && c.First == ec {
			return c, nil
		}
	}
	return l.set.newConn(l.nic, ec, l.opt, l.how, ""), nil
}

// find returns the endpoint for a rail, nil if its connection is not known, and the messages.
func (s *Set) find(group uint64, rail int, caller engine.PeerInfo) (*engine.Endpoint, *mailbox.Shared, error) {
	c := s.conn(key{group, false})
	if c == nil || rail >= c.count {
		return nil, nil, nil
	}
	if !engine.SamePeer(c.First.Peer(), caller) {
		return nil, nil, fmt.Errorf("%w: a rail of another peer's connection", engine.ErrRejected)
	}
	return c.nicOf(rail).Endpoint, c.First.Messages(), nil
}

// joined takes the connection of a rail. The first one is kept for Accept, with the rails that the
// caller adds meanwhile.
func (l *Listener) joined(group uint64, rail int, ec *engine.Conn) error {
	if rail == 0 {
		l.set.newConn(l.nic, ec, l.opt, l.how, "")
		return nil
	}
	c := l.set.conn(key{group, false})
	if c == nil {
		return &failure.Error{Op: "add a rail", Detail: "the connection has ended", Err: engine.ErrNotConnected}
	}
	return c.add(rail, ec)
}

// forget forgets a connection that has ended.
func (s *Set) forget(c *Conn) {
	c.lent.end()
	s.homes.Look()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns[c.key()] == c {
		delete(s.conns, c.key())
	}
}

func (s *Set) conn(k key) *Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns[k]
}
