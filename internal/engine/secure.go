// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/internal/cmstream"
	"github.com/gpurdma/gpurdma/internal/rc"
)

// protect applies the protection that the options ask for: mutual TLS, a loopback address, or
// plaintext if AllowPlaintext is set. It runs before any byte is exchanged.
func (o *EndpointOptions) protect(ctx context.Context, c net.Conn, host string, client bool) (net.Conn, error) {
	if o.TLS == nil {
		return c, o.mayBePlain(c.RemoteAddr())
	}
	cfg, err := o.mutual(host, client)
	if err != nil {
		return nil, err
	}
	var t *tls.Conn
	if client {
		t = tls.Client(c, cfg)
	} else {
		t = tls.Server(c, cfg)
	}
	if err := t.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	return t, nil
}

// mutual returns a TLS configuration that requires certificates of both sides.
func (o *EndpointOptions) mutual(host string, client bool) (*tls.Config, error) {
	refuse := func(detail, remedy string) error {
		return &dmabuf.Error{Op: "protect the exchange", Detail: detail, Remedy: remedy, Err: ErrUnsafe}
	}
	cfg := o.TLS.Clone()
	cfg.MinVersion = max(cfg.MinVersion, tls.VersionTLS13)
	switch {
	case len(cfg.Certificates) == 0 && cfg.GetCertificate == nil && cfg.GetClientCertificate == nil:
		return nil, refuse("no certificate", "set TLS.Certificates: both sides need one")
	case cfg.InsecureSkipVerify:
		return nil, refuse("InsecureSkipVerify", "set TLS.RootCAs")
	case !client && cfg.GetConfigForClient != nil:
		return nil, refuse("GetConfigForClient", "leave it out: the configuration that it returns may not ask clients for certificates")
	case !client && cfg.ClientCAs == nil:
		return nil, refuse("nothing says which clients are trusted", "set TLS.ClientCAs")
	}
	if client && cfg.ServerName == "" {
		cfg.ServerName = host
	}
	cfg.ClientAuth = tls.RequireAndVerifyClientCert
	return cfg, nil
}

// mayBePlain refuses plaintext to an address that is not a loopback address, nor one in this
// process, unless AllowPlaintext is set.
func (o *EndpointOptions) mayBePlain(a net.Addr) error {
	if o.AllowPlaintext || loopback(a) {
		return nil
	}
	return &dmabuf.Error{
		Op: "protect the exchange", Device: a.String(), Detail: "the address is not a loopback address, and there is no TLS",
		Remedy: "set EndpointOptions.TLS, or AllowPlaintext on a network without other hosts", Err: ErrUnsafe,
	}
}

func loopback(a net.Addr) bool {
	switch a := a.(type) {
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	case cmstream.Addr:
		return netip.AddrPort(a).Addr().IsLoopback()
	}
	return a.Network() == rc.InProcess
}

// keepalive detects a peer whose machine is gone.
func (o *EndpointOptions) keepalive(c net.Conn) {
	if s, ok := c.(interface{ SetSilence(time.Duration) }); ok { // a stream in memory
		s.SetSilence(o.PeerTimeout)
	}
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: o.keepIdle, Interval: o.keepEvery, Count: o.keepCount})
		_ = t.SetNoDelay(true)
		// Bytes that were sent and not acknowledged count, too.
		if raw, err := t.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) {
				_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int((o.keepIdle + time.Duration(o.keepCount)*o.keepEvery).Milliseconds()))
			})
		}
	}
}
