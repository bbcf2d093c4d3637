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

// Config has the settings of connections. The zero value connects over loopback addresses only.
type Config struct {
	// TLS protects the exchange between the hosts, which makes connections and exports memory. Both sides
	// need a certificate: Dial accepts those of RootCAs, a Listener those of ClientCAs. The default of
	// ServerName is the host of Dial's address. The package sets ClientAuth, and a MinVersion of at least
	// TLS 1.3. Without TLS only loopback addresses are allowed, unless AllowPlaintext is set. RDMA is not
	// encrypted. TLS does not separate peers from one another: all of them are in one protection domain,
	// and a peer could use a key that it guesses.
	TLS *tls.Config
	// AllowPlaintext allows the exchange without encryption: a host that can read or change it
	// can read and write the exported memory.
	AllowPlaintext bool

	// Hello is sent to the peer, which finds it in PeerInfo.Hello. It has at most 4 KiB.
	Hello []byte
	// Admit, if not nil, is called before a Listener connects a caller; its error rejects the
	// caller. The caller receives the text of an error of Reject, or "refused" for other errors.
	// The context ends when the handshake's time is over. Several calls may run at once.
	Admit func(context.Context, PeerInfo) error
	// OnReject, if not nil, is called for every caller that a Listener does not connect, and for
	// every connection that ends before Accept has returned it, with the reason. Each call has
	// its own goroutine; it must not block.
	OnReject func(caller PeerInfo, why error)
	// Backlog is the number of connections of a Listener that may wait for Accept; default 128.
	// MaxConns is the number that may exist at once; default no limit. Further callers are
	// rejected with the reason.
	Backlog  int
	MaxConns int

	// NIC is the only NIC that connections use; default all of the Fabric. Port is its port;
	// default any that is active. GID narrows the choice of the port's GID.
	NIC  string
	Port int
	GID  gid.Wish
	// PKey is the partition, such as 0x8001; default the port's first.
	PKey uint16
	// TrafficClass is that of RoCE packets: the DSCP (upper 6 bits) and ECN (lower 2 bits).
	// ServiceLevel is InfiniBand's, or the priority of a VLAN. MTU is the size of packets in
	// bytes: 256, 512, 1024, 2048 or 4096; the default and the maximum are what both ports allow.
	TrafficClass uint8
	ServiceLevel uint8
	MTU          int

	// PeerTimeout bounds the wait for a silent peer: its NIC does not acknowledge, its host does not
	// answer, or it does not confirm a Close. Default 10 s, or 30 s for a connection that outlives its
	// links, which may be without a link for that long. A NIC may take up to four times as long.
	PeerTimeout time.Duration
	// ConnectTimeout bounds the making of a connection; default 10 s.
	ConnectTimeout time.Duration
	// Outlive makes the connection outlive its link, if the peer's Config has it, too: see "Lost
	// links". Connections over several NICs always do. A link that is silent with operations under
	// way is given up within 3 s or PeerTimeout, whichever is shorter. With TLS both sides must show the same certificates again.
	Outlive bool

	// Ordering says which operations that this side posts follow earlier ones over several NICs:
	// OrderOverlaps, the default, OrderWrites or OrderFences.
	Ordering int
	// Verify makes the peer check the bytes of this side's writes with Notify: see "Verified writes".
	// It is VerifyNone, the default, VerifySampled or VerifyAll. The peer's Verify is for the peer's
	// writes. The sums leave a note of MessageSize less 512 bytes at most.
	Verify int

	// Depth is the number of operations that may be under way; default 256.
	Depth int
	// Messages is the number of messages and notifications that the peer may send before the
	// program has taken one; default 32. MessageSize is their longest size in bytes; default 1
	// KiB, at most 64 KiB. The smaller MessageSize of both sides applies. Each connection pins
	// about twice the product of both as host memory.
	Messages    int
	MessageSize int
}

// The values of Config.Ordering. With each of them a message, a notification, an atomic and a fence
// follow what was posted before. Over one NIC they make no difference.
const (
	OrderOverlaps = iota // an operation follows those that it overlaps
	OrderWrites          // writes also follow one another: for a peer that polls memory
	OrderFences          // nothing else follows: for programs whose operations under way do not overlap
)

// rails returns the options of rails.
func (c *Config) rails() rails.Options {
	return rails.Options{One: c.NIC != "", Order: rails.Order(c.Ordering)}
}

// The values of Config.Verify. The cost is that both sides read the bytes that are summed.
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

// PeerInfo is what is known of the other side of a connection. For a rejected caller TLS and
// Hello are nil if the handshake ended before them.
type PeerInfo struct {
	Addr  net.Addr             // of the exchange
	TLS   *tls.ConnectionState // nil without TLS
	Hello []byte               // its Config.Hello
}

// Reject returns an error for Config.Admit. The caller receives its text, of at most 256 bytes.
func Reject(text string) error { return engine.Reject(text) }
