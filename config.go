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

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/gid"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/internal/engine"
)

// Config has the settings of connections. The zero value connects over loopback addresses only.
type Config struct {
	// TLS protects the exchange between the hosts, which makes connections and exports memory.
	// Both sides need a certificate: Dial accepts those of RootCAs, a Listener those of
	// ClientCAs. The default of ServerName is the host of Dial's address. The package sets
	// ClientAuth, and a MinVersion of at least TLS 1.3. Without TLS only loopback addresses are
	// allowed, unless AllowPlaintext is set. RDMA is not encrypted. TLS does not separate peers
	// from one another: all of them are in one protection domain, and a peer could use a key that
	// it guesses.
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

	// NIC is the NIC of a Fabric of several; default the first. Port is its port; default any
	// that is active. GID narrows the choice of the port's GID.
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

	// PeerTimeout bounds the wait for a silent peer: its NIC does not acknowledge, its host does
	// not answer, or it does not confirm a Close. Default 10 s. A NIC may take up to four times
	// as long.
	PeerTimeout time.Duration
	// ConnectTimeout bounds the making of a connection; default 10 s.
	ConnectTimeout time.Duration
	// Outlive makes the connection outlive its link, if the peer's Config has it, too: see "Lost
	// links". A link that is silent with operations under way is given up within 3 s or PeerTimeout,
	// whichever is shorter. With TLS both sides must show the same certificates again.
	Outlive bool

	// Depth is the number of operations that may be under way; default 256.
	Depth int
	// Messages is the number of messages and notifications that the peer may send before the
	// program has taken one; default 32. MessageSize is their longest size in bytes; default 1
	// KiB, at most 64 KiB. The smaller MessageSize of both sides applies. Each connection pins
	// about twice the product of both as host memory.
	Messages    int
	MessageSize int
}

const (
	defaultBacklog  = 128
	defaultMessages = 32
	peerTimeout     = 10 * time.Second
	maxHello        = 4 << 10
)

// options translates the configuration for a NIC.
func (c *Config) options(r *rail) (engine.EndpointOptions, error) {
	opt := engine.EndpointOptions{
		TLS: c.TLS, AllowPlaintext: c.AllowPlaintext, Hello: slices.Clone(c.Hello), Port: c.Port, GID: c.GID, MaxConns: c.MaxConns, PKey: ibdev.PKey(c.PKey),
		PeerTimeout: cmp.Or(c.PeerTimeout, peerTimeout), ConnectTimeout: c.ConnectTimeout, Depth: c.Depth,
		MailDepth: cmp.Or(c.Messages, defaultMessages), MailSize: c.MessageSize, MaxPeers: maxConns, Outlive: c.Outlive,
		Connect: ibvfd.ConnectAttr{MTU: c.MTU, PathAttr: ibvfd.PathAttr{TrafficClass: c.TrafficClass, SL: c.ServiceLevel}},
	}
	refuse := func(detail, remedy string) error {
		return &dmabuf.Error{Op: "use a Config", Detail: detail, Remedy: remedy, Err: dmabuf.ErrRange}
	}
	for _, x := range []struct {
		name        string
		value, most int
	}{{"Messages", c.Messages, 1 << 12}, {"MessageSize", c.MessageSize, 64 << 10}, {"Depth", c.Depth, 1 << 20}, {"Port", c.Port, 255}, {"ServiceLevel", int(c.ServiceLevel), 15}, {"Backlog", c.Backlog, 1 << 16}, {"MaxConns", c.MaxConns, 1 << 20}} {
		if x.value < 0 || x.value > x.most {
			return opt, refuse(fmt.Sprintf("Config.%s %d", x.name, x.value), fmt.Sprintf("0 to %d; 0 is the default", x.most))
		}
	}
	for _, x := range []struct {
		name  string
		value time.Duration
	}{{"PeerTimeout", c.PeerTimeout}, {"ConnectTimeout", c.ConnectTimeout}} {
		if x.value != 0 && (x.value < time.Millisecond || x.value > 24*time.Hour) {
			return opt, refuse(fmt.Sprintf("Config.%s %v", x.name, x.value), "1 ms to 24 h; 0 is the default")
		}
	}
	if c.MTU != 0 && c.MTU != ibdev.MTUBytes(ibdev.MTUEnum(c.MTU)) {
		return opt, refuse(fmt.Sprintf("Config.MTU %d", c.MTU), "256, 512, 1024, 2048, 4096, or 0 for what both ports have")
	}
	if len(c.Hello) > maxHello {
		return opt, refuse(fmt.Sprintf("Config.Hello of %d bytes", len(c.Hello)), fmt.Sprintf("it has %d at most", maxHello))
	}
	if c.PKey != 0 {
		if err := r.nic.NeedPKey(c.Port, ibdev.PKey(c.PKey)); err != nil {
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
