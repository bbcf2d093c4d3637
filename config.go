// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/gid"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/internal/engine"
	"github.com/gpurdma/gpurdma/internal/mailbox"
	"github.com/gpurdma/gpurdma/internal/rails"
)

// Config has the settings of connections. The zero value connects over loopback addresses only. Dial and Listen
// return ErrRange for a number that is negative or too large, and for a time that is neither 0 nor 1 ms to 24 h.
type Config struct {
	// TLS protects the exchange: the messages over TCP, or rdma_cm, by which the two hosts make connections and
	// export memory. Both sides need a certificate: Dial accepts those of RootCAs, a Listener those of ClientCAs. The
	// default of ServerName is the host of Dial's address. The package sets ClientAuth, and a MinVersion of at least
	// TLS 1.3. Without TLS an address that is not a loopback address needs AllowPlaintext; otherwise Dial and Listen
	// return ErrUnsafe. RDMA is not encrypted. TLS does not separate peers from one another: all are in one
	// protection domain, and a peer could guess a key.
	TLS *tls.Config
	// AllowPlaintext allows the exchange without encryption. A host that can read or change the exchange can then
	// read and write the exported memory.
	AllowPlaintext bool

	// Hello, of at most 4 KiB, is sent to the peer, whose PeerInfo.Hello it becomes.
	Hello []byte
	// Admit, if not nil, is called before a Listener connects a caller. If it returns an error, the caller is
	// rejected: its Dial returns ErrRejected with the text of an error of Reject, or "refused" for another error. The
	// context ends when ConnectTimeout is over. Several calls may run at once.
	Admit func(context.Context, PeerInfo) error
	// OnReject, if not nil, is called with the reason for every caller that a Listener does not connect, and for
	// every connection that ends before Accept has returned it. Each call has a goroutine of its own. It must not
	// block: while 64 calls run, no caller is accepted, and Fabric.Close waits for all calls.
	OnReject func(caller PeerInfo, why error)
	// Backlog is the number of connections of a Listener that may wait for Accept; default 128. MaxConns is the
	// number of connections of a Listener that may exist at once; default no limit. A caller beyond these limits is
	// rejected with the reason.
	Backlog  int
	MaxConns int

	// NIC is the only NIC that connections use; default all of the Fabric. A NIC that is not of the Fabric is refused
	// with ENODEV. Port is the port of each NIC; default any that is active. GID narrows the choice of the port's
	// GID.
	NIC  string
	Port int
	GID  gid.Wish
	// PKey is the partition's key, such as 0x8001; default the first in the port's table.
	PKey uint16
	// TrafficClass is that of RoCE packets: the DSCP (upper 6 bits) and ECN (lower 2 bits). ServiceLevel, 0 to 15, is
	// InfiniBand's, or the priority of a VLAN. MTU is the payload of a packet in bytes: 256, 512, 1024, 2048 or 4096.
	// The default, and the maximum, is the MTU that both ports allow.
	TrafficClass uint8
	ServiceLevel uint8
	MTU          int

	// PeerTimeout bounds the wait for a silent peer: its NIC does not acknowledge, its host does not answer, or it
	// does not confirm a Close. NICs round the time, some of them up to four times as long. PeerTimeout also bounds
	// the time without a link of a connection that outlives its links. The default is 10 s; 30 s for a connection
	// that outlives its links.
	PeerTimeout time.Duration
	// ConnectTimeout bounds the making of a connection, on both sides; default 10 s.
	ConnectTimeout time.Duration
	// Outlive makes the connection outlive its link, if the peer's Config has it, too: see "Lost links". Connections
	// over several NICs always outlive their links. A link over which the peer is silent while operations are under
	// way is given up after 3 s, or after PeerTimeout if that is shorter. With TLS both sides must show the same
	// certificates again for each link.
	Outlive bool

	// Ordering says which operations that this side posts follow earlier ones over several NICs: OrderOverlaps, the
	// default, OrderWrites or OrderFences.
	Ordering int
	// Verify makes the peer check the bytes of this side's writes with Notify: see "Verified writes". It is
	// VerifyNone, the default, VerifySampled or VerifyAll. The peer's Verify is for the peer's writes. The sums take
	// 512 bytes of a message: MessageSize must have them, and the note gets what is left.
	Verify int

	// Depth is the number of operations of this side that may be under way; default 256, at most 1,048,576.
	Depth int
	// Messages is the number of messages and notifications that this side keeps for its program: the peer may send as
	// many before the program takes one; default 32, at most 4,096. MessageSize is the longest one in bytes; default
	// 1 KiB, at most 64 KiB. The smaller MessageSize of both sides applies. A connection pins host memory of about
	// twice the product of the two.
	Messages    int
	MessageSize int
}

// The values of Config.Ordering. With each of them a message, a notification, an atomic and a fence start after
// everything posted before. Over one NIC the values make no difference.
const (
	OrderOverlaps = iota // an operation also starts after earlier ones that it overlaps
	OrderWrites          // a write also starts after earlier writes: for a peer that polls memory
	OrderFences          // no other operation waits: for programs whose operations under way do not overlap
)

// rails returns the options of rails.
func (c *Config) rails() rails.Options {
	return rails.Options{One: c.NIC != "", Order: rails.Order(c.Ordering)}
}

// The values of Config.Verify. Both sides read the bytes that are summed, which costs time.
const (
	VerifyNone    = iota
	VerifySampled // about 1 % of the blocks of 64 KiB, drawn at random for each write
	VerifyAll     // all bytes, in at most about 120 blocks: of 64 KiB, or larger ones in a long write
)

const (
	defaultBacklog  = 128
	defaultMessages = 32
	peerTimeout     = 10 * time.Second
	linkTimeout     = 30 * time.Second // PeerTimeout of a connection that outlives its links
	maxHello        = 4 << 10
)

// options translates the configuration for a NIC.
func (c *Config) options(n *rails.NIC) (engine.EndpointOptions, error) {
	opt := engine.EndpointOptions{
		TLS: c.TLS, AllowPlaintext: c.AllowPlaintext, Hello: slices.Clone(c.Hello), Port: c.Port, GID: c.GID, MaxConns: c.MaxConns, PKey: ibdev.PKey(c.PKey),
		PeerTimeout: cmp.Or(c.PeerTimeout, peerTimeout), ConnectTimeout: c.ConnectTimeout, Depth: c.Depth,
		MailDepth: cmp.Or(c.Messages, defaultMessages), MailSize: c.MessageSize, MaxPeers: maxConns, Outlive: c.Outlive,
		Connect: ibvfd.ConnectAttr{MTU: c.MTU, PathAttr: ibvfd.PathAttr{TrafficClass: c.TrafficClass, SL: c.ServiceLevel}},
	}
	if err := rails.CheckSettings(rails.Settings{{"Messages", c.Messages, 1 << 12}, {"MessageSize", c.MessageSize, 64 << 10}, {"Depth", c.Depth, 1 << 20}, {"Port", c.Port, 255}, {"ServiceLevel", int(c.ServiceLevel), 15}, {"Ordering", c.Ordering, OrderFences}, {"Verify", c.Verify, VerifyAll}, {"Backlog", c.Backlog, 1 << 16}, {"MaxConns", c.MaxConns, 1 << 20}},
		rails.Wait{Name: "PeerTimeout", Value: c.PeerTimeout}, rails.Wait{Name: "ConnectTimeout", Value: c.ConnectTimeout}); err != nil {
		return opt, err
	}
	if c.Verify != VerifyNone && c.MessageSize != 0 && c.MessageSize < mailbox.SumsSize {
		return opt, rails.Refuse(fmt.Sprintf("Config.Verify with a MessageSize of %d", c.MessageSize), fmt.Sprintf("sums take %d bytes of a message: make it at least as long", mailbox.SumsSize))
	}
	if c.MTU != 0 && c.MTU != ibdev.MTUBytes(ibdev.MTUEnum(c.MTU)) {
		return opt, rails.Refuse(fmt.Sprintf("Config.MTU %d", c.MTU), "256, 512, 1024, 2048, 4096, or 0 for what both ports have")
	}
	if len(c.Hello) > maxHello {
		return opt, rails.Refuse(fmt.Sprintf("Config.Hello of %d bytes", len(c.Hello)), fmt.Sprintf("it has %d at most", maxHello))
	}
	if c.PKey != 0 {
		if err := n.NeedPKey(c.Port, ibdev.PKey(c.PKey)); err != nil {
			return opt, fmt.Errorf("Config.PKey %#04x: %w", c.PKey, err)
		}
	}
	if rejected := c.OnReject; rejected != nil {
		opt.OnReject = func(p engine.PeerInfo, why error) { rejected(PeerInfo(p), why) }
	}
	if admit := c.Admit; admit != nil {
		opt.Admit = func(ctx context.Context, p engine.PeerInfo) error { return admit(ctx, PeerInfo(p)) }
	}
	return opt, nil
}

// PeerInfo describes the other side of a connection. TLS and Hello of a rejected caller are nil if the handshake
// ended before this side had them.
type PeerInfo struct {
	Addr  net.Addr             // the peer's address of the exchange over TCP or rdma_cm
	TLS   *tls.ConnectionState // nil without TLS
	Hello []byte               // the peer's Config.Hello
}

// Reject returns an error for Config.Admit. The caller gets the first 256 bytes of the text.
func Reject(text string) error { return engine.Reject(text) }
