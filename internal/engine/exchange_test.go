// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/exchange"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/rc"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/layout"
)

// authority makes certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	a := &authority{key: must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der := must(x509.CreateCertificate(rand.Reader, tmpl, tmpl, &a.key.PublicKey, a.key))(t)
	a.cert = must(x509.ParseCertificate(der))(t)
	return a
}

// config is a host's TLS, with a certificate for 127.0.0.1.
func (a *authority) config(t testing.TB, trusted *authority) *tls.Config {
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der := must(x509.CreateCertificate(rand.Reader, tmpl, a.cert, &key.PublicKey, a.key))(t)
	pool := x509.NewCertPool()
	pool.AddCert(trusted.cert)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, RootCAs: pool, ClientCAs: pool}
}

func TestMutualTLS(t *testing.T) {
	s := inMemory(t)
	good, evil := newAuthority(t), newAuthority(t)
	rejected := make(chan error, 10)
	server := s.endpoint(t, EndpointOptions{TLS: good.config(t, good), AutoReceive: 1, OnReject: func(from PeerInfo, why error) {
		rejected <- fmt.Errorf("%v: %w", from.Addr, why)
	}})
	addr := must(server.Listen("127.0.0.1:0"))(t).String()
	w := &world{t: t, b: server}

	w.a = s.endpoint(t, EndpointOptions{TLS: good.config(t, good)})
	w.ab = must(w.a.Connect(limited(t), addr))(t)
	w.ba = must(server.Accept(limited(t)))(t)
	mine, theirs := hostKind.make(t, w.a.nic, 64), hostKind.make(t, server.nic, 64)
	want := random(t, testenv.Seeded(t), mine, 64)
	w.ok(w.a.Write(mine.All(), w.ab, w.share(theirs.All(), allAccess).All(), 1))
	w.done(w.a, operation.Write, 1)
	same(t, "over TLS", theirs, want)

	anonymous := good.config(t, good)
	anonymous.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return new(tls.Certificate), nil }
	for name, cfg := range map[string]*tls.Config{
		"plain":                      nil,
		"of another authority":       evil.config(t, good),
		"that trusts another":        good.config(t, evil),
		"of another, trusts another": evil.config(t, evil),
		"without certificate":        anonymous,
	} {
		e := s.endpoint(t, EndpointOptions{TLS: cfg, ConnectTimeout: 2 * time.Second})
		if _, err := e.Connect(limited(t), addr); err == nil {
			t.Errorf("a client %s got in", name)
		}
		select {
		case err := <-rejected:
			if !strings.HasPrefix(err.Error(), "127.0.0.1:") {
				t.Errorf("%s: %v", name, err)
			}
		case <-limited(t).Done():
			t.Errorf("nobody heard of the client %s", name)
		}
	}
	if len(rejected) > 0 {
		t.Errorf("another was rejected: %v", <-rejected)
	}
	for name, change := range map[string]func(c *tls.Config){
		"no certificate": func(c *tls.Config) { c.Certificates = nil },
		"trusts anybody": func(c *tls.Config) { c.InsecureSkipVerify = true },
		"no client CAs":  func(c *tls.Config) { c.ClientCAs = nil },
		"asks nobody": func(c *tls.Config) {
			c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return anonymous, nil }
		},
	} {
		cfg := good.config(t, good)
		change(cfg)
		e := s.endpoint(t, EndpointOptions{TLS: cfg})
		if _, err := e.Listen("127.0.0.1:0"); !errors.Is(err, ErrUnsafe) {
			t.Errorf("%s: %v", name, err)
		}
	}
	cfg := good.config(t, good)
	cfg.Certificates = nil
	e := s.endpoint(t, EndpointOptions{TLS: cfg})
	if _, err := e.Connect(limited(t), "127.0.0.1:1"); !errors.Is(err, ErrUnsafe) { // it has not dialled
		t.Errorf("a client without a certificate: %v", err)
	}
}

func goodHello() exchange.Hello {
	q := ibvfd.Endpoint{QPN: 17, PSN: 1<<24 - 1, GID: [16]byte{0: 0xfe, 15: 1}, MTU: 1024}
	return exchange.Hello{Conn: 1, Endpoint: 2, Queues: [rc.Queues]ibvfd.Endpoint{q, q}, ReadsIn: 16, ReadsOut: 7}
}

// No bytes of a caller bypass the exchange; the endpoint serves the next caller.
func TestHostileCallers(t *testing.T) {
	s := inMemory(t)
	w := s.world(t, EndpointOptions{ConnectTimeout: time.Second})
	addr := must(w.b.Listen("127.0.0.1:0"))(t).String()
	frame := func(n uint32, kind byte, body []byte) []byte {
		return append(append(binary.BigEndian.AppendUint32(nil, n), kind), body...)
	}
	h := goodHello()
	body := h.Append(nil)
	for name, send := range map[string][]byte{
		"nothing":           {},
		"HTTP":              []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"4 GiB":             frame(1<<32-1, 1, body),
		"a long hello":      frame(257, 1, make([]byte, 257)),
		"an offer first":    frame(1, 3, []byte{1}),
		"an unknown kind":   frame(0, 99, nil),
		"half a hello":      frame(uint32(len(body)), 1, body[:20]),
		"hello, not ready":  append(frame(uint32(len(body)), 1, body), frame(0, 1, nil)...),
		"a malformed offer": append(append(frame(uint32(len(body)), 1, body), frame(0, 2, nil)...), frame(3, 3, []byte{1, 2, 3})...),
		"keys of another":   append(append(frame(uint32(len(body)), 1, body), frame(0, 2, nil)...), offerOfAnother(t)...),
	} {
		c := must(net.Dial("tcp", addr))(t)
		if _, err := c.Write(send); err != nil {
			t.Fatal(err)
		}
		if name == "half a hello" { // and the endpoint does not wait for a silent one
			_ = c.(*net.TCPConn).CloseWrite()
		}
		// The endpoint hangs up; its earlier bytes do not matter.
		_ = c.SetReadDeadline(time.Now().Add(bound))
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: still connected", name)
		}
		_ = c.Close()
	}
	buf := hostKind.make(t, w.b.nic, 8)
	if rb := w.share(buf.All(), allAccess); rb.Size() != 8 {
		t.Error(rb)
	}
}

// Callers that send nothing, or a hello and then nothing, do not keep others out, not even
// those of their own address, and take no place of a peer.
func TestSilentCallers(t *testing.T) {
	s := inMemory(t)
	good := newAuthority(t)
	for name, tt := range map[string]struct {
		cfg  *tls.Config
		says []byte
	}{"plain": {}, "TLS": {cfg: good.config(t, good)}, "hello": {says: recorded(t, exchange.Version)}, "half a hello": {says: recorded(t, exchange.Version)[:20]}} {
		t.Run(name, func(t *testing.T) {
			opt := EndpointOptions{TLS: tt.cfg, MaxPeers: 1, ConnectTimeout: bound}
			server := s.endpoint(t, opt)
			addr := must(server.Listen("127.0.0.1:0"))(t).String()
			const more = 5
			silent := make([]net.Conn, pendingHandshakes+more)
			for i := range silent {
				silent[i] = must(net.Dial("tcp", addr))(t)
				defer silent[i].Close()
				_, _ = silent[i].Write(tt.says)
			}
			client := s.endpoint(t, opt)
			must(client.Connect(limited(t), addr))(t)
			p := must(server.Accept(limited(t)))(t)
			if list := server.Peers(); len(list) != 1 || list[0] != p {
				t.Errorf("peers %v, accepted %v", list, p)
			}
			gone := silent[:more] // the first callers had to go
			if name == "half a hello" {
				gone = silent // and in the end all have to
			} else if tt.says != nil {
				gone = nil // hellos are not read in the order of the calls
			}
			for i, c := range gone {
				_ = c.SetReadDeadline(time.Now().Add(bound))
				if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("silent caller %d is still there", i)
				}
			}
		})
	}
}

// A connection to a silent peer that is cancelled fails with the cancellation, and not with a
// timeout; at a deadline the error includes both.
func TestGivenUp(t *testing.T) {
	s := inMemory(t)
	silent := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer silent.Close()
	for _, tt := range []struct {
		name  string
		limit time.Duration
		then  func(cancel func(), e *Endpoint) // once the exchange has begun
		want  error
	}{
		{"cancelled", 0, func(cancel func(), _ *Endpoint) { cancel() }, context.Canceled},
		{"closed meanwhile", 0, func(_ func(), e *Endpoint) { _ = e.Close() }, os.ErrClosed},
		{"too late", 200 * time.Millisecond, func(func(), *Endpoint) {}, context.DeadlineExceeded},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := s.endpoint(t, EndpointOptions{ConnectTimeout: tt.limit})
			ctx, cancel := context.WithCancel(limited(t))
			defer cancel()
			heard := make(chan error, 1)
			go func() {
				c, err := silent.Accept()
				if err == nil {
					defer c.Close()
					_, err = io.ReadFull(c, make([]byte, 1))
					tt.then(cancel, e)
					_, _ = io.Copy(io.Discard, c) // until the caller gives up
				}
				heard <- err
			}()
			_, err := e.Connect(ctx, silent.Addr().String())
			if !errors.Is(err, tt.want) || errors.Is(err, os.ErrDeadlineExceeded) != (tt.limit > 0) {
				t.Errorf("%v", err)
			}
			if err := <-heard; err != nil {
				t.Error(err)
			}
		})
	}
}

func offerOfAnother(t testing.TB) []byte {
	rb := described(t, 99, must(layout.Contiguous(0, 8))(t))
	wire := must(rb.MarshalBinary())(t)
	return append(append(binary.BigEndian.AppendUint32(nil, uint32(len(wire))), byte(exchange.MsgOffer)), wire...)
}
