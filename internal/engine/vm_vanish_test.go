// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package engine

import (
	"errors"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// inNamespace runs do with its thread in a network namespace: do's sockets are in that
// namespace.
func inNamespace(t testing.TB, name string, do func()) {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		f, err := os.Open("/run/netns/" + name)
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
			t.Errorf("setns: %v", err)
			return
		}
		do()
	}()
	<-ended
	if t.Failed() {
		t.FailNow()
	}
}

// The peer's machine disappears silently: the exchange's connection, which goes over a veth
// pair, is cut. One connection is idle, and on another one sent bytes are not acknowledged.
// Both end at both sides, with their keys, although the NICs still reach each other.
func TestVMPeerVanishes(t *testing.T) {
	s := onNIC(t)
	idle, every, count := keepIdle, keepEvery, keepCount
	keepIdle, keepEvery, keepCount = time.Second, time.Second, 2
	t.Cleanup(func() { keepIdle, keepEvery, keepCount = idle, every, count })
	const inside = "gpurdma-vanish"
	for _, step := range []struct{ do, undo string }{
		{"ip netns add " + inside, "ip netns delete " + inside},
		{"ip link add here type veth peer name there netns " + inside, "ip link delete here"},
		{"ip address add 10.9.8.1/24 dev here", ""},
		{"ip -n " + inside + " address add 10.9.8.2/24 dev there", ""},
		{"ip link set here up", ""},
		{"ip -n " + inside + " link set there up", ""},
	} {
		command(t, step.do)
		if step.undo != "" {
			t.Cleanup(func() { command(t, step.undo) })
		}
	}
	opt := EndpointOptions{AllowPlaintext: true}
	w := &world{t: t, a: s.endpoint(t, opt), b: s.endpoint(t, opt)}
	addr := must(w.b.Listen("10.9.8.1:0"))(t).String()
	across := func() *world {
		x := *w
		inNamespace(t, inside, func() {
			var err error
			if x.ab, err = w.a.Connect(limited(t), addr); err != nil {
				t.Error(err)
			}
		})
		x.ba = must(w.b.Accept(limited(t)))(t)
		return &x
	}
	quiet, busy := across(), across()
	const size = 1000
	mine, theirs := hostKind.make(t, w.a.nic, size), hostKind.make(t, w.b.nic, size)
	r := testenv.Seeded(t)
	here := random(t, r, mine, size)
	keys := map[string]*memory.RemoteBuffer{"idle": quiet.share(theirs.All(), allAccess), "unacknowledged": busy.share(theirs.All(), allAccess)}
	for name, x := range map[string]*world{"idle": quiet, "unacknowledged": busy} {
		w.ok(w.a.Write(mine.All(), x.ab, keys[name].All(), name))
		w.done(w.a, operation.Write, name)
		w.ok(w.a.Recv(memory.Span{}, x.ab, name))
		w.ok(w.b.Recv(memory.Span{}, x.ba, name))
	}
	same(t, "while it lasts", theirs, here)
	there := random(t, r, theirs, size)

	command(t, "ip -n "+inside+" link set there down")
	offered := must(w.b.Share(busy.ba, theirs.All(), allAccess))(t)
	w.ok(w.b.Offer(limited(t), busy.ba, offered))
	for _, e := range []*Endpoint{w.a, w.b} {
		for range 2 {
			c := w.wait(e)
			if !errors.Is(c.Err, ErrNotConnected) || c.Op != operation.Recv {
				t.Errorf("%+v, want that the connection is gone", c)
			}
			t.Logf("%v: %v", c.Context, c.Err)
		}
	}
	for name, x := range map[string]*world{"idle": quiet, "unacknowledged": busy} {
		w.lost(w.a, x.ab)
		w.lost(w.b, x.ba)
		w.connect()
		if err := w.a.Write(mine.All(), w.ab, keys[name].All(), nil); !errors.Is(err, operation.ErrStaleKey) {
			t.Errorf("%s: an old key as it is: %v", name, err)
		}
		forged := withToken(keys[name], w.share(theirs.All(), allAccess).Token())
		w.ok(w.a.Write(mine.All(), w.ab, forged.All(), "forged"))
		w.failed(w.a, "forged", ibvfd.WCRemAccessErr)
		w.lost(w.b, w.ba)
	}
	same(t, "there", theirs, there)
}
