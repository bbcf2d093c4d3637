// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// Admit decides who is let in. Only the text of Reject reaches the caller.
func testAdmit(t *testing.T, s *setting) {
	a, b := s.fabric(t), s.fabric(t)
	rejected := make(chan error, 10)
	secret := errors.New("the database is down")
	ln := must(b.Listen(s.listen, gpurdma.Config{
		Admit: func(ctx context.Context, p gpurdma.PeerInfo) error {
			if _, limited := ctx.Deadline(); !limited || p.Addr == nil || p.TLS != nil {
				t.Errorf("%+v", p)
			}
			switch string(p.Hello) {
			case "good":
				return nil
			case "full":
				return gpurdma.Reject("full: 32 of 32 clients")
			case "long":
				return gpurdma.Reject(strings.Repeat("x", 1000))
			}
			return secret
		},
		OnReject: func(from net.Addr, why error) { rejected <- why },
	}))(t)
	for _, x := range []struct{ hello, text string }{{"full", "full: 32 of 32 clients"}, {"long", strings.Repeat("x", 256)}, {"bad", "refused"}, {"", "refused"}} {
		_, err := a.Dial(limited(t), ln.Addr().String(), gpurdma.Config{Hello: []byte(x.hello)})
		if !errors.Is(err, gpurdma.ErrRejected) || !strings.Contains(err.Error(), x.text) || strings.Contains(err.Error(), "database") || strings.Contains(err.Error(), x.text+"x") {
			t.Errorf("%s: %v", x.hello, err)
		}
		select {
		case why := <-rejected:
			if errors.Is(why, secret) != (x.text == "refused") {
				t.Errorf("%s: OnReject: %v", x.hello, why)
			}
		case <-limited(t).Done():
			t.Errorf("%s: OnReject was not called", x.hello)
		}
	}
	c := must(a.Dial(limited(t), ln.Addr().String(), gpurdma.Config{Hello: []byte("good")}))(t)
	must(ln.Accept(limited(t)))(t)
	if _, err := ln.Accept(soon(t)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("another was accepted: %v", err)
	}
	ok(t, c.Send(limited(t), nil))
	if len(rejected) > 0 {
		t.Error(<-rejected)
	}
}

// Each side knows the other one's hello and address.
func testPeerInfo(t *testing.T, s *setting) {
	long := []byte(strings.Repeat("h", 4<<10))
	p := s.pairWith(t, gpurdma.Config{Hello: []byte("client")}, gpurdma.Config{Hello: long})
	if i := p.client.Peer(); string(i.Hello) != string(long) || i.Addr.String() != p.ln.Addr().String() || i.TLS != nil {
		t.Errorf("the server is %v, %d bytes", i.Addr, len(i.Hello))
	}
	if i := p.server.Peer(); string(i.Hello) != "client" || i.TLS != nil {
		t.Errorf("the client is %+v", i)
	}
	if _, err := p.a.Dial(limited(t), p.ln.Addr().String(), gpurdma.Config{Hello: append(long, 1)}); !errors.Is(err, dmabuf.ErrRange) {
		t.Errorf("a hello of more than 4 KiB: %v", err)
	}
	if _, err := p.a.Dial(limited(t), p.ln.Addr().String(), gpurdma.Config{NIC: "nothing0"}); err == nil {
		t.Error("a NIC that is not there")
	}
	p.alive()
}

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
	a.cert = must(x509.ParseCertificate(must(x509.CreateCertificate(rand.Reader, tmpl, tmpl, &a.key.PublicKey, a.key))(t)))(t)
	return a
}

// config is the TLS of a host that trusts an authority.
func (a *authority) config(t testing.TB, name string, at net.IP, trusted *authority) *tls.Config {
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{at},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der := must(x509.CreateCertificate(rand.Reader, tmpl, a.cert, &key.PublicKey, a.key))(t)
	pool := x509.NewCertPool()
	pool.AddCert(trusted.cert)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, RootCAs: pool, ClientCAs: pool}
}

// With TLS each side knows who the other one is, and strangers are not let in.
func testTLS(t *testing.T, s *setting) {
	host, _, _ := net.SplitHostPort(s.listen)
	at := net.ParseIP(host)
	good, evil := newAuthority(t), newAuthority(t)
	rejected := make(chan error, 10)
	p := s.pairWith(t, gpurdma.Config{TLS: good.config(t, "decode-7", at, good)}, gpurdma.Config{
		TLS: good.config(t, "prefill-1", at, good),
		Admit: func(_ context.Context, p gpurdma.PeerInfo) error {
			if name := p.TLS.PeerCertificates[0].Subject.CommonName; name != "decode-7" {
				return gpurdma.Reject(name + " is not in the list")
			}
			return nil
		},
		OnReject: func(_ net.Addr, why error) { rejected <- why },
	})
	for want, c := range map[string]*gpurdma.Conn{"prefill-1": p.client, "decode-7": p.server} {
		if got := c.Peer().TLS.PeerCertificates[0].Subject.CommonName; got != want {
			t.Errorf("the peer is %s, want %s", got, want)
		}
	}
	mine, theirs, remote := p.both(100)
	want := fill(t, testenv.Seeded(t), mine)
	ok(t, p.client.Write(limited(t), remote, mine.All()))
	p.settle()
	same(t, "over TLS", theirs, want)
	for what, cfg := range map[string]gpurdma.Config{
		"a stranger":          {TLS: evil.config(t, "decode-7", at, good)},
		"a distrustful one":   {TLS: good.config(t, "decode-7", at, evil)},
		"without TLS":         {AllowPlaintext: true},
		"not in the list":     {TLS: good.config(t, "decode-8", at, good)},
		"without server's CA": {TLS: &tls.Config{Certificates: good.config(t, "decode-7", at, good).Certificates}},
	} {
		cfg.ConnectTimeout = testenv.Limit(3 * time.Second)
		_, err := p.a.Dial(limited(t), p.ln.Addr().String(), cfg)
		if err == nil {
			t.Errorf("%s was let in", what)
		}
		if what == "not in the list" && (!errors.Is(err, gpurdma.ErrRejected) || !strings.Contains(err.Error(), "decode-8 is not in the list")) {
			t.Errorf("%s: %v", what, err)
		}
		select {
		case <-rejected:
		case <-limited(t).Done():
			t.Errorf("%s: OnReject was not called", what)
		}
	}
	p.alive()
}

// Close of a listener ends Accept, and what was not accepted. Connections stay.
func testListener(t *testing.T, s *setting) {
	p := s.pair(t)
	addr := p.ln.Addr().String()
	waiting := must(p.a.Dial(limited(t), addr, gpurdma.Config{}))(t)
	accepted := must(p.ln.Accept(limited(t)))(t)
	lost := must(p.a.Dial(limited(t), addr, gpurdma.Config{}))(t)
	ends := make(chan error, 1)
	go func() {
		ln := must(p.b.Listen(func() string { h, _, _ := net.SplitHostPort(addr); return h + ":0" }(), gpurdma.Config{}))(t)
		go func() {
			time.Sleep(time.Millisecond)
			ends <- ln.Close()
		}()
		_, err := ln.Accept(limited(t))
		if !errors.Is(err, gpurdma.ErrClosed) {
			t.Errorf("Accept while it is closed: %v", err)
		}
	}()
	ok(t, <-ends)
	ok(t, p.ln.Close())
	if err := p.ln.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed again: %v", err)
	}
	if _, err := p.ln.Accept(limited(t)); !errors.Is(err, gpurdma.ErrClosed) {
		t.Errorf("Accept: %v", err)
	}
	if _, err := p.a.Dial(limited(t), addr, gpurdma.Config{ConnectTimeout: testenv.Limit(2 * time.Second)}); err == nil {
		t.Error("a closed listener has accepted")
	}
	if err := gone(t, lost); !errors.Is(err, gpurdma.ErrPeerGone) {
		t.Errorf("not accepted: %v", err)
	}
	p.alive()
	p.say(waiting, accepted)
	ln := must(p.b.Listen(addr, gpurdma.Config{}))(t) // the address is free
	ok(t, ln.Close())
}

// Dial ends with its context, and without a listener.
func testDial(t *testing.T, s *setting) {
	a, b := s.fabric(t), s.fabric(t)
	ln := must(b.Listen(s.listen, gpurdma.Config{Admit: func(ctx context.Context, _ gpurdma.PeerInfo) error {
		<-ctx.Done() // that of a caller who has given up ends
		return ctx.Err()
	}}))(t)
	if _, err := a.Dial(soon(t), ln.Addr().String(), gpurdma.Config{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a silent listener: %v", err)
	}
	ctx, cancel := context.WithCancel(limited(t))
	cancel()
	if _, err := a.Dial(ctx, ln.Addr().String(), gpurdma.Config{}); !errors.Is(err, context.Canceled) {
		t.Errorf("no time: %v", err)
	}
	if _, err := a.Dial(limited(t), ln.Addr().String(), gpurdma.Config{ConnectTimeout: 50 * time.Millisecond}); err == nil {
		t.Error("a silent listener has accepted")
	}
	ok(t, ln.Close())
	if _, err := a.Dial(limited(t), ln.Addr().String(), gpurdma.Config{}); err == nil {
		t.Error("nobody has accepted")
	}
	for _, addr := range []string{"", "nonsense", "127.0.0.1", ":::1"} {
		if _, err := a.Dial(limited(t), addr, gpurdma.Config{}); err == nil {
			t.Errorf("connected to %q", addr)
		}
		if ln, err := a.Listen(addr, gpurdma.Config{}); err == nil {
			t.Errorf("listened on %q", addr)
			_ = ln.Close()
		}
	}
	if s.net == nil {
		if _, err := s.open(); err == nil {
			t.Error("opened without a NIC")
		}
		if _, err := s.open("nothing0"); err == nil {
			t.Error("opened a NIC that is not there")
		}
	}
}
