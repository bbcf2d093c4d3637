// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/gid"
)

// EndpointOptions tune an endpoint. A zero field takes the default.
type EndpointOptions struct {
	Depth      int // operations to one peer that may be under way; default 256
	RecvDepth  int // receives from one peer that may be posted; default 128
	SendDepth  int // work requests in a queue pair; default 128
	MaxSGE     int // pieces of local memory in one work request; default 16, or what the device allows
	InjectSize int // bytes that an inject may have; default 256
	MaxPeers   int // connections and addresses; default 64

	// Selective makes completions only for operations with FlagCompletion, and
	// for those that fail (FI_SELECTIVE_COMPLETION). The others that the NIC is told of
	// together (FlagMore) cost it no completions either, but for the last.
	Selective bool
	// AutoReceive keeps that many empty receives posted for each peer, for the
	// data of writes. It is for endpoints that receive no messages: a message
	// that is not empty would not fit one, and Recv is refused. When the peer or the NIC
	// ends the connection, or such a message does, one of the receives completes with the
	// reason.
	AutoReceive int

	// TLS protects the exchange by which connections are made. Both sides need a
	// certificate that the other accepts. Without it only loopback addresses are
	// allowed, unless AllowPlaintext. It decides who gets in; it does not keep
	// apart those who are: see Share.
	TLS *tls.Config
	// AllowPlaintext lets the exchange go in the clear: whoever can read or
	// change it can read and write the shared memory.
	AllowPlaintext bool

	// Port is the NIC's port that connections go over; 0 is any that is active. GID
	// narrows the choice of the port's GID. Where there is a choice left, a
	// connection over TCP takes the GID through which TCP itself goes, or one that
	// reaches the peer's; [Endpoint.Connection] says which, and why. Over rdma_cm who
	// connects does so from the address of such a GID, and who listens at the address
	// that it names. The routing table decides on InfiniBand, toward a link-local
	// address, and for a NIC without an address that reaches the peer's; the version
	// of RoCE is rdma_cm's to choose.
	Port int
	GID  gid.Wish

	// OnReject, if not nil, is told of everybody who called at a listener and was not
	// connected, and why: it spoke no TLS or no version of the protocol that we know, its
	// certificate is of nobody whom we trust, it was silent or slow, there was no place; and
	// of those who were connected and gone before Accept returned them. It is called on a
	// goroutine of its own for each, as often as callers like, and Close waits for it. While
	// 64 calls of it last nobody else is accepted: it must not wait for anything.
	OnReject func(from net.Addr, why error)

	// ConnectTimeout bounds an exchange; default 10 s.
	ConnectTimeout time.Duration
	// Connect tunes the queue pairs. By default a peer that has posted no
	// receive is waited for about half a second (RNRRetry 6, MinRNRTimer 26),
	// and one that does not answer about four (Timeout 17, RetryCount 6).
	// Of MTU and MaxRead a connection takes the smaller one of both sides', which they
	// tell each other; PeerReads is not looked at. Over rdma_cm a PKeyIndex of 0 is
	// that of the path, and so is a PathAttr that is zero.
	Connect ibvfd.ConnectAttr
}

func (o *EndpointOptions) setDefaults() error {
	for _, d := range []struct {
		name string
		v    *int
		def  int
		max  int
	}{
		{"Depth", &o.Depth, 256, 1 << 20}, {"RecvDepth", &o.RecvDepth, 128, 1 << 20}, {"SendDepth", &o.SendDepth, 128, 1 << 20},
		{"MaxSGE", &o.MaxSGE, 16, 1 << 12}, {"InjectSize", &o.InjectSize, 256, 1 << 20}, {"MaxPeers", &o.MaxPeers, 64, 1 << 16},
		{"AutoReceive", &o.AutoReceive, 0, 1 << 20}, {"Port", &o.Port, 0, 255},
	} {
		if *d.v < 0 || *d.v > d.max {
			return &dmabuf.Error{Op: "make an endpoint", Detail: fmt.Sprintf("%s %d", d.name, *d.v), Remedy: fmt.Sprintf("0 to %d", d.max), Err: dmabuf.ErrRange}
		}
		if *d.v == 0 {
			*d.v = d.def
		}
	}
	if mtu := o.Connect.MTU; mtu != 0 && mtu < 256 { // the peer would call it malformed
		return &dmabuf.Error{Op: "make an endpoint", Detail: fmt.Sprintf("Connect.MTU %d", mtu), Remedy: "256 to 4096, or 0 for the port's", Err: dmabuf.ErrRange}
	}
	o.RecvDepth = max(o.RecvDepth, o.AutoReceive)
	if o.ConnectTimeout <= 0 {
		o.ConnectTimeout = 10 * time.Second
	}
	if o.Connect.RNRRetry == 0 {
		o.Connect.RNRRetry = 6 // 7 is for ever
	}
	if o.Connect.MinRNRTimer == 0 {
		o.Connect.MinRNRTimer = 26 // 81.92 ms: table 45 of the InfiniBand specification
	}
	if o.Connect.Timeout == 0 {
		o.Connect.Timeout = 17 // software NICs of busy machines are late at times
	}
	return nil
}
