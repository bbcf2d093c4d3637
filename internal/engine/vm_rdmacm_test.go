// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package engine

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/cm"
	"github.com/gpurdma/gpurdma/internal/cmstream"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/rc"
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
	if _, err := w.a.Connect(limited(t), "rdma_cm://10.9.0.1:1"); err == nil || !strings.Contains(err.Error(), "no program listens") {
		t.Errorf("connected to nobody: %v", err)
	}
	addr := must(w.b.Listen(cmListen))(t).String()
	if !strings.HasPrefix(addr, cmstream.Scheme) {
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
	w.done(w.a, operation.Read, 1)
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
	at := strings.TrimPrefix(addr, cmstream.Scheme)

	d := w.a.nic.Device().(*rc.Verbs)
	cq := must(d.Context().CreateCQ(4))(t)
	closing(t, cq)
	pd := must(d.Context().AllocPD())(t)
	closing(t, pd)
	qp := must(pd.CreateQP(ibvfd.QPAttr{Type: ibvfd.RC, SendCQ: cq, RecvCQ: cq}))(t)
	closing(t, qp)
	id := must(cm.Resolve(limited(t), at, ""))(t)
	closing(t, id)
	_, err := id.Connect(limited(t), qp, cm.Param{PrivateData: []byte("something else")})
	var r *cm.RejectedError
	if !errors.As(err, &r) || !strings.Contains(string(r.PrivateData), "gpurdma") {
		t.Errorf("another program: %v, %+v", err, r)
	}

	h := goodHello()
	body := h.Append(nil)
	for name, send := range map[string][]byte{
		"HTTP":         []byte("GET / HTTP/1.1\r\n\r\n"),
		"half a hello": append([]byte{0, 0, 0, byte(len(body)), 1}, body[:20]...),
		"much":         make([]byte, 1<<18),
	} {
		c := must(cmstream.Dial(limited(t), must(streamConfig(w.a.nic, &w.a.opt))(t), at))(t)
		w.ok(c.Establish(limited(t)))
		_ = c.SetDeadline(time.Now().Add(bound))
		_, _ = c.Write(send)
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
