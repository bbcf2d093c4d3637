// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"errors"
	"net"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/rc"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

func goodHello() Hello {
	q := ibvfd.Endpoint{QPN: 17, PSN: 1<<24 - 1, GID: [16]byte{0: 0xfe, 15: 1}, MTU: 1024}
	return Hello{Conn: 1, Endpoint: 2, Queues: [rc.Queues]ibvfd.Endpoint{q, q}, ReadsIn: 16, ReadsOut: 7}
}

func TestHello(t *testing.T) {
	good := goodHello()
	var back Hello
	if err := back.Decode(good.Append(nil)); err != nil || back != good {
		t.Errorf("%+v, %v", back, err)
	}
	for name, change := range map[string]func(h *Hello, b []byte) []byte{
		"another magic":         func(h *Hello, b []byte) []byte { b[0]++; return b },
		"no READ depths":        func(h *Hello, b []byte) []byte { return b[:len(b)-2] },
		"three queues":          func(h *Hello, b []byte) []byte { b[22]++; return b },
		"too short":             func(h *Hello, b []byte) []byte { return b[:len(b)-1] },
		"too long":              func(h *Hello, b []byte) []byte { return append(b, 0) },
		"nothing":               func(h *Hello, b []byte) []byte { return nil },
		"QP 0":                  func(h *Hello, b []byte) []byte { h.Queues[1].QPN = 0; return h.Append(nil) },
		"QP 1":                  func(h *Hello, b []byte) []byte { h.Queues[0].QPN = 1; return h.Append(nil) },
		"QP of 25 bits":         func(h *Hello, b []byte) []byte { h.Queues[0].QPN = 1 << 24; return h.Append(nil) },
		"PSN of 25 bits":        func(h *Hello, b []byte) []byte { h.Queues[0].PSN = 1 << 24; return h.Append(nil) },
		"MTU 0":                 func(h *Hello, b []byte) []byte { h.Queues[0].MTU = 0; return h.Append(nil) },
		"MTU 1500":              func(h *Hello, b []byte) []byte { h.Queues[0].MTU = 1500; return h.Append(nil) },
		"MTU 8192":              func(h *Hello, b []byte) []byte { h.Queues[0].MTU = 8192; return h.Append(nil) },
		"addresses of no rails": func(h *Hello, b []byte) []byte { h.Addrs = 1; return h.Append(nil) },
		"65 addresses": func(h *Hello, b []byte) []byte {
			h.Session, h.Rails, h.Addrs = 1, 1, MaxRails+1
			return h.Append(nil)
		},
		"no address": func(h *Hello, b []byte) []byte { h.Queues[0].GID = [16]byte{}; return h.Append(nil) },
	} {
		h := goodHello()
		if err := back.Decode(change(&h, h.Append(nil))); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzHello(f *testing.F) {
	h := goodHello()
	f.Add(h.Append(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		var h Hello
		if err := h.Decode(data); err != nil {
			return
		}
		if string(h.Append(nil)) != string(data) {
			t.Fatalf("%x is not what it says", data)
		}
	})
}

// The peer's text is quoted and bounded.
func TestRejectText(t *testing.T) {
	nasty := "\x1b[2J\r\nroot:\xff" + strings.Repeat("é", 200)
	ours, theirs := net.Pipe()
	defer ours.Close()
	go func() {
		defer theirs.Close()
		_ = WriteMessage(theirs, MsgReject, []byte(nasty[:MaxReject]))
		_ = WriteMessage(theirs, MsgReject, []byte(nasty[:MaxReject+1]))
	}()
	_, err := ReadMessage(ours, MsgHello)
	if !errors.Is(err, ErrRejected) || strings.ContainsAny(err.Error(), "\x1b\r\n") || !utf8.ValidString(err.Error()) {
		t.Errorf("%q", err)
	}
	if _, err := ReadMessage(ours, MsgHello); !errors.Is(err, ErrMalformed) {
		t.Errorf("%q", err)
	}
	if got := Bounded(nasty); len(got) > MaxReject || len(got) < MaxReject-2 || !utf8.ValidString(got) {
		t.Errorf("%d bytes: %q", len(got), got)
	}
	if got := Bounded(TextFull); got != TextFull {
		t.Error(got)
	}
}

func TestMain(m *testing.M) { testenv.Main(m) }
