// SPDX-License-Identifier: Apache-2.0

package control

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"
)

var plan = Plan{Size: 1 << 20, Depth: 16, Volume: 1 << 26, Time: time.Second, Small: 100, Timeout: time.Second}

// messages are one of each kind, by the side that sends it.
func messages() (orders, answers []*Message) {
	token := NewToken()
	fault := &Fault{Timeout, "connect", "no answer"}
	orders = []*Message{
		{Hello: &Hello{Protocol, Version, "1.0"}},
		{ID: 1, Roster: &Roster{Hosts: []string{"a", "10.0.0.1"}, Self: 1}},
		{ID: 2, Expect: &Expect{token, NewToken(), "mlx5_0", plan}},
		{ID: 3, Measure: &Measure{token, "mlx5_0", 1, 4000, plan, nil}},
		{ID: 3, Measure: &Measure{token, "mlx5_0", 1, 4000, plan, &Permit{[][]byte{{1}}, []byte{2}}}},
		{ID: 4, Release: &Release{token}},
		{ID: 5, Ping: true},
	}
	answers = []*Message{
		{Welcome: &Welcome{Hello{Protocol, Version, "1.0"}, "node-1", []NIC{{"mlx5_0", 4000, "host", 1 << 20, "host", "host memory", nil}, {Name: "mlx5_1", Fault: fault}}, token}},
		{ID: 2},
		{ID: 2, Permit: &Permit{[][]byte{{1}, {2}}, []byte{3}}},
		{ID: 3, Outcome: &Outcome{Reached: true, Out: Rate{1 << 26, time.Second}, In: Rate{1, 1}, Latency: Times{100, 3000, 4000}, Over: "a to b"}},
		{ID: 3, Outcome: &Outcome{Fault: fault}},
		{ID: 4, Fault: fault},
	}
	return orders, answers
}

func pair(t *testing.T) (coordinator, worker *Conn) {
	a, b := net.Pipe()
	t.Cleanup(func() { a.Close(); b.Close() })
	return NewConn(a, false, 5*time.Second), NewConn(b, true, 5*time.Second)
}

func TestMessages(t *testing.T) {
	coordinator, worker := pair(t)
	orders, answers := messages()
	for i, list := range [][]*Message{orders, answers} {
		from, to := coordinator, worker
		if i == 1 {
			from, to = worker, coordinator
		}
		for _, m := range list {
			sent := make(chan error, 1)
			go func() { sent <- from.Send(m) }()
			got, err := to.Receive(5 * time.Second)
			if err := errors.Join(err, <-sent); err != nil || !reflect.DeepEqual(got, m) {
				t.Errorf("%+v, %v; want %+v", got, err, m)
			}
			if err := to.Send(m); err == nil {
				t.Errorf("the wrong side has sent %+v", m)
			}
		}
	}
}

// receive gives bytes to a side.
func receive(t *testing.T, worker bool, data []byte) error {
	t.Helper()
	a, b := net.Pipe()
	defer b.Close()
	go func() {
		_, _ = a.Write(data)
		a.Close()
	}()
	_, err := NewConn(b, worker, time.Second).Receive(5 * time.Second)
	return err
}

func frame(body string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// Messages of a hostile side are refused, and the error names the reason.
func TestHostile(t *testing.T) {
	token := strings.Repeat("0", 32)
	good, _ := json.Marshal(plan)
	expect := func(token, nic, plan string) string {
		return `{"id":1,"expect":{"token":"` + token + `","nic":"` + nic + `","plan":` + plan + `}}`
	}
	for _, c := range []struct {
		worker bool
		data   []byte
		says   string
	}{
		{true, []byte("GET / HTTP/1.1\r\n\r\n"), "a message of 1195725856 bytes"},
		{true, []byte{0x16, 3, 1, 0, 200, 1}, "speaks TLS"},
		{false, []byte{0x15, 3, 3, 0, 2, 2, 70}, "speaks TLS"},
		{true, frame(""), "a message of 0 bytes"},
		{true, []byte{0xff, 0xff, 0xff, 0xff}, "of 2 to"},
		{true, frame("{}"), "no order"},
		{true, frame("[]"), "cannot unmarshal"},
		{true, frame("nonsense"), "invalid character"},
		{true, frame(`{"ping":true}{"ping":true}`), "bytes behind"},
		{true, frame(`{"ping":true} x`), "bytes behind"},
		{true, frame(`{"pong":true}`), "unknown field"},
		{true, frame(`{"ping":true,"hello":{}}`), "2 parts"},
		{true, frame(`{"outcome":{}}`), "gives an answer"},
		{false, frame(`{"ping":true}`), "gives an order"},
		{true, frame(`{"id":-1,"ping":true}`), "cannot unmarshal"},
		{true, frame(expect("short", "n", string(good))), "no token"},
		{true, frame(expect("0123abcd", "n", string(good))), "no token"},
		{true, frame(expect(strings.Repeat("G", 32), "n", string(good))), "no token"},
		{true, frame(expect(token, "", string(good))), "no name"},
		{true, frame(expect(token, "a b", string(good))), "no name"},
		{true, frame(expect(token, `\u001b[2J`, string(good))), "no name"},
		{true, frame(expect(token, strings.Repeat("n", 300), string(good))), "300 bytes"},
		{true, frame(expect(token, "n", `{"size":0}`)), "size 0"},
		{true, frame(expect(token, "n", `{"size":1099511627776}`)), "size 1099511627776"},
		{true, frame(expect(token, "n", `{"size":1,"depth":1,"volume":1,"time":3600000000000,"small":1,"timeout":1000000}`)), "time 3600000000000"},
		{true, frame(expect(token, "n", `{"size":1,"depth":1,"volume":1,"time":1,"small":1,"timeout":1}`)), "timeout 1 "},
		{true, frame(`{"measure":{"token":"` + token + `","nic":"n","to":-1,"port":1,"plan":` + string(good) + `}}`), "node -1"},
		{true, frame(`{"measure":{"token":"` + token + `","nic":"n","to":1,"port":0,"plan":` + string(good) + `}}`), "port 0"},
		{true, frame(`{"measure":{"token":"` + token + `","nic":"n","to":1,"port":65536,"plan":` + string(good) + `}}`), "port 65536"},
		{true, frame(`{"roster":{"hosts":[],"self":0}}`), "number of nodes 0"},
		{true, frame(`{"roster":{"hosts":["a"],"self":1}}`), "node 1"},
		{true, frame(`{"roster":{"hosts":["a","b c"],"self":1}}`), "no name of a host"},
		{true, frame(`{"roster":{"hosts":["a"` + strings.Repeat(`,"a"`, 4096) + `],"self":1}}`), "number of nodes 4097"},
		{false, frame(`{"welcome":{"protocol":"","version":1,"release":"","host":"h","nics":[{"name":"a","port":1,"size":1},{"name":"a","port":1,"size":1}]}}`), "two NICs"},
		{false, frame(`{"welcome":{"nics":[{"name":"a","port":0,"size":1}]}}`), "port 0"},
		{false, frame(`{"welcome":{"nics":[` + strings.Repeat(`{"name":"a","port":1},`, 64) + `{}]}}`), "number of NICs 65"},
		{false, frame(`{"outcome":{"out":{"bytes":-1,"time":0}}}`), "bytes -1"},
		{false, frame(`{"outcome":{"out":{"bytes":1,"time":-5}}}`), "time -5"},
		{false, frame(`{"outcome":{"latency":{"count":1,"p50":-1}}}`), "time -1"},
		{false, frame(`{"outcome":{"fault":{"cause":"` + strings.Repeat("x", 21) + `"}}}`), "cause of 21 bytes"},
		{false, frame(`{"fault":{"text":"` + strings.Repeat("x", 2000) + `"}}`), "fault of 2000 bytes"},
	} {
		err := receive(t, c.worker, c.data)
		if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), c.says) || len(err.Error()) > 1000 {
			t.Errorf("%.80q: %.200v; want %q", c.data, err, c.says)
		}
	}
	// A message that breaks off, and a side that is silent.
	for _, data := range [][]byte{nil, {0}, frame(`{"ping":true}`)[:9]} {
		if err := receive(t, true, data); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%q: %v", data, err)
		}
	}
	c, _ := pair(t)
	if _, err := c.Receive(10 * time.Millisecond); err == nil || !strings.Contains(err.Error(), "timeout") {
		t.Error(err)
	}
}

// Whatever arrives is refused or is within the bounds; nothing panics.
func FuzzReceive(f *testing.F) {
	orders, answers := messages()
	for _, m := range append(orders, answers...) {
		body, _ := json.Marshal(m)
		f.Add(true, frame(string(body)))
		f.Add(false, frame(string(body)))
	}
	f.Add(true, []byte{0x16, 3, 1, 0, 200, 1})
	f.Fuzz(func(t *testing.T, worker bool, data []byte) {
		a, b := net.Pipe()
		defer b.Close()
		go func() {
			_, _ = a.Write(data)
			a.Close()
		}()
		c := NewConn(b, worker, time.Second)
		m, err := c.Receive(5 * time.Second)
		if err != nil {
			return
		}
		if again := m.check(!worker); again != nil {
			t.Fatalf("%+v: %v", m, again)
		}
	})
}

func TestSame(t *testing.T) {
	for _, c := range []struct {
		h    Hello
		says string
	}{
		{Hello{Protocol, Version, "1"}, ""},
		{Hello{Protocol, Version + 1, "2.0"}, "version 3 of the mesh's protocol (release 2.0), this side version 2 (release 1.0): run the same release on both"},
		{Hello{"other", Version, ""}, `speaks "other"`},
	} {
		err := c.h.Same("1.0")
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v", c.h, err)
		}
	}
}

func TestText(t *testing.T) {
	if got := Text(strings.Repeat("é", 2000) + "\xff"); text("", got, maxText) != nil || len(got) < 1000 {
		t.Errorf("%d bytes", len(got))
	}
	if got := Text("a\xffb"); got != "a?b" {
		t.Errorf("%q", got)
	}
}
