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
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// A Dial for which there is no place in the queue of Accept fails, and says why.
func testBacklog(t *testing.T, s *setting) {
	a, b := s.fabric(t), s.fabric(t)
	rejected := make(chan gpurdma.PeerInfo, 10)
	ln := must(b.Listen(s.listen, gpurdma.Config{Backlog: 2, OnReject: func(from gpurdma.PeerInfo, why error) { rejected <- from }}))(t)
	dial := func(hello string) (*gpurdma.Conn, error) {
		return a.Dial(limited(t), ln.Addr().String(), gpurdma.Config{Hello: []byte(hello)})
	}
	first := must(dial("1"))(t)
	must(dial("2"))(t)
	for range 3 {
		if c, err := dial("3"); !errors.Is(err, gpurdma.ErrRejected) || !strings.Contains(err.Error(), "queue (Backlog) is full") {
			t.Fatalf("a third caller: %v, %v", c, err)
		}
		select {
		case from := <-rejected:
			if string(from.Hello) != "3" {
				t.Errorf("OnReject of %q", from.Hello)
			}
		case <-limited(t).Done():
			t.Fatal("OnReject was not called")
		}
	}
	accepted := []string{string(must(ln.Accept(limited(t)))(t).Peer().Hello)}
	must(dial("4"))(t)
	for range 2 {
		accepted = append(accepted, string(must(ln.Accept(limited(t)))(t).Peer().Hello))
	}
	if slices.Sort(accepted); !slices.Equal(accepted, []string{"1", "2", "4"}) {
		t.Errorf("accepted %q", accepted)
	}
	ok(t, first.Send(limited(t), nil))
}

// MaxConns bounds the connections of a listener; one that has ended makes room.
func testMaxConns(t *testing.T, s *setting) {
	cfg := gpurdma.Config{MaxConns: 2}
	p := s.pairWith(t, gpurdma.Config{}, cfg)
	second, _ := p.connect(gpurdma.Config{})
	dial := func() (*gpurdma.Conn, error) { return p.a.Dial(limited(t), p.ln.Addr().String(), gpurdma.Config{}) }
	for range 3 {
		if c, err := dial(); !errors.Is(err, gpurdma.ErrRejected) || !strings.Contains(err.Error(), "as many connections as it may have") {
			t.Fatalf("a third connection: %v, %v", c, err)
		}
	}
	for range 3 {
		ok(t, p.client.Close())
		gone(t, p.server)
		p.client, p.server = p.connect(gpurdma.Config{})
		if _, err := dial(); !errors.Is(err, gpurdma.ErrRejected) {
			t.Fatal(err)
		}
	}
	ok(t, second.Send(limited(t), nil))
	p.say(p.client, p.server)
}

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
		OnReject: func(from gpurdma.PeerInfo, why error) {
			if !slices.Contains([]string{"full", "long", "bad", ""}, string(from.Hello)) || from.Addr == nil {
				t.Errorf("OnReject with %+v", from)
			}
			rejected <- why
		},
	}))(t)
	for _, x := range []struct{ hello, text string }{{"full", "full: 32 of 32 clients"}, {"long", strings.Repeat("x", 256)}, {"bad", "refused"}, {"", "refused"}} {
		_, err := a.Dial(limited(t), ln.Addr().String(), gpurdma.Config{Hello: []byte(x.hello)})
		if !errors.Is(err, gpurdma.ErrRejected) || !strings.Contains(err.Error(), x.text) || strings.Contains(err.Error(), "database") || strings.Contains(err.Error(), x.text+"x") {
			t.Errorf("%s: %v", x.hello, err)
		}
		select {
		case why := <-rejected:
			if errors.Is(why, secret) != (x.text == "refused") || strings.Contains(why.Error(), "the peer") {
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
	if _, err := p.a.Dial(limited(t), p.ln.Addr().String(), gpurdma.Config{Hello: append(long, 1)}); !errors.Is(err, failure.ErrRange) {
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

// With TLS each side knows the identity of the other one, and callers without a trusted certificate are refused.
func testTLS(t *testing.T, s *setting) {
	host, _, _ := net.SplitHostPort(s.listen)
	at := net.ParseIP(host)
	good, evil := newAuthority(t), newAuthority(t)
	_, _ = x509.SystemCertPool() // reading it for the first time takes longer than the handshake may
	rejected := make(chan error, 10)
	p := s.pairWith(t, gpurdma.Config{TLS: good.config(t, "decode-7", at, good)}, gpurdma.Config{
		TLS: good.config(t, "prefill-1", at, good),
		Admit: func(_ context.Context, p gpurdma.PeerInfo) error {
			if name := p.TLS.PeerCertificates[0].Subject.CommonName; name != "decode-7" {
				return gpurdma.Reject(name + " is not in the list")
			}
			return nil
		},
		OnReject: func(_ gpurdma.PeerInfo, why error) { rejected <- why },
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
	const ours, refused = "this side does not accept the other side's certificate", "the other side does not accept this side's certificate"
	for what, x := range map[string]struct {
		cfg          gpurdma.Config
		dial, listen string // parts of the errors of both sides
	}{
		"a stranger":          {gpurdma.Config{TLS: evil.config(t, "decode-7", at, good)}, refused, ours},
		"a distrustful one":   {gpurdma.Config{TLS: good.config(t, "decode-7", at, evil)}, ours, refused},
		"without TLS":         {gpurdma.Config{AllowPlaintext: true}, "this listener speaks TLS", "the caller does not speak TLS"},
		"not in the list":     {gpurdma.Config{TLS: good.config(t, "decode-8", at, good)}, "decode-8 is not in the list", "rejected by this side"},
		"without server's CA": {gpurdma.Config{TLS: &tls.Config{Certificates: good.config(t, "decode-7", at, good).Certificates}}, ours, refused},
	} {
		x.cfg.ConnectTimeout = testenv.Limit(30 * time.Second)
		_, err := p.a.Dial(limited(t), p.ln.Addr().String(), x.cfg)
		if err == nil || !strings.Contains(err.Error(), x.dial) {
			t.Errorf("%s: %v", what, err)
		}
		if rejected := what == "not in the list" || what == "without TLS"; errors.Is(err, gpurdma.ErrRejected) != rejected {
			t.Errorf("%s: ErrRejected: %v: %v", what, !rejected, err)
		}
		select {
		case err := <-rejected:
			if !strings.Contains(err.Error(), x.listen) {
				t.Errorf("%s: OnReject: %v", what, err)
			}
		case <-limited(t).Done():
			t.Errorf("%s: OnReject was not called", what)
		}
	}
	p.alive()
	plain := must(p.b.Listen(net.JoinHostPort(host, "0"), gpurdma.Config{AllowPlaintext: true, OnReject: func(_ gpurdma.PeerInfo, why error) { rejected <- why }}))(t)
	if _, err := p.a.Dial(limited(t), plain.Addr().String(), gpurdma.Config{TLS: good.config(t, "decode-7", at, good)}); err == nil || !strings.Contains(err.Error(), "the listener does not speak TLS") {
		t.Errorf("TLS to a listener without: %v", err)
	}
	if err := <-rejected; !strings.Contains(err.Error(), "the other side speaks TLS, and this side does not") {
		t.Errorf("OnReject of a caller with TLS: %v", err)
	}
}

// Close of a listener ends Accept, and what was not accepted. Connections stay.
func testListener(t *testing.T, s *setting) {
	p := s.pair(t)
	addr := p.ln.Addr().String()
	waiting := must(p.a.Dial(limited(t), addr, gpurdma.Config{}))(t)
	accepted := must(p.ln.Accept(limited(t)))(t)
	lost := must(p.a.Dial(limited(t), addr, gpurdma.Config{}))(t)
	host, _, _ := net.SplitHostPort(addr)
	closed := must(p.b.Listen(host+":0", gpurdma.Config{}))(t)
	ends := make(chan error, 1)
	go func() {
		time.Sleep(time.Millisecond)
		ends <- closed.Close()
	}()
	if _, err := closed.Accept(limited(t)); !errors.Is(err, gpurdma.ErrClosed) {
		t.Errorf("Accept while it is closed: %v", err)
	}
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
