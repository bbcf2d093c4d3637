// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package cm_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/cm"
	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
	"github.com/gpurdma/gpurdma/internal/rdmanl"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// The testbed's software NIC and its address.
const (
	nic     = "rxe0"
	address = "10.9.0.1"
)

// closed closes twice: the second time must do nothing.
func closed(t testing.TB, c interface{ Close() error }) {
	t.Helper()
	for range 2 {
		if err := c.Close(); err != nil {
			t.Errorf("close %T: %v", c, err)
		}
	}
}

func closing(t testing.TB, c interface{ Close() error }) {
	t.Cleanup(func() { closed(t, c) })
}

// limited is far above what anything here takes.
func limited(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Limit(time.Minute))
	t.Cleanup(cancel)
	return ctx
}

// usage is descriptors, and the device's resources: cm_ids, contexts, QPs.
func usage(t testing.TB) string {
	t.Helper()
	c, err := rdmanl.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := c.Summary(nic)
	if err != nil {
		t.Fatal(err)
	}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(len(fds), s)
}

// onNIC begins a test in the testbed. It must leave no descriptor and no RDMA
// object, but for what librdmacm keeps: the device, which it opens once.
func onNIC(t testing.TB) {
	testenv.VM(t)
	keep, err := cm.Resolve(limited(t), address+":1", "")
	if err != nil {
		t.Fatal(err)
	}
	closed(t, keep)
	before := usage(t)
	t.Cleanup(func() {
		after := ""
		for range 200 * testenv.Slow() {
			if after = usage(t); after == before {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
		t.Errorf("left behind: before %s, after %s", before, after)
	})
}

// side is a queue pair with memory, and receives into its second half.
type side struct {
	t   testing.TB
	qp  *ibvfd.QP
	cq  *ibvfd.CQ
	mr  *ibvfd.MR
	mem []byte
}

const (
	slotSize = 256
	slots    = 8
	memory   = 1 << 16
)

func newSide(t testing.TB, ctx *ibvfd.Context) *side {
	t.Helper()
	s := &side{t: t}
	pd, err := ctx.AllocPD()
	s.ok(err)
	closing(t, pd)
	buf, err := hostmem.Alloc(memory + slots*slotSize)
	s.ok(err)
	closing(t, buf)
	s.mem = buf.Bytes()
	s.mr, err = pd.RegMR(ibvfd.MRAttr{
		Kind: ibvfd.HostMemory, Host: s.mem, Length: uint64(len(s.mem)), Owner: buf,
		Access: ibvfd.AccessLocalWrite | ibvfd.AccessRemoteRead | ibvfd.AccessRemoteWrite,
	})
	s.ok(err)
	closing(t, s.mr)
	s.cq, err = ctx.CreateCQWith(ibvfd.CQAttr{Depth: 64, Events: true})
	s.ok(err)
	closing(t, s.cq)
	s.qp, err = pd.CreateQP(ibvfd.QPAttr{Type: ibvfd.RC, SendCQ: s.cq, RecvCQ: s.cq, SendDepth: 8, RecvDepth: slots})
	s.ok(err)
	closing(t, s.qp)
	s.receives()
	return s
}

// receives posts them all, before there is a connection.
func (s *side) receives() {
	s.t.Helper()
	s.ok(s.qp.Init(ibvfd.ConnectAttr{}))
	for i := range slots {
		s.recv(i)
	}
}

// renew brings a queue pair in the error state back to the beginning: its
// receives have been flushed, or are about to be.
func (s *side) renew() {
	s.t.Helper()
	var wc [1]ibvfd.WC
	for range slots {
		_, err := s.cq.Wait(limited(s.t), wc[:])
		s.ok(err)
		if wc[0].Status != ibvfd.WCWRFlushErr {
			s.t.Fatalf("completion %+v, want a flushed receive", wc[0])
		}
	}
	s.receives()
}

func (s *side) recv(slot int) {
	_, err := s.qp.PostRecv([]ibvfd.RecvWR{{ID: uint64(slot), SGE: []ibvfd.SGE{s.sge(memory+slot*slotSize, slotSize)}}})
	s.ok(err)
}

func (s *side) sge(off, n int) ibvfd.SGE {
	return ibvfd.SGE{Addr: s.mr.IOVA() + uint64(off), Length: uint32(n), LKey: s.mr.LKey()}
}

func (s *side) ok(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// message waits for one, and returns it.
func (s *side) message() []byte {
	s.t.Helper()
	for {
		if wc := s.completion(); wc.Opcode == ibvfd.WCOpRecv {
			got := append([]byte{}, s.mem[memory+int(wc.ID)*slotSize:][:wc.ByteLen]...)
			s.recv(int(wc.ID))
			return got
		}
	}
}

func (s *side) completion() ibvfd.WC {
	s.t.Helper()
	var wc [1]ibvfd.WC
	if _, err := s.cq.Wait(limited(s.t), wc[:]); err != nil {
		s.t.Fatal(err)
	}
	if wc[0].Status != ibvfd.WCSuccess {
		s.t.Fatalf("completion %+v", wc[0])
	}
	return wc[0]
}

// send sends the start of the memory.
func (s *side) send(text string) {
	s.t.Helper()
	n := copy(s.mem, text)
	_, err := s.qp.PostSend([]ibvfd.SendWR{{Op: ibvfd.OpSend, Flags: ibvfd.SendSignaled, SGE: []ibvfd.SGE{s.sge(0, n)}}})
	s.ok(err)
}

// param suits a software NIC on a busy machine.
func param(data string) cm.Param {
	return cm.Param{PrivateData: []byte(data), Timeout: 20, RetryCount: 3}
}

func listening(t testing.TB, addr string) *cm.Listener {
	t.Helper()
	l, err := cm.Listen(addr)
	if err != nil {
		t.Fatal(err)
	}
	closing(t, l)
	return l
}

func resolved(t testing.TB, addr string) *cm.ID {
	t.Helper()
	id, err := cm.Resolve(limited(t), addr, "")
	if err != nil {
		t.Fatal(err)
	}
	closing(t, id)
	return id
}

func at(l *cm.Listener) string { return fmt.Sprintf("%s:%d", address, l.Addr().Port()) }

// accepted answers the next request with a queue pair.
func accepted(l *cm.Listener, s *side, data string) (*cm.ID, error) {
	req, err := l.Accept(limited(s.t))
	if err != nil {
		return nil, err
	}
	return req, req.Accept(limited(s.t), s.qp, param(data))
}

func opened(t testing.TB) *ibvfd.Context {
	t.Helper()
	c, err := ibvfd.Open(nic)
	if err != nil {
		t.Fatal(err)
	}
	closing(t, c)
	return c
}

// trimmed is private data without the zeros that InfiniBand adds.
func trimmed(b []byte) string { return strings.TrimRight(string(b), "\x00") }

// Connections between queue pairs of a device that is opened by ibvfd, and by
// rdma_cm, on one address and on all of them.
//
//testbed:kernel 7.2 6.12 6.1
func TestVMConnect(t *testing.T) {
	for name, listen := range map[string]string{"address": address + ":0", "all": ":0"} {
		t.Run(name, func(t *testing.T) {
			onNIC(t)
			l := listening(t, listen)
			if want := map[string]string{"address": nic, "all": ""}[name]; l.Device() != want || l.Addr().Port() == 0 {
				t.Errorf("listens on %q at %v", l.Device(), l.Addr())
			}
			id := resolved(t, at(l))
			if id.Device() != nic || id.Port() != 1 || id.LocalAddr().Addr().String() != address || id.RemoteAddr().String() != at(l) {
				t.Errorf("%s port %d, %v to %v", id.Device(), id.Port(), id.LocalAddr(), id.RemoteAddr())
			}
			theirs, err := id.Context()
			if err != nil {
				t.Fatal(err)
			}
			closing(t, theirs)
			if theirs.Name() != nic {
				t.Errorf("rdma_cm's context is %s", theirs.Name())
			}
			client, server := newSide(t, theirs), newSide(t, opened(t))

			answer := make(chan error, 1)
			var peer *cm.ID
			go func() {
				var err error
				peer, err = accepted(l, server, "welcome")
				answer <- err
			}()
			data, err := id.Connect(limited(t), client.qp, param("hello"))
			if err != nil || trimmed(data) != "welcome" || len(data) != cm.MaxAcceptData {
				t.Fatalf("%q (%d bytes), %v", data, len(data), err)
			}
			if err := <-answer; err != nil {
				t.Fatal(err)
			}
			closing(t, peer)
			if trimmed(peer.PrivateData()) != "hello" || len(peer.PrivateData()) != cm.MaxConnectData || peer.RemoteAddr() != id.LocalAddr() || peer.Device() != nic {
				t.Errorf("request of %v on %s: %q", peer.RemoteAddr(), peer.Device(), peer.PrivateData())
			}
			client.send("from the client")
			if got := string(server.message()); got != "from the client" {
				t.Errorf("came %q", got)
			}
			server.send("from the server")
			if got := string(client.message()); got != "from the server" {
				t.Errorf("came %q", got)
			}
			go func() {
				err := peer.Wait(limited(t))
				answer <- errors.Join(err, peer.Disconnect(limited(t)))
			}()
			if err := id.Disconnect(limited(t)); err != nil {
				t.Error(err)
			}
			if err := <-answer; err != nil {
				t.Error(err)
			}
			for _, s := range []*side{client, server} {
				if state, err := s.qp.State(); state != ibvfd.StateErr || err != nil {
					t.Errorf("queue pair in %v, %v", state, err)
				}
			}
		})
	}
}

//testbed:kernel 6.12
func TestVMConnectRefused(t *testing.T) {
	onNIC(t)
	l := listening(t, address+":0")
	s := newSide(t, opened(t))
	id := resolved(t, at(l))
	answer := make(chan error, 1)
	go func() {
		req, err := l.Accept(limited(t))
		if err == nil {
			err = errors.Join(req.Reject([]byte("full")), req.Close())
		}
		answer <- err
	}()
	_, err := id.Connect(limited(t), s.qp, param(""))
	var r *cm.RejectedError
	if !errors.As(err, &r) || r.Reason != cm.ReasonConsumer || trimmed(r.PrivateData) != "full" {
		t.Errorf("rejected: %v, %+v", err, r)
	}
	t.Log(err)
	if err := <-answer; err != nil {
		t.Error(err)
	}

	// A request that was not taken when the listener closes.
	quiet := listening(t, address+":0")
	gone := resolved(t, at(quiet))
	go func() {
		_, err := gone.Connect(limited(t), s.qp, param(""))
		answer <- err
	}()
	time.Sleep(100 * time.Millisecond)
	closed(t, quiet)
	if err := <-answer; !errors.As(err, &r) {
		t.Errorf("the listener was closed: %v", err)
	} else {
		t.Log(err)
	}

	for _, c := range []struct {
		name  string
		try   func() error
		is    error
		words string
	}{
		{"no program listens", func() error {
			_, err := resolved(t, address+":9").Connect(limited(t), s.qp, param(""))
			return err
		}, nil, "no program listens"},
		{"no RDMA device", func() error { return resolves(t, "127.0.0.1:9", "") }, unix.ENODEV, "rdma link"},
		{"no route", func() error { return resolves(t, "203.0.113.1:9", "") }, unix.ENETUNREACH, "ip route get"},
		{"not our address", func() error { return resolves(t, address+":9", "10.9.0.77") }, unix.EADDRNOTAVAIL, "rdma link show"},
		{"address in use", func() error { return listens(t, at(l)) }, unix.EADDRINUSE, "cm_id"},
		{"listen at a foreign address", func() error { return listens(t, "10.9.0.77:0") }, unix.EADDRNOTAVAIL, "rdma link show"},
	} {
		err := c.try()
		t.Logf("%s: %v", c.name, err)
		if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %v; want %v and %q", c.name, err, c.is, c.words)
		}
	}
}

func resolves(t *testing.T, addr, from string) error {
	id, err := cm.Resolve(limited(t), addr, from)
	if err == nil {
		closed(t, id)
	}
	return err
}

func listens(t *testing.T, addr string) error {
	l, err := cm.Listen(addr)
	if err == nil {
		closed(t, l)
	}
	return err
}

// A client that does not wait for an answer leaves nothing, and the listener goes on.
//
//testbed:kernel 6.12
func TestVMConnectCancelled(t *testing.T) {
	onNIC(t)
	l := listening(t, address+":0")
	s, server := newSide(t, opened(t)), newSide(t, opened(t))
	id := resolved(t, at(l))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := id.Connect(ctx, s.qp, param("")); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	if _, err := id.Connect(limited(t), s.qp, param("")); !errors.Is(err, cm.ErrSpent) {
		t.Error(err)
	}
	closed(t, id)
	// The request is there still; accepting it ends, if not at once.
	req, err := l.Accept(limited(t))
	if err != nil {
		t.Fatal(err)
	}
	short, cancelShort := context.WithTimeout(t.Context(), time.Second)
	defer cancelShort()
	err = req.Accept(short, server.qp, param(""))
	t.Log(err)
	if err == nil {
		t.Error("connected with somebody who is gone")
	}
	closed(t, req)
	s.renew()
	server.renew()
	connectPair(t, l, s, server)
	if _, err := l.Accept(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// connectPair connects, says something, disconnects, and leaves both sides as
// they were.
func connectPair(t testing.TB, l *cm.Listener, client, server *side) {
	t.Helper()
	answer := make(chan error, 1)
	go func() {
		peer, err := accepted(l, server, "")
		if err == nil {
			err = peer.Wait(limited(t))
		}
		if peer != nil {
			err = errors.Join(err, peer.Close())
		}
		answer <- err
	}()
	id, err := cm.Resolve(limited(t), at(l), "")
	client.ok(err)
	_, err = id.Connect(limited(t), client.qp, param(""))
	client.ok(err)
	client.send("hello")
	if got := string(server.message()); got != "hello" {
		t.Fatalf("came %q", got)
	}
	client.completion()
	client.ok(id.Disconnect(limited(t)))
	closed(t, id)
	if err := <-answer; err != nil {
		t.Fatal(err)
	}
	client.renew()
	server.renew()
}
