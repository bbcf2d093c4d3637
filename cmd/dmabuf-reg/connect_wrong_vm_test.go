// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/peer"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/serve"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/station"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/talk"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/trial"
	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/engine"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// spoiler is a server's session that answers as `serve` does, but that something
// is done to the bytes of either side before or after it carries out a request.
type spoiler struct {
	*serve.Session
	t   *testing.T
	ctx context.Context

	before, after func(s *spoiler, q *talk.Request)
}

// near changes a byte of the server's buffer, by CPU.
func (s *spoiler) near(off int64) {
	s.t.Helper()
	var p [1]byte
	_, err := s.Line.Buf.ReadAt(p[:], off)
	if err == nil {
		p[0] ^= 0x40
		_, err = s.Line.Buf.WriteAt(p[:], off)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// far changes a byte of the client's buffer, by the NIC: and that in the same place
// of the server's, where none is looked for.
func (s *spoiler) far(off int64) {
	s.t.Helper()
	s.moves(talk.Read, off, 1)
	s.near(off)
	s.moves(talk.Write, off, 1)
}

func (s *spoiler) moves(op talk.Op, off, size int64) {
	s.t.Helper()
	if _, err := s.Line.Run(s.ctx, op, talk.Work{Offset: off, Size: size, Count: 1, Slots: 1}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *spoiler) setWord(v uint64) {
	s.t.Helper()
	if err := peer.WriteWord(s.Line.Buf, 0, v); err != nil {
		s.t.Fatal(err)
	}
}

// serve answers until the client is done.
func (s *spoiler) serve() {
	s.t.Helper()
	ok := func(err error) {
		s.t.Helper()
		if err != nil {
			s.t.Fatal(err)
		}
	}
	ok(s.Line.Listen())
	for bye := false; !bye; {
		data, err := s.Line.Hear(s.ctx)
		ok(err)
		var q talk.Request
		ok(q.Decode(data, s.Line.Buf.Size()))
		a := talk.Answer{ID: q.ID, Status: talk.Done}
		if s.before != nil {
			s.before(s, &q)
		}
		if err := s.Handle(s.ctx, &q, &a); err != nil {
			a = talk.Answer{ID: q.ID, Status: talk.Failed, Text: [4]string{err.Error()}}
		}
		if s.after != nil {
			s.after(s, &q)
		}
		if bye = q.Kind == talk.Bye; !bye {
			ok(s.Line.Listen())
		}
		// As the server does: a client that has the answer to its Bye may hang up before this side
		// learns that it was sent.
		if err := s.Line.Say(s.ctx, a.Append(nil)); !bye {
			ok(err)
		}
	}
}

// spoil does something where a request is of that kind, and has that Flip or Set.
func spoil(kind talk.Kind, flag bool, do func(s *spoiler, q *talk.Request)) func(*spoiler, *talk.Request) {
	return func(s *spoiler, q *talk.Request) {
		if q.Kind == kind && (q.Flip || q.Set) == flag {
			do(s, q)
		}
	}
}

// Whatever goes wrong with bytes on the way makes `connect` fail, say where they
// are wrong and how, and go on with the next row, which is right.
func TestVMConnectFindsWrongBytes(t *testing.T) {
	testenv.VM(t)
	const (
		size, count = 4097, 4
		target      = size * count
		wrong       = target - 1                // the last byte of the last operation
		last        = target + trial.Behind - 1 // the last that is watched
		inTarget    = ": 1 wrong byte(s) from offset 0x4003 to 0x4003: "
		behindIt    = ": 1 wrong byte(s) from offset 0x4203 to 0x4203: "
	)
	near := func(off int64) func(*spoiler, *talk.Request) {
		return func(s *spoiler, _ *talk.Request) { s.near(off) }
	}
	far := func(off int64) func(*spoiler, *talk.Request) {
		return func(s *spoiler, _ *talk.Request) { s.far(off) }
	}
	f := station.Flags{GPU: station.Host, NIC: "rxe0", Size: 256 << 10, Timeout: testenv.Limit(30 * time.Second)}
	st, err := f.Open(t.Context(), engine.EndpointOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}()
	addr, err := st.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	next := peer.Pull(st.Completions)

	// Only one of an operation's two rows has the request at which bytes are spoiled:
	// with it the server is checked as the target, or filled as the source.
	for _, tt := range []struct {
		op, direction string // of the row that fails; no direction: none does
		before, after func(*spoiler, *talk.Request)
		says          string
		verified      int64
	}{
		{op: "write"},
		{op: "read"},
		{op: "send"},
		{op: "atomic"},
		{op: "write", direction: trial.Out, before: spoil(talk.Check, false, near(wrong)), says: "the server's buffer, after write" + inTarget},
		{op: "read", direction: trial.In, before: spoil(talk.Check, false, near(wrong)), says: "the server's buffer, after read" + inTarget},
		{op: "send", direction: trial.Out, before: spoil(talk.Check, false, near(wrong)), says: "the server's buffer, after send" + inTarget},
		{op: "write", direction: trial.In, after: spoil(talk.Run, false, far(wrong)), says: "the buffer here, after write" + inTarget},
		{op: "read", direction: trial.Out, after: spoil(talk.Fill, false, near(wrong)), says: "the buffer here, after read" + inTarget},
		{op: "send", direction: trial.In, after: spoil(talk.Run, false, far(wrong)), says: "the buffer here, after send" + inTarget},

		{op: "write", direction: trial.Out, before: spoil(talk.Check, true, near(last)), says: "the server's buffer, behind the target of write" + behindIt, verified: target},
		{op: "read", direction: trial.In, before: spoil(talk.Check, true, near(last)), says: "the server's buffer, behind the target of read" + behindIt, verified: target},
		{op: "send", direction: trial.Out, before: spoil(talk.Check, true, near(last)), says: "the server's buffer, behind the target of send" + behindIt, verified: target},
		{op: "write", direction: trial.In, after: spoil(talk.Run, false, far(last)), says: "the buffer here, behind the target of write" + behindIt, verified: target},
		{op: "read", direction: trial.Out, after: spoil(talk.Fill, false, far(last)), says: "the buffer here, behind the target of read" + behindIt, verified: target},
		{op: "send", direction: trial.In, after: spoil(talk.Run, false, far(last)), says: "the buffer here, behind the target of send" + behindIt, verified: target},

		// Messages that are too short: those that are sent, and by what was expected.
		{op: "send", direction: trial.In, before: spoil(talk.Run, false, func(_ *spoiler, q *talk.Request) { q.Size-- }), says: "4 messages had another length than 4097 bytes"},
		{op: "send", direction: trial.Out, after: spoil(talk.Receive, false, func(s *spoiler, _ *talk.Request) { s.Line.Want++ }), says: "the server says: 4 messages had another length than 4098 bytes"},

		// The word is another before the atomics, and what it ought to be after them.
		{op: "atomic", direction: trial.Out, after: spoil(talk.Word, true, near(0)),
			before: spoil(talk.Word, false, func(s *spoiler, q *talk.Request) { s.setWord(^q.Value) }),
			says:   "6 of 6 atomics returned another number than was there"},
		{op: "atomic", direction: trial.In, before: spoil(talk.Run, false, far(0)),
			after: spoil(talk.Run, false, func(s *spoiler, q *talk.Request) { s.setWord(^q.Value); s.moves(talk.Write, 0, 8) }),
			says:  "6 of 6 atomics returned another number than was there"},
		// And the reverse.
		{op: "atomic", direction: trial.Out, before: spoil(talk.Word, false, near(0)), says: "the word is 0x"},
		{op: "atomic", direction: trial.In, after: spoil(talk.Run, false, far(0)), says: "the word is 0x"},
	} {
		what := "nothing"
		if tt.says != "" {
			what, _, _ = strings.Cut(tt.says, ":")
		}
		t.Run(tt.op+" "+tt.direction+" "+what, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), testenv.Limit(time.Minute))
			defer cancel()
			r := command(t, "connect", addr.String(), "--json", "--gpu", "host", "--nic", "rxe0", "--size", "256KiB", "--timeout", stepLimit,
				"--both", "--ops", tt.op, "--sizes", "4097", "--count", "4")
			r.begin(t)
			over, err := st.Accept(ctx)
			if err != nil {
				t.Fatalf("%v\n%s%s", err, r.out.String(), r.err.String())
			}
			l, err := peer.NewLine(st, over)
			if err != nil {
				t.Fatal(err)
			}
			c := serve.New(t.Logf).Begin(l)
			l.Pull = next
			defer func() {
				if err := l.HangUp(); err != nil {
					t.Error(err)
				}
			}()
			s := &spoiler{Session: c, t: t, ctx: ctx, before: tt.before, after: tt.after}
			s.serve()

			want := cli.ExitOK
			if tt.says != "" {
				want = cli.ExitFailed
			}
			if status := r.status(t); status != want {
				t.Errorf("exit status %d, want %d\n%s%s", status, want, r.out.String(), r.err.String())
			}
			type failures []struct{ Subject, Message string }
			var d struct {
				OK     bool
				Errors failures
				Result struct {
					Rows []struct {
						Op, Direction string
						OK            bool
						Verified      int64 `json:"verified_bytes"`
						Errors        failures
					}
				}
			}
			if err := json.Unmarshal(r.out.Bytes(), &d); err != nil || len(d.Result.Rows) != 2 {
				t.Fatalf("%v, %d rows\n%s%s", err, len(d.Result.Rows), r.out.String(), r.err.String())
			}
			bytes := size
			if tt.op == "atomic" {
				bytes = 8
			}
			// The row says it, and so does the run.
			says := func(list failures) bool {
				return len(list) == 1 && list[0].Subject == fmt.Sprintf("%s %s, %d bytes", tt.op, tt.direction, bytes) && strings.Contains(list[0].Message, tt.says)
			}
			if tt.says == "" && (!d.OK || len(d.Errors) > 0) || tt.says != "" && (d.OK || !says(d.Errors)) {
				t.Errorf("ok is %v, with %+v, want %q", d.OK, d.Errors, tt.says)
			}
			for i, row := range d.Result.Rows {
				all := int64(target + trial.Behind)
				if tt.op == "atomic" {
					all = 8 * (count + 3)
				}
				switch {
				case row.Op != tt.op || row.Direction != []string{trial.Out, trial.In}[i]:
					t.Errorf("row %d is %+v", i, row)
				case row.Direction != tt.direction:
					if !row.OK || len(row.Errors) > 0 || row.Verified != all {
						t.Errorf("nothing was wrong with %+v, of %d bytes", row, all)
					}
				case row.OK || row.Verified != tt.verified || !says(row.Errors):
					t.Errorf("%+v, want %d bytes verified, and %q", row, tt.verified, tt.says)
				}
			}
		})
	}
}
