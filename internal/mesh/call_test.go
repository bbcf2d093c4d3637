// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/internal/mesh/control"
	"github.com/gpurdma/gpurdma/internal/mesh/worker"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// A coordinator cannot make a worker connect to where it is not expected: with TLS only to a port for which the host has
// signed a permit for this worker, without TLS only to networks that are allowed.
func TestCallsNobodyElse(t *testing.T) {
	const port = 9
	far := elsewhere(t)
	dir := testenv.Certificates(t)
	own, foreign := config(t, dir, "a", dir), config(t, testenv.Certificates(t), "b", dir)
	token := control.NewToken()
	permit := func(p *control.Permit, err error) *control.Permit {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for name, c := range map[string]struct {
		change func(*worker.Worker)
		tls    bool
		host   string
		permit func(session control.Token) *control.Permit
		cause  control.Cause
		says   string
		calls  bool
	}{
		"TLS without a permit":     {nil, true, "127.0.0.1", nil, control.Identity, "shows no permit", false},
		"a permit of another port": {nil, true, "127.0.0.1", func(s control.Token) *control.Permit { return permit(control.Permitted(own, s, token, port+1)) }, control.Identity, "not for this call", false},
		"a permit of another worker": {nil, true, "127.0.0.1", func(control.Token) *control.Permit {
			return permit(control.Permitted(own, control.NewToken(), token, port))
		}, control.Identity, "not for this call", false},
		"a permit of nobody":       {nil, true, "127.0.0.1", func(s control.Token) *control.Permit { return permit(control.Permitted(foreign, s, token, port)) }, control.Identity, "unknown authority", false},
		"a permit of another host": {nil, true, "127.0.0.2", func(s control.Token) *control.Permit { return permit(control.Permitted(own, s, token, port)) }, control.Identity, "127.0.0.2", false},
		"a permit, and --allow": {func(w *worker.Worker) { w.Allow = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")} }, true, "127.0.0.1",
			func(s control.Token) *control.Permit { return permit(control.Permitted(own, s, token, port)) }, control.Refused, "that --allow of this worker has", false},
		"a permit":                       {nil, true, "127.0.0.1", func(s control.Token) *control.Permit { return permit(control.Permitted(own, s, token, port)) }, control.Refused, "", true},
		"this machine alone":             {nil, false, far, nil, control.Refused, "without TLS or --plaintext", false},
		"in the clear":                   {func(w *worker.Worker) { w.Protect.AllowPlaintext = true }, false, far, nil, control.Refused, "only with --allow NETWORK", false},
		"in the clear, on this machine":  {func(w *worker.Worker) { w.Protect.AllowPlaintext = true }, false, "127.0.0.1", nil, control.Refused, "", true},
		"a name that nobody knows":       {nil, false, "nobody.invalid", nil, control.Name, "", false},
		"an IPv4 address in IPv6's form": {nil, false, "::ffff:" + far, nil, control.Refused, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{net: newWorld(t).net, change: func(w *worker.Worker) {
				if c.tls {
					w.Protect.TLS = own
				}
				if c.change != nil {
					c.change(w)
				}
			}}
			if c.tls {
				w.cfg = gpurdma.Config{TLS: own}
			}
			n := w.add(t, 1)
			t.Cleanup(n.stop)
			var p control.Protection
			if c.tls {
				p.TLS = config(t, dir, "b", dir)
			}
			conn, err := control.Dial(t.Context(), n.addr, "127.0.0.1", p, patience)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			order := func(m *control.Message) *control.Message {
				t.Helper()
				if err := conn.Send(m); err != nil {
					t.Fatal(err)
				}
				answer, err := conn.Receive(testenv.Limit(10 * time.Second))
				if err != nil {
					t.Fatal(err)
				}
				return answer
			}
			hello := order(&control.Message{Hello: &control.Hello{Protocol: control.Protocol, Version: control.Version}})
			if hello.Welcome == nil {
				t.Fatalf("%+v", hello.Fault)
			}
			order(&control.Message{ID: 1, Roster: &control.Roster{Hosts: []string{"127.0.0.1", c.host}}})
			m := &control.Measure{Token: token, NIC: "mem0", To: 1, Port: port, Plan: control.Plan{Size: 1, Depth: 1, Volume: 1, Time: time.Second, Small: 1, Timeout: testenv.Limit(5 * time.Second)}}
			if c.permit != nil {
				m.Permit = c.permit(hello.Welcome.Session)
			}
			got := order(&control.Message{ID: 2, Measure: m})
			if got.Outcome == nil || got.Outcome.Fault == nil {
				t.Fatalf("%+v", got)
			}
			f := got.Outcome.Fault
			if f.Cause != c.cause || !strings.Contains(f.Error(), c.says) || strings.HasPrefix(f.Step, "connect to ") != c.calls {
				t.Errorf("%s, want %s: %v", f.Cause, c.cause, f)
			}
		})
	}
}

// elsewhere is an address of no network that this machine is in.
func elsewhere(t *testing.T) string {
	t.Helper()
	own, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, ip := range []string{"192.0.2.1", "198.51.100.1", "203.0.113.1"} { // of documentation
		if !slices.ContainsFunc(own, func(a net.Addr) bool { n, ok := a.(*net.IPNet); return ok && n.Contains(net.ParseIP(ip)) }) {
			return ip
		}
	}
	t.Fatal(own)
	return ""
}
