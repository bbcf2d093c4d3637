// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/internal/mesh/control"
	"github.com/gpurdma/gpurdma/internal/mesh/nodelist"
	"github.com/gpurdma/gpurdma/internal/mesh/worker"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// fake is a worker that a function plays.
func fake(t *testing.T, play func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				play(c)
			}()
		}
	}()
	t.Cleanup(func() { l.Close(); <-ended })
	return l.Addr().String()
}

func welcome(nics ...control.NIC) *control.Message {
	return &control.Message{Welcome: &control.Welcome{Hello: control.Hello{Protocol: control.Protocol, Version: control.Version}, Host: "fake", NICs: nics, Session: control.NewToken()}}
}

// A worker that is hostile, or hangs, costs its own pairs only, and its node's fault says what it did.
func TestHostileWorkers(t *testing.T) {
	someNIC := control.NIC{Name: "mem0", Port: 1, Memory: "host", Size: 1, Path: "host"}
	// orders answers the first n orders, and then does something else.
	orders := func(n int, then func(*control.Conn, *control.Message)) func(net.Conn) {
		return func(raw net.Conn) {
			c := control.NewConn(raw, true, time.Second)
			if _, err := c.Receive(patience); err != nil || c.Send(welcome(someNIC)) != nil {
				return
			}
			for i := 0; ; i++ {
				m, err := c.Receive(time.Minute)
				if err != nil {
					return
				}
				if i >= n && !m.Ping {
					then(c, m)
					continue
				}
				_ = c.Send(&control.Message{ID: m.ID})
			}
		}
	}
	for _, c := range []struct {
		name  string
		play  func(net.Conn)
		lost  bool // during the run
		cause control.Cause
		says  string
	}{
		{"it speaks HTTP", func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n") }, false, control.Other, "a message of 1213486160 bytes"},
		{"it hangs up", func(c net.Conn) {}, false, control.Gone, "gave no reason"},
		{"it speaks TLS", func(c net.Conn) { _, _ = c.Write([]byte{0x15, 3, 3, 0, 2, 2, 70}) }, false, control.Other, "speaks TLS"},
		{"it says nothing", func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }, false, control.Timeout, "has not answered within"},
		{"another version", func(raw net.Conn) {
			c := control.NewConn(raw, true, time.Second)
			_, _ = c.Receive(patience)
			w := welcome()
			w.Welcome.Version, w.Welcome.Release = 7, "9.9"
			_ = c.Send(w)
		}, false, control.Differs, "version 7 of the mesh's protocol (release 9.9)"},
		{"it answers what nobody has asked", orders(0, func(c *control.Conn, m *control.Message) { _ = c.Send(&control.Message{ID: 999}) }), true, control.Other, "was not given"},
		{"its answer has no result", orders(100, nil), false, "", ""},
		{"it hangs in an order", orders(1, func(*control.Conn, *control.Message) {}), true, control.Timeout, "not answered an order"},
		{"it hangs wholly", func(raw net.Conn) {
			c := control.NewConn(raw, true, time.Second)
			_, _ = c.Receive(patience)
			_ = c.Send(welcome(someNIC))
			m, _ := c.Receive(patience)
			_ = c.Send(&control.Message{ID: m.ID})
			_, _ = io.Copy(io.Discard, raw)
		}, true, control.Timeout, "said nothing for"},
		{"it sends garbage instead of an answer", orders(1, func(c *control.Conn, m *control.Message) {
			_ = c.Send(&control.Message{ID: m.ID, Outcome: &control.Outcome{Over: "\x1b[2J"}})
			_ = c.Close()
		}), true, control.Gone, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1, 1)
			cfg := w.config(t)
			more, err := nodelist.Parse([]string{fake(t, c.play)}, "1")
			if err != nil {
				t.Fatal(err)
			}
			cfg.Nodes = append(cfg.Nodes, more...)
			cfg.Silence, cfg.Plan.Timeout = testenv.Limit(4*time.Second), testenv.Limit(4*time.Second)
			r := Run(t.Context(), cfg)
			if r.Matrix[0][1].State != Reached {
				t.Errorf("the others: %s", states(r))
			}
			f := r.Nodes[2].Fault
			if (f == nil) != (c.cause == "") || f != nil && (f.Cause != string(c.cause) || !strings.Contains(f.Text, c.says)) || r.Nodes[2].Lost != c.lost {
				t.Errorf("%+v: %+v", r.Nodes[2], f)
			}
			if s := r.Matrix[0][2].State; s == Reached {
				t.Errorf("%v: %+v", s, r.Links)
			}
		})
	}
}

// A pair is measured again if a host was too busy to connect, and is not measured if it always is.
func TestTooSlow(t *testing.T) {
	for _, c := range []struct {
		slow  int // times
		state State
	}{{1, Reached}, {2, Reached}, {3, Unknown}} {
		measured := 0 // by the one of the two that calls
		play := func(raw net.Conn) {
			w := control.NewConn(raw, true, time.Second)
			if _, err := w.Receive(patience); err != nil || w.Send(welcome(control.NIC{Name: "mem0", Port: 1, Memory: "host", Size: 1, Path: "host"})) != nil {
				return
			}
			for {
				m, err := w.Receive(time.Minute)
				if err != nil {
					return
				}
				answer := &control.Message{ID: m.ID}
				switch {
				case m.Measure != nil && measured < c.slow:
					measured++
					answer.Outcome = &control.Outcome{Fault: &control.Fault{Cause: control.TooSlow, Step: "connect", Text: "too slow"}}
				case m.Measure != nil:
					answer.Outcome = &control.Outcome{Reached: true}
				}
				_ = w.Send(answer)
			}
		}
		cfg := newWorld(t).config(t)
		var err error
		if cfg.Nodes, err = nodelist.Parse([]string{fake(t, play), fake(t, play)}, "1"); err != nil {
			t.Fatal(err)
		}
		l := only(t, Run(t.Context(), cfg))
		if l.State != c.state || measured != c.slow {
			t.Errorf("slow %d times: %+v, %+v, after %d", c.slow, l, l.Fault, measured)
		}
	}
}

// A worker does nothing towards nodes that the list does not have, and nothing twice.
func TestHostileCoordinator(t *testing.T) {
	w := newWorld(t, 1)
	n := w.nodes[0]
	c := greeted(t, n)
	id := uint64(0)
	order := func(m *control.Message) *control.Message {
		t.Helper()
		id++
		m.ID = id
		if err := c.Send(m); err != nil {
			t.Fatal(err)
		}
		got, err := c.Receive(patience)
		if err != nil || got.ID != id {
			t.Fatal(got, err)
		}
		return got
	}
	refused := func(m *control.Message, says string) {
		t.Helper()
		if got := order(m); got.Fault == nil || got.Fault.Cause != control.Invalid || !strings.Contains(got.Fault.Text, says) {
			t.Errorf("%+v: %+v", got, got.Fault)
		}
	}
	plan := w.config(t).Plan
	measure := func(nic string, to int) *control.Message {
		return &control.Message{Measure: &control.Measure{Token: control.NewToken(), NIC: nic, To: to, Port: 22, Plan: plan}}
	}
	token := control.NewToken()
	expect := func() *control.Message {
		return &control.Message{Expect: &control.Expect{Token: token, Caller: control.NewToken(), NIC: "mem0", Plan: plan}}
	}
	refused(measure("mem0", 1), "not another one of the 0")
	refused(expect(), "no list of nodes")
	if got := order(&control.Message{Roster: &control.Roster{Hosts: []string{"127.0.0.1", "127.0.0.2"}, Self: 0}}); got.Fault != nil {
		t.Error(got.Fault)
	}
	refused(&control.Message{Roster: &control.Roster{Hosts: []string{"10.0.0.9"}, Self: 0}}, "does not change")
	refused(measure("mem0", 2), "not another one of the 2")
	refused(measure("mem0", 0), "not another one")
	refused(measure("mem7", 1), `no NIC "mem7"`)
	if got := order(expect()); got.Fault != nil {
		t.Error(got.Fault)
	}
	refused(expect(), "ordered before")
	// One that waits for the NIC, and then no more.
	if err := c.Send(&control.Message{ID: 1000, Expect: &control.Expect{Token: control.NewToken(), Caller: control.NewToken(), NIC: "mem0", Plan: plan}}); err != nil {
		t.Fatal(err)
	}
	if got := order(&control.Message{Ping: true}); got.Fault != nil {
		t.Error(got.Fault)
	}
	refused(&control.Message{Expect: &control.Expect{Token: control.NewToken(), Caller: control.NewToken(), NIC: "mem0", Plan: plan}}, "all that 1 NICs carry")
	// A caller without the token is not let in.
	fab, err := w.net.Open("mem0")
	if err != nil {
		t.Fatal(err)
	}
	defer fab.Close()
	at := fmt.Sprintf("127.0.0.1:%d", n.work.Members[0].Port)
	for _, hello := range []string{"", string(control.NewToken())} {
		if _, err := fab.Dial(t.Context(), at, gpurdma.Config{Hello: []byte(hello)}); !errors.Is(err, gpurdma.ErrRejected) {
			t.Errorf("a caller with hello %q: %v", hello, err)
		}
	}
	// Another coordinator is refused, and this one loses the worker by nonsense.
	raw, err := net.Dial("tcp", n.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	other := control.NewConn(raw, false, time.Second)
	if err := other.Send(&control.Message{Hello: &control.Hello{Protocol: control.Protocol, Version: control.Version}}); err != nil {
		t.Fatal(err)
	}
	if m, err := other.Receive(patience); err != nil || m.Fault == nil || m.Fault.Cause != control.Busy {
		t.Error(m, err)
	}
	if err := c.Send(&control.Message{Hello: &control.Hello{}}); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := c.Receive(patience); err != nil {
			break
		}
	}
	n.says(t, "says hello again", "was rejected")
}

// The worker refuses a side that has another version or does not speak the protocol, and gives up one that is
// silent.
func TestGreetings(t *testing.T) {
	w := newWorldWith(t, func(w *worker.Worker) { w.Silence = 50 * time.Millisecond }, 1)
	n := w.nodes[0]
	raw, err := net.Dial("tcp", n.addr)
	if err != nil {
		t.Fatal(err)
	}
	c := control.NewConn(raw, false, time.Second)
	if err := c.Send(&control.Message{Hello: &control.Hello{Protocol: control.Protocol, Version: 9, Release: "x"}}); err != nil {
		t.Fatal(err)
	}
	if m, err := c.Receive(patience); err != nil || m.Fault == nil || m.Fault.Cause != control.Differs || !strings.Contains(m.Fault.Text, "version 9") {
		t.Error(m, err)
	}
	c.Close()
	for _, bytes := range []string{"GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x00\xc8\x01"} {
		raw, err := net.Dial("tcp", n.addr)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(raw, bytes)
		_, _ = io.Copy(io.Discard, raw)
		raw.Close()
	}
	silent := greeted(t, n)
	if _, err := silent.Receive(patience); err == nil {
		t.Error("an answer without an order")
	}
	silent.Close()
	n.says(t, "version 9", "speaks TLS", "a message of 1195725856 bytes", "has ended after 0 measurements")
}

// With TLS both sides need certificates that the other one trusts, for orders and for measurements.
func TestTLS(t *testing.T) {
	dir, foreign := testenv.Certificates(t), testenv.Certificates(t)
	own := config(t, dir, "a", dir)
	w := &world{net: newWorld(t).net, cfg: gpurdma.Config{TLS: own}, change: func(w *worker.Worker) { w.Protect.TLS = own }}
	for range 2 {
		t.Cleanup(w.add(t, 1).stop)
	}
	run := func(p control.Protection) *Result {
		cfg := w.config(t)
		cfg.Protect = p
		return Run(t.Context(), cfg)
	}
	if r := run(control.Protection{TLS: config(t, dir, "b", dir)}); states(r) != "1 reached" {
		t.Errorf("%s: %+v", states(r), r.Links)
	}
	for name, p := range map[string]control.Protection{
		"an untrusted coordinator":   {TLS: config(t, foreign, "b", dir)},
		"untrusted workers":          {TLS: config(t, dir, "b", foreign)},
		"a coordinator without TLS":  {},
		"a coordinator in the clear": {AllowPlaintext: true},
	} {
		r := run(p)
		for _, n := range r.Nodes {
			if n.Fault == nil || n.Fault.Cause != string(control.Identity) && n.Fault.Cause != string(control.Gone) && n.Fault.Cause != string(control.Other) {
				t.Errorf("%s: %+v", name, n.Fault)
			} else {
				t.Log(name, n.Fault.Cause, n.Fault.Text)
			}
		}
		if len(r.NICs) > 0 {
			t.Errorf("%s: %+v", name, r.NICs)
		}
	}
}

// config is TLS with the certificate of one folder, which trusts that of another.
func config(t *testing.T, own, name, trusted string) *tls.Config {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(own, name+".pem"), filepath.Join(own, name+".key"))
	if err != nil {
		t.Fatal(err)
	}
	pem, err := os.ReadFile(filepath.Join(trusted, "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool, ClientCAs: pool}
}

// A coordinator that is gone ends what the worker measures.
func TestCoordinatorGone(t *testing.T) {
	w := newWorld(t, 1, 1)
	w.nodes[0].nics[0].SetRate(1<<20, 1<<20)
	cfg := w.config(t)
	cfg.Plan.Volume, cfg.Plan.Time = 1<<30, time.Minute
	ctx, end := context.WithCancel(t.Context())
	defer end()
	ran := make(chan *Result, 1)
	go func() { ran <- Run(ctx, cfg) }()
	for w.conns() < 2 {
		time.Sleep(time.Millisecond)
	}
	end()
	<-ran
	for w.conns() > 0 { // the test's timeout ends it otherwise
		time.Sleep(time.Millisecond)
	}
}
