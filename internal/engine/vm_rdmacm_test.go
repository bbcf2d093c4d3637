// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package engine

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/cm"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// cmListen is the testbed NIC's address for rdma_cm.
const cmListen = "rdma_cm://10.9.0.1:0"

// onRDMACM is the setting in which connections are made over rdma_cm.
func onRDMACM(t testing.TB) setting {
	testenv.VM(t)
	// librdmacm opens the device once, and keeps it.
	closing(t, must(cm.Resolve(limited(t), "10.9.0.1:1", ""))(t))
	s := onNIC(t).few()
	s.kinds, s.listen = s.kinds[1:2], cmListen
	return s
}

// Operations work as over TCP's exchange: some of its tests.
//
//testbed:kernel 7.2 6.12 6.1
func TestVMOperationsOverRDMACM(t *testing.T) { testOperations(t, onRDMACM(t)) }

//testbed:kernel 6.12
func TestVMPeerDisappearsOverRDMACM(t *testing.T) { testPeerDisappears(t, onRDMACM(t)) }

//testbed:kernel 6.12
func TestVMCloseUnderTrafficOverRDMACM(t *testing.T) { testCloseUnderTraffic(t, onRDMACM(t)) }

//testbed:kernel 6.12
func TestVMRDMACMIsProtected(t *testing.T) {
	s := onRDMACM(t)
	if _, err := s.endpoint(t, EndpointOptions{}).Listen(cmListen); !errors.Is(err, ErrUnsafe) {
		t.Errorf("listens in the clear: %v", err)
	}
	good, evil := newAuthority(t), newAuthority(t)
	tls := EndpointOptions{TLS: good.config(t, good), ConnectTimeout: testenv.Limit(10 * time.Second)}
	tls.TLS.ServerName = "127.0.0.1" // which the certificate is for
	w := s.world(t, tls)
	if _, err := w.a.Connect(limited(t), "rdma_cm://10.9.0.1:1"); err == nil || !strings.Contains(err.Error(), "nobody listens") {
		t.Errorf("connected to nobody: %v", err)
	}
	addr := must(w.b.Listen(cmListen))(t).String()
	if !strings.HasPrefix(addr, cmScheme) {
		t.Errorf("listens at %q", addr)
	}
	unknown := EndpointOptions{TLS: evil.config(t, good), ConnectTimeout: testenv.Limit(10 * time.Second)}
	unknown.TLS.ServerName = "127.0.0.1"
	for name, opt := range map[string]EndpointOptions{
		"in the clear": {AllowPlaintext: true, ConnectTimeout: testenv.Limit(time.Second)}, "of another authority": unknown,
	} {
		if _, err := s.endpoint(t, opt).Connect(limited(t), addr); err == nil {
			t.Errorf("a client %s got in", name)
		} else {
			t.Logf("%s: %v", name, err)
		}
	}
	// And the address table.
	peer := must(w.a.Insert(addr))(t)
	buf := hostKind.make(t, w.b.nic, 64)
	mine := hostKind.make(t, w.a.nic, 64)
	want := random(t, testenv.Seeded(t), buf, 64)
	all := must(w.b.Share(0, buf.All(), allAccess))(t)
	w.ok(w.a.Read(mine.All(), peer, all.All(), 1))
	w.done(w.a, OpRead, 1)
	same(t, "over TLS over rdma_cm", mine, want)
}

// Another program, and one that sends invalid bytes, cannot connect; the endpoint serves the
// next one.
//
//testbed:kernel 6.12
func TestVMHostileCallersOverRDMACM(t *testing.T) {
	s := onRDMACM(t)
	w := s.world(t, EndpointOptions{ConnectTimeout: testenv.Limit(time.Second)})
	addr := must(w.b.Listen(cmListen))(t).String()
	at := strings.TrimPrefix(addr, cmScheme)

	d := w.a.nic.dev.(*verbsDevice)
	cq := must(d.Context().CreateCQ(4))(t)
	closing(t, cq)
	qp := must(d.pd.CreateQP(ibvfd.QPAttr{Type: ibvfd.RC, SendCQ: cq, RecvCQ: cq}))(t)
	closing(t, qp)
	id := must(cm.Resolve(limited(t), at, ""))(t)
	closing(t, id)
	_, err := id.Connect(limited(t), qp, cm.Param{PrivateData: []byte("something else")})
	var r *cm.RejectedError
	if !errors.As(err, &r) || !strings.Contains(string(r.PrivateData), "gpurdma") {
		t.Errorf("another program: %v, %+v", err, r)
	}

	h := goodHello()
	body := h.append(nil)
	for name, send := range map[string][]byte{
		"HTTP":         []byte("GET / HTTP/1.1\r\n\r\n"),
		"half a hello": append([]byte{0, 0, 0, byte(len(body)), 1}, body[:20]...),
		"much":         make([]byte, 1<<18),
	} {
		c := newStream(w.a.nic, must(cm.Resolve(limited(t), at, ""))(t), true, w.a.opt.Connect)
		w.ok(c.establish(limited(t)))
		_ = c.SetDeadline(time.Now().Add(bound))
		_, _ = c.Write(send)
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: still connected", name)
		}
		w.ok(c.Close())
	}
	// Nor can a peer that posts other work requests than a stream does, nor one that uses a key
	// before its hello.
	theirs := hostKind.make(t, w.b.nic, 8)
	all := must(w.b.Share(0, theirs.All(), allAccess))(t)
	key := all.spaces[0].Memory[0]
	for name, wr := range map[string]ibvfd.SendWR{
		"a message of nothing": {Op: ibvfd.OpSend}, "a WRITE with data": {Op: ibvfd.OpWriteImm}, "a key": {Op: ibvfd.OpWrite, RemoteAddr: key.Addr, RKey: key.Key},
	} {
		c := newStream(w.a.nic, must(cm.Resolve(limited(t), at, ""))(t), true, w.a.opt.Connect)
		w.ok(c.establish(limited(t)))
		wr.Flags = ibvfd.SendSignaled
		if wr.RKey != 0 {
			wr.SGE = []ibvfd.SGE{c.sge(streamSlots*streamChunk, 8)}
		}
		_ = c.SetDeadline(time.Now().Add(bound))
		c.write.Lock()
		err := c.send(wr, c.write.wait)
		c.write.Unlock()
		if refused := errors.Is(err, &ibvfd.WCError{Status: ibvfd.WCRemAccessErr}); refused != (wr.RKey != 0) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: still connected", name)
		}
		w.ok(c.Close())
	}
	buf := hostKind.make(t, w.b.nic, 8)
	if rb := w.share(buf.All(), allAccess); rb.Size() != 8 {
		t.Error(rb)
	}
}

// streams returns the two ends of a stream.
func streams(t testing.TB, s setting, tune ibvfd.ConnectAttr, every time.Duration) (a, b *stream) {
	l := must(cm.Listen(strings.TrimPrefix(cmListen, cmScheme)))(t)
	defer l.Close()
	na, nb := s.open(t, NICOptions{}), s.open(t, NICOptions{})
	a = newStream(na, must(cm.Resolve(limited(t), l.Addr().String(), ""))(t), true, tune)
	a.every = every
	closing(t, a)
	done := make(chan error, 1)
	go func() { done <- a.establish(limited(t)) }()
	b = newStream(nb, must(l.Accept(limited(t)))(t), false, tune)
	b.every = every
	closing(t, b)
	if err := errors.Join(b.establish(limited(t)), <-done); err != nil {
		t.Fatal(err)
	}
	return a, b
}

// quick makes the NIC detect a dead peer soon.
var quick = ibvfd.ConnectAttr{Timeout: 14, RetryCount: 2}

//testbed:kernel 6.12
func TestVMStream(t *testing.T) {
	s := onRDMACM(t)
	a, b := streams(t, s, ibvfd.ConnectAttr{Timeout: 17, RetryCount: 6}, time.Hour)
	// Both ways at once, in pieces of all sizes, to readers that begin late.
	const size = 40 * streamChunk
	var all sync.WaitGroup
	for i, end := range []struct{ from, to *stream }{{a, b}, {b, a}} {
		data := make([]byte, size)
		r := rand.New(rand.NewPCG(uint64(i), 1))
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		all.Go(func() {
			for rest := data; len(rest) > 0; {
				n := min(1+int(rand.Int64N(3*streamChunk)), len(rest))
				if m, err := end.from.Write(rest[:n]); m != n || err != nil {
					t.Errorf("%d of %d bytes: %v", m, n, err)
					return
				}
				rest = rest[n:]
			}
		})
		all.Go(func() {
			time.Sleep(30 * time.Millisecond)
			got := make([]byte, size)
			if _, err := io.ReadFull(end.to, got); err != nil || !bytes.Equal(got, data) {
				t.Errorf("other bytes came, or %v", err)
			}
		})
	}
	all.Wait()

	_ = a.SetReadDeadline(time.Now().Add(time.Millisecond))
	if n, err := a.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d, %v", n, err)
	}
	_ = a.SetReadDeadline(time.Time{})
	if _, err := b.Write([]byte("the end")); err != nil {
		t.Error(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if got, err := io.ReadAll(a); string(got) != "the end" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := b.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	if _, err := b.Write([]byte{1}); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	if _, err := a.Write(make([]byte, 1)); err == nil {
		t.Error("written to nobody")
	}
	streams(t, s, ibvfd.ConnectAttr{Timeout: ibvfd.Zero, RetryCount: ibvfd.Zero}, time.Hour)
}

// A silent peer is probed, and given up if it does not answer.
//
//testbed:kernel 6.12
func TestVMStreamKeepalive(t *testing.T) {
	s := onRDMACM(t)
	a, b := streams(t, s, quick, 10*time.Millisecond)
	for end := time.Now().Add(bound); a.alive.Load() < 3 || b.alive.Load() < 3; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d and %d signs of life", a.alive.Load(), b.alive.Load())
		}
	}
	// Simulate the loss of its machine: there is no close message.
	if err := b.qp.Reset(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Read(make([]byte, 1)); !errors.Is(err, ErrNotConnected) || !errors.Is(err, &ibvfd.WCError{Status: ibvfd.WCRetryExcErr}) {
		t.Errorf("read from a machine that is gone: %v", err)
	}
}
