// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/gid"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/internal/exchange"
	"github.com/gpurdma/gpurdma/internal/mailbox"
	"github.com/gpurdma/gpurdma/internal/rc"
)

// PeerInfo describes a peer.
type PeerInfo = exchange.PeerInfo

// EndpointOptions tune an endpoint. A zero field takes the default.
type EndpointOptions struct {
	Depth      int // operations to one peer that may be in flight; default 256
	RecvDepth  int // receives from one peer that may be posted; default 128
	SendDepth  int // work requests that a queue pair holds; default 128
	MaxSGE     int // pieces of local memory in one work request; default 16, or the device's limit if that is less
	InjectSize int // bytes that an inject may have; default 256
	MaxPeers   int // connections and addresses; default 64

	// Selective makes completions only for operations with FlagCompletion, and for operations
	// that fail (FI_SELECTIVE_COMPLETION). Of a batch of other operations (FlagMore) the NIC
	// makes a completion only for the last one.
	Selective bool
	// AutoReceive keeps this number of empty receives posted for each peer, for the data of
	// writes. It is for endpoints that receive no messages: a message that is not empty does
	// not fit into such a receive and ends the connection, and Recv returns an error. When the
	// peer, the NIC or such a message ends the connection, one of the receives completes with
	// the reason.
	AutoReceive int

	// TLS protects the exchange by which connections are made. Both sides need a certificate
	// that the other side accepts. Without TLS only loopback addresses are allowed, unless
	// AllowPlaintext is set. TLS decides which peers may connect; it does not separate them
	// from each other: see Share.
	TLS *tls.Config
	// AllowPlaintext allows the exchange without encryption: a host that can read or change the
	// exchange can read and write the shared memory.
	AllowPlaintext bool

	// Port is the NIC's port that connections use; 0 is any active port. GID narrows the choice
	// of the port's GID. Among several GIDs, a connection over TCP takes the one through which
	// TCP itself goes, or one that reaches the peer's; [Endpoint.ConnPath] reports which one,
	// and why. Over rdma_cm the connecting side uses the address of such a GID, and the
	// listening side the address that it listens on. The routing table decides on InfiniBand,
	// toward a link-local address, and for a NIC without an address that reaches the peer's;
	// rdma_cm chooses the version of RoCE.
	Port int
	GID  gid.Wish
	// PKey is the partition, such as 0x8001; 0 leaves Connect.PKeyIndex as it is.
	PKey ibdev.PKey

	// OnReject, if not nil, is called for every caller that a listener does not connect, with the
	// reason: it does not speak TLS or a known version of the protocol, its certificate is not
	// trusted, it is silent or slow, or there is no place for it. It is also called for every
	// connected peer that ends before Accept has returned it. Each call has its own goroutine,
	// and Close waits for it; callers determine how many calls there are. While 64 calls run, the
	// listener accepts no further caller: OnReject must not block.
	OnReject func(caller PeerInfo, why error)
	// MaxConns is the number of connections that a listener may have at once; 0 is no limit.
	MaxConns int

	// Background makes the endpoint take completions without calls of Poll or Wait: all
	// operations must have sinks.
	Background bool
	// PeerTimeout bounds the wait for a silent peer; default 10 s. It bounds Close, too, and sets
	// Connect.Timeout and Connect.RetryCount unless these are set.
	PeerTimeout time.Duration
	keep        exchange.KeepAlive // of the exchange's stream

	// Outlive makes a connection outlive its link: when the link is lost, the side that has called
	// makes another one, and operations wait meanwhile, for PeerTimeout at most. The peer must set
	// Outlive, too; otherwise the connection ends with its link.
	Outlive bool

	// Rails makes the connection the first rail of several, or a later one. It needs Outlive.
	Rails Rails

	// Hello is sent to the peer, which finds it in PeerInfo.Hello. It has at most 4 KiB.
	Hello []byte
	// Admit, if not nil, is called before a listener connects a caller; its error rejects the
	// caller. The caller receives the text of an error of Reject, or "refused" for other errors.
	Admit func(context.Context, PeerInfo) error

	// MailDepth, if not 0, makes the connection receive messages by itself, for Conn.Receive: the
	// peer may send this number of messages before the program has taken one. The peer must set
	// MailDepth, too, perhaps to another number. MailSize is the longest message in bytes;
	// default 1 KiB.
	MailDepth int
	MailSize  int

	// ConnectTimeout bounds an exchange; default 10 s.
	ConnectTimeout time.Duration
	// Connect tunes the queue pairs. By default the NIC waits about half a second for a peer that
	// has posted no receive (RNRRetry 6, MinRNRTimer 26), and about four seconds for one that
	// does not answer (Timeout 17, RetryCount 6). The two sides exchange their MTU and MaxRead,
	// and a connection uses the smaller values; PeerReads is ignored. Over rdma_cm a PKeyIndex of
	// 0 stands for the path's, and so does a zero PathAttr.
	Connect ibvfd.ConnectAttr
}

// Rails are several connections, each over another pair of NICs, that a program uses as one. The
// side that calls makes the first rail, and learns from Conn.PeerNICs how many NICs the peer has.
// Then it makes the others, each from another endpoint. A listener gives each caller of a later
// rail to the endpoint of that rail's NIC.
type Rails struct {
	NICs  int    // NICs of this side; 0 if the connection has one rail only
	Group uint64 // the Session of the first rail; 0 in the options of the first
	Rail  int    // the rail's number: 0 for the first

	Messages *mailbox.Shared // the first rail's; on the side that calls, in the options of a later rail

	// Addrs are a listener's: the addresses of its NICs, by the number of the rail. Callers reach the
	// listener at these, too.
	Addrs []netip.Addr
	// Way returns the addresses for a later rail's exchange. The endpoint calls it before each
	// attempt. If the answer has no To, the exchange goes to the address that was dialed.
	Way func() Way

	// Find is a listener's. It returns the endpoint for a later rail of a caller, nil if the group is
	// not known, and the messages of the first rail.
	Find func(group uint64, rail int, caller PeerInfo) (*Endpoint, *mailbox.Shared, error)
	// Joined is a listener's. It takes the connection of each rail. The connection of the first rail
	// has no link yet; Accept returns it, too.
	Joined func(group uint64, rail int, c *Conn) error

	// Lost is called when a rail has lost its link: after this side's queue pairs are destroyed, and
	// before the rail has another link. Reported is called when the peer has reported that of its own
	// queue pairs, over any rail. Linked is called when a rail has another link. All must return at
	// once.
	Lost     func(group uint64, report RailReport)
	Reported func(group uint64, report RailReport)
	Linked   func(group uint64, rail int, link uint32)
	// Keep reports whether a rail without a link waits for one longer than PeerTimeout. It must
	// return at once.
	Keep func(group uint64) bool

	// Drain is called when the peer has withdrawn the keys for an ID. It waits until no atomic of this
	// side that uses them over the rail is in flight.
	Drain func(group uint64, rail int, id uint64)
}

// Way holds the two addresses of an exchange over TCP.
type Way struct {
	From netip.Addr     // of this host; if it is invalid, the routing table decides
	To   netip.AddrPort // of the peer; may be invalid
}

// wayTimeout is the time in which the peer must answer at the address of its NIC.
const wayTimeout = 2 * time.Second

// dialer returns the dialer for a way.
func (w Way) dialer() *net.Dialer {
	d := new(net.Dialer)
	if w.To.IsValid() { // the next attempt takes the address that was dialed
		d.Timeout = wayTimeout
	}
	if w.From.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(w.From, 0))
	}
	return d
}

// RailReport says that the queue pairs of a rail's link are destroyed on one side.
type RailReport = exchange.RailReport

// A silent peer is given up after keepIdle + keepCount*keepEvery. Tests use shorter times.
var (
	keepIdle  = 5 * time.Second
	keepEvery = 2 * time.Second
	keepCount = 5
)

// mostSilence is how long the link of a connection that outlives it may be silent.
const mostSilence = 3 * time.Second

// setPeerTimeout sets the options that follow from PeerTimeout. A NIC gives up after RetryCount+1
// times of 4.096 us << Timeout, more or less.
func (o *EndpointOptions) setPeerTimeout() {
	o.keep = exchange.KeepAlive{Idle: keepIdle, Every: keepEvery, Count: keepCount}
	if o.PeerTimeout <= 0 {
		o.PeerTimeout = 10 * time.Second
		o.keep.Silence = o.PeerTimeout
		return
	}
	patience := o.PeerTimeout
	if o.Outlive { // a link is given up sooner than the peer
		patience = min(patience, mostSilence)
	}
	const retries, unit = 6, 1 << 12 // rxe takes 7 retries for no limit
	if o.Connect.Timeout == 0 && o.Connect.RetryCount == 0 {
		o.Connect.RetryCount = retries
		for o.Connect.Timeout = 8; o.Connect.Timeout < 31 && (retries+1)*unit<<(o.Connect.Timeout+1) <= int64(patience); o.Connect.Timeout++ {
		}
	}
	k := exchange.KeepAlive{Silence: patience, Every: max(patience/10, time.Second), Count: 5}
	if o.Outlive {
		k.Count = 2
	}
	k.Idle = max(patience-time.Duration(k.Count)*k.Every, time.Second)
	o.keep = k
}

// room is the number of work requests that a connection may have in its completion queue.
func (o *EndpointOptions) room() int { return rc.Queues*o.SendDepth + o.RecvDepth }

// mail returns the limits, for the peer, of the messages that a connection receives by itself.
func (o *EndpointOptions) mail() exchange.Mail {
	if o.MailDepth == 0 {
		return exchange.Mail{}
	}
	return exchange.Mail{Depth: uint16(o.MailDepth), Size: uint32(o.MailSize)}
}

// protection returns how the exchange is protected.
func (o *EndpointOptions) protection() exchange.Protection {
	return exchange.Protection{TLS: o.TLS, AllowPlaintext: o.AllowPlaintext}
}

func (o *EndpointOptions) setDefaults() error {
	for _, d := range []struct {
		name string // of package fi; Config's are checked before
		v    *int
		def  int
		max  int
	}{
		{"TxSize", &o.Depth, 256, 1 << 20}, {"RxSize", &o.RecvDepth, 128, 1 << 20}, {"SendDepth", &o.SendDepth, 128, 1 << 20},
		{"IOVLimit", &o.MaxSGE, 16, 1 << 12}, {"InjectSize", &o.InjectSize, 256, 1 << 20}, {"MaxPeers", &o.MaxPeers, 64, 1 << 16},
		{"AutoReceive", &o.AutoReceive, 0, 1 << 20}, {"Port", &o.Port, 0, 255}, {"MailDepth", &o.MailDepth, 0, 1 << 12}, {"MailSize", &o.MailSize, 1 << 10, 64 << 10},
	} {
		if *d.v < 0 || *d.v > d.max {
			return &failure.Error{Op: "set options", Detail: fmt.Sprintf("%s %d", d.name, *d.v), Remedy: fmt.Sprintf("0 to %d", d.max), Err: failure.ErrRange}
		}
		if *d.v == 0 {
			*d.v = d.def
		}
	}
	if mtu := o.Connect.MTU; mtu != 0 && mtu < 256 { // the peer would refuse it as malformed
		return &failure.Error{Op: "set options", Detail: fmt.Sprintf("Connect.MTU %d", mtu), Remedy: "256 to 4096, or 0 for the port's", Err: failure.ErrRange}
	}
	if len(o.Hello) > exchange.MaxText {
		return &failure.Error{Op: "set options", Detail: fmt.Sprintf("Hello of %d bytes", len(o.Hello)), Remedy: fmt.Sprintf("it has %d at most", exchange.MaxText), Err: failure.ErrRange}
	}
	if o.MailDepth > 0 {
		o.AutoReceive, o.RecvDepth = 0, o.MailDepth+mailbox.Controls
	}
	o.RecvDepth = max(o.RecvDepth, o.AutoReceive)
	if o.ConnectTimeout <= 0 {
		o.ConnectTimeout = 10 * time.Second
	}
	o.setPeerTimeout()
	if o.Connect.RNRRetry == 0 {
		o.Connect.RNRRetry = 6 // 7 is without end
	}
	if o.Connect.MinRNRTimer == 0 {
		o.Connect.MinRNRTimer = 26 // 81.92 ms: enum ib_rnr_timeout in include/rdma/ib_verbs.h
	}
	if o.Connect.Timeout == 0 {
		o.Connect.Timeout = 17 // software NICs of busy machines are late at times
	}
	return nil
}
