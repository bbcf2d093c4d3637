// SPDX-License-Identifier: Apache-2.0

package fi

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/gid"
	"github.com/gpurdma/gpurdma/internal/engine"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
)

// Addr is a peer in an endpoint's address vector (fi_addr_t). Addresses are not reused.
type Addr uint64

// AddrUnspec stands for the only peer that an endpoint has had (FI_ADDR_UNSPEC). It is the zero
// Addr. For Endpoint.Key it means all peers.
const AddrUnspec Addr = 0

// Endpoint moves bytes between local memory and the memory of peers (struct fid_ep). Connect and
// Accept make reliable connections, as an FI_EP_MSG endpoint does. The first operation to an
// address of Insert makes one, too, as with an FI_EP_RDM endpoint. One Endpoint may have peers of
// both kinds. Its methods may be called from several goroutines at once.
type Endpoint struct {
	ep *engine.Endpoint
	cq CQ

	mu     sync.Mutex
	first  Addr // the first peer
	others bool // there was another one
	lists  []*lists
}

// EndpointOptions tune an endpoint. A zero field takes the default.
type EndpointOptions struct {
	TxSize     int // operations to one peer that may be under way (fi_tx_attr.size); default 256
	RxSize     int // receives from one peer that may be posted (fi_rx_attr.size); default 128
	IOVLimit   int // pieces of local memory in one work request; default 16, or what the device allows. An operation may have more
	InjectSize int // bytes that an inject may have (fi_tx_attr.inject_size); default 256
	MaxPeers   int // addresses in the address vector (fi_av_attr.count); default 64

	// SelectiveCompletion makes completions only for operations with the flag Completion, and
	// for operations that fail (FI_SELECTIVE_COMPLETION).
	SelectiveCompletion bool
	// AutoReceive is the number of empty receives that the endpoint keeps posted for each peer,
	// for the data of writes. It is for endpoints that receive no messages: Recv returns
	// [EINVAL], and a message that is not empty ends the connection.
	AutoReceive int

	// TLS protects the exchange by which the two hosts make connections and offer keys. Both
	// sides need a certificate that the other side accepts. Without TLS an address that is not a
	// loopback address needs AllowPlaintext (otherwise [EPERM]).
	TLS *tls.Config
	// AllowPlaintext allows the exchange without encryption. A host that can read or change the
	// exchange can then read and write the shared memory.
	AllowPlaintext bool
	// OnReject, if not nil, is called for every caller that the endpoint does not connect, with
	// the reason. It must not block.
	OnReject func(from net.Addr, why error)

	// Port is the NIC's port that connections use; 0 is any active port. GID narrows the choice
	// of the port's GID.
	Port int
	GID  gid.Wish

	ConnectTimeout time.Duration     // bounds an exchange; default 10 s
	PeerTimeout    time.Duration     // bounds the wait for a silent peer; default 10 s
	Connect        ibvfd.ConnectAttr // tunes the queue pairs
}

func (o *EndpointOptions) engine() engine.EndpointOptions {
	opt := engine.EndpointOptions{
		Depth: o.TxSize, RecvDepth: o.RxSize, MaxSGE: o.IOVLimit, InjectSize: o.InjectSize, MaxPeers: o.MaxPeers,
		Selective: o.SelectiveCompletion, AutoReceive: o.AutoReceive,
		TLS: o.TLS, AllowPlaintext: o.AllowPlaintext,
		Port: o.Port, GID: o.GID, ConnectTimeout: o.ConnectTimeout, PeerTimeout: o.PeerTimeout, Connect: o.Connect,
	}
	if rejected := o.OnReject; rejected != nil {
		opt.OnReject = func(caller engine.PeerInfo, why error) { rejected(caller.Addr, why) }
	}
	return opt
}

// Endpoint makes an endpoint with a completion queue and an address vector (fi_endpoint,
// fi_enable).
func (d *Domain) Endpoint(opt EndpointOptions) (*Endpoint, error) {
	ep, err := engine.NewEndpoint(d.nic, opt.engine())
	if err != nil {
		return nil, coded(err)
	}
	e := &Endpoint{ep: ep}
	e.cq.ep = ep
	return e, nil
}

// CQ returns the completion queue, to which all operations of the endpoint report.
func (e *Endpoint) CQ() *CQ { return &e.cq }

// Close ends all connections and keys, and frees the endpoint's own memory, not MRs (fi_close).
// Operations under way end without completions. A second Close does nothing.
func (e *Endpoint) Close() error { return coded(e.ep.Close()) }

// Listen listens for connections on an address: "host:port" is a TCP address,
// "rdma_cm://host:port" an rdma_cm address (fi_listen). Port 0 chooses a port. Listen returns
// the address (fi_getname).
func (e *Endpoint) Listen(addr string) (net.Addr, error) {
	a, err := e.ep.Listen(addr)
	return a, coded(err)
}

// Accept waits until a peer has connected to Listen's address, and returns the peer's Addr
// (fi_accept). If ctx ends first, it returns ctx's error.
func (e *Endpoint) Accept(ctx context.Context) (Addr, error) {
	return e.joined(e.ep.Accept(ctx))
}

// Connect connects to the endpoint that listens on an address (fi_connect). After the end of the
// connection, operations to the Addr return [ENOTCONN].
func (e *Endpoint) Connect(ctx context.Context, addr string) (Addr, error) {
	return e.joined(e.ep.Connect(ctx, addr))
}

// Insert adds a peer to the address vector, by the address on which the peer's endpoint listens
// (fi_av_insert). The first operation to the Addr makes the connection, and so does the first
// operation after the end of a connection.
func (e *Endpoint) Insert(addr string) (Addr, error) {
	return e.joined(e.ep.Insert(addr))
}

// joined notes a new peer.
func (e *Endpoint) joined(p operation.Peer, err error) (Addr, error) {
	if err != nil {
		return 0, coded(err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.first == 0 {
		e.first = Addr(p)
	} else {
		e.others = true
	}
	return Addr(p), nil
}

// peer returns the peer of an operation.
func (e *Endpoint) peer(a Addr) (operation.Peer, error) {
	if a != AddrUnspec {
		return operation.Peer(a), nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.others:
		return 0, errorOf("find the peer", "no address, and the endpoint has had several peers", "give an address", EINVAL)
	case e.first == 0:
		return 0, errorOf("find the peer", "the endpoint has no peer", "Connect, Accept or Insert one", ENOTCONN)
	}
	return operation.Peer(e.first), nil
}

// Remove ends the connection to a peer, if there is one, and removes the peer from the address
// vector (fi_shutdown, fi_av_remove). Operations under way with it complete with an error.
func (e *Endpoint) Remove(a Addr) error {
	p, err := e.peer(a)
	if err != nil {
		return err
	}
	return coded(e.ep.Remove(p))
}

// Lost waits until the connection to a peer has ended, and returns the reason, which is
// [ENOTCONN] (FI_SHUTDOWN). If ctx ends first, it returns ctx's error. When Lost returns the
// reason, the CQ has all completions of the connection, and the keys that were made for the peer
// have ended.
func (e *Endpoint) Lost(ctx context.Context, a Addr) error {
	p, err := e.peer(a)
	if err != nil {
		return err
	}
	return coded(e.ep.Lost(ctx, p))
}

// Offer sends a key that Endpoint.Key has made to a peer, whose Offered returns it. If ctx ends
// while a part of the offer was sent, the connection ends.
func (e *Endpoint) Offer(ctx context.Context, to Addr, k *Key) error {
	p, err := e.peer(to)
	if err != nil {
		return err
	}
	var rb *memory.RemoteBuffer
	if k != nil {
		rb = k.rb
	}
	return coded(e.ep.Offer(ctx, p, rb))
}

// Offered waits for a key that the peer has offered, and returns it.
func (e *Endpoint) Offered(ctx context.Context, from Addr) (*Key, error) {
	p, err := e.peer(from)
	if err != nil {
		return nil, err
	}
	rb, err := e.ep.Offered(ctx, p)
	if err != nil {
		return nil, coded(err)
	}
	return &Key{rb: rb}, nil
}
