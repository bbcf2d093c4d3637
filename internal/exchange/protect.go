// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/internal/cmstream"
	"github.com/gpurdma/gpurdma/internal/rc"
)

// Protection is how an exchange is protected.
type Protection struct {
	TLS            *tls.Config // nil if there is none
	AllowPlaintext bool        // to and from other machines
}

// Protect applies the protection that was asked for: mutual TLS, a loopback address, or
// plaintext if it is allowed. It runs before any byte is exchanged.
func (p Protection) Protect(ctx context.Context, c net.Conn, host string, client bool) (net.Conn, error) {
	if p.TLS == nil {
		return c, p.MayBePlain(c.RemoteAddr())
	}
	cfg, err := p.Mutual(host, client)
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

// Mutual returns a TLS configuration that requires certificates of both sides.
func (p Protection) Mutual(host string, client bool) (*tls.Config, error) {
	refuse := func(detail, remedy string) error {
		return &dmabuf.Error{Op: "protect the exchange", Detail: detail, Remedy: remedy, Err: ErrUnsafe}
	}
	cfg := p.TLS.Clone()
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

// MayBePlain refuses plaintext to an address that is not a loopback address, nor one in this
// process, unless plaintext is allowed.
func (p Protection) MayBePlain(a net.Addr) error {
	if p.AllowPlaintext || loopback(a) {
		return nil
	}
	return &dmabuf.Error{
		Op: "protect the exchange", Device: a.String(), Detail: "the address is not a loopback address, and there is no TLS",
		Remedy: "set TLS, or AllowPlaintext on a network without other hosts", Err: ErrUnsafe,
	}
}

func loopback(a net.Addr) bool {
	switch a := a.(type) {
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	case cmstream.Addr:
		return netip.AddrPort(a).Addr().IsLoopback()
	}
	if own, ok := a.(interface{ IsLoopback() bool }); ok { // of a network in this process, for tests
		return own.IsLoopback()
	}
	return a.Network() == rc.InProcess
}
