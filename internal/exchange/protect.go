// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/cmstream"
	"github.com/gpurdma/gpurdma/internal/rc"
)

// Protection has the options by which an exchange is protected.
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
		return nil, protectError(err, client)
	}
	return t, nil
}

// protectError returns an error that explains why a handshake of TLS has failed.
func protectError(err error, client bool) error {
	var plain tls.RecordHeaderError
	switch {
	case errors.As(err, &plain) && client:
		return &failure.Error{Op: "protect the exchange", Detail: "the listener does not speak TLS", Remedy: "set TLS there, or nowhere", Err: err}
	case errors.As(err, &plain) && Kind(plain.RecordHeader[4]) == MsgHello && binary.BigEndian.Uint32(plain.RecordHeader[:]) <= uint32(MsgHello.MaxBody()):
		return NewRejection(textTLS, &failure.Error{Op: "protect the exchange", Detail: "the caller does not speak TLS", Remedy: "set TLS there, too", Err: err})
	}
	return NotTrusted(err)
}

// NotTrusted adds to an error of TLS the change of certificates that it needs.
func NotTrusted(err error) error {
	remedy := ""
	var theirs *net.OpError // an alert of the other side
	var ours *tls.CertificateVerificationError
	switch {
	case errors.As(err, &ours):
		remedy = "this side does not accept the other side's certificate: RootCAs says which listeners Dial accepts, for the host of its address or ServerName; ClientCAs which callers a Listener accepts"
	case errors.As(err, &theirs) && theirs.Op == "remote error":
		remedy = "the other side does not accept this side's certificate, or its TLS: its RootCAs or ClientCAs must have the authority of the certificate"
	default:
		return err
	}
	return &failure.Error{Op: "protect the exchange", Remedy: remedy, Err: err}
}

// tlsRecord reports whether the head of a message is that of a record of TLS.
func tlsRecord(head []byte) bool { return head[0] >= 0x14 && head[0] <= 0x17 && head[1] == 3 }

// Mutual returns a TLS configuration that requires certificates of both sides.
func (p Protection) Mutual(host string, client bool) (*tls.Config, error) {
	refuse := func(detail, remedy string) error {
		return &failure.Error{Op: "protect the exchange", Detail: detail, Remedy: remedy, Err: ErrUnsafe}
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

// MayBePlain refuses plaintext, unless it is allowed, or the address is a loopback address or one
// in this process.
func (p Protection) MayBePlain(a net.Addr) error {
	if p.AllowPlaintext || loopback(a) {
		return nil
	}
	return &failure.Error{
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
