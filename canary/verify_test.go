// SPDX-License-Identifier: Apache-2.0

package canary

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/ibvfd"
)

func page() int64 { return int64(os.Getpagesize()) }

func fakeOptions() Options {
	opt := Options{Seed: 1, Chunk: 64 << 10}
	opt.setDefaults()
	return opt
}

func runFake(t *testing.T, size int64, prepare func(*fakeWire)) (*Report, *fakeWire, error) {
	t.Helper()
	opt := fakeOptions()
	w := newFakeWire(size, opt)
	if prepare != nil {
		prepare(w)
	}
	rep := &Report{Exporter: "fake", NIC: "fake0", Seed: opt.Seed}
	err := run(t.Context(), w, w.mem, opt, rep)
	if w.open != 0 {
		t.Errorf("%d regions are still registered", w.open)
	}
	return rep, w, err
}

func TestASoundWirePasses(t *testing.T) {
	p := page()
	for _, size := range []int64{p, 2 * p, 3 * p, 4 * p, 16 * p, 64*p + 8, 8 << 20} {
		rep, _, err := runFake(t, size, nil)
		if err != nil || !rep.OK {
			t.Errorf("size %d: OK %v, %v", size, rep.OK, err)
			continue
		}
		if got, want := len(rep.Cases), len(CaseNames()); got != want {
			t.Errorf("size %d: %d cases reported, want %d", size, got, want)
		}
		for _, c := range rep.Cases {
			if c.Skipped && size >= 2*p {
				t.Errorf("size %d: %q was skipped: %s", size, c.Name, c.Detail)
			}
			if c.Detail == "" {
				t.Errorf("size %d: %q says nothing", size, c.Name)
			}
		}
		if rep.VerifiedBytes < 4*size {
			t.Errorf("size %d: only %d bytes were verified", size, rep.VerifiedBytes)
		}
	}
}

// Whatever the seed, the ranges must lie in the buffer, with a guard where the
// case needs one.
func TestPlansStayInTheBuffer(t *testing.T) {
	p := page()
	for seed := range uint64(300) {
		for _, size := range []int64{p, 2 * p, 5 * p, 1 << 20, 3 << 30} {
			whole := span{0, size}
			inside := func(what, name string, s span) {
				if s.len <= 0 || s.off < 0 || s.end() > whole.end() {
					t.Fatalf("seed %d, size %d, %s: %s %v", seed, size, name, what, s)
				}
			}
			for _, c := range plans(size, p, seed) {
				if c.skipped != "" {
					continue
				}
				inside("MR", c.name, c.mr)
				if uint64(c.mr.off)%uint64(p) != c.iova%uint64(p) {
					t.Fatalf("%s: offset %#x and IOVA %#x differ within the page", c.name, c.mr.off, c.iova)
				}
				for _, m := range c.moves {
					inside("range", c.name, m)
					if m.off < c.mr.off || m.end() > c.mr.end() {
						t.Fatalf("seed %d, size %d, %s: %v is not in MR %v", seed, size, c.name, m, c.mr)
					}
				}
				if c.refuse != 0 {
					inside("range", c.name, c.beyond)
				} else if len(c.moves) == 0 {
					t.Fatalf("%s checks nothing", c.name)
				}
				switch c.name {
				case CaseWritePastEnd, CaseReadPastEnd:
					if c.beyond.off >= c.mr.end() || c.beyond.end() <= c.mr.end() {
						t.Fatalf("%s: %v does not cross the end of %v", c.name, c.beyond, c.mr)
					}
				case CaseWriteBefore:
					if c.beyond.off != c.mr.off-1 {
						t.Fatalf("%s: %v does not cross the start of %v", c.name, c.beyond, c.mr)
					}
				case CaseUnaligned, CaseUnalignedMR, CaseIOVA:
					if c.moves[0].off%2 == 0 || c.moves[0].len%2 == 0 {
						t.Fatalf("seed %d, size %d, %s: %v is aligned", seed, size, c.name, c.moves[0])
					}
				case CasePageCrossing:
					for _, m := range c.moves {
						if m.off/p == (m.end()-1)/p {
							t.Fatalf("%s: %v crosses no page boundary", c.name, m)
						}
					}
				}
			}
		}
	}
}

// Every fault that a registration or a NIC could have must be found, in the
// case that it breaks, and named for what it is.
func TestFaultsAreFound(t *testing.T) {
	p := page()
	shift := func(n int64) func(*fakeWire, op, int64, int, int) {
		return func(w *fakeWire, o op, off int64, at, n2 int) { w.copy(o, off+n, at, n2) }
	}
	onWrite := func(f func(w *fakeWire, off int64, at, n int)) func(*fakeWire, op, int64, int, int) {
		return func(w *fakeWire, o op, off int64, at, n int) {
			if o == opWrite {
				f(w, off, at, n)
			} else {
				w.copy(o, off, at, n)
			}
		}
	}
	onRead := func(f func(w *fakeWire, off int64, at, n int)) func(*fakeWire, op, int64, int, int) {
		return func(w *fakeWire, o op, off int64, at, n int) {
			if o == opRead {
				f(w, off, at, n)
			} else {
				w.copy(o, off, at, n)
			}
		}
	}
	for _, tt := range []struct {
		name   string
		fault  func(*fakeWire, op, int64, int, int)
		origin Origin
		cases  []string // that must fail; nil: all with transfers
	}{
		{name: "WRITE never arrives", fault: onWrite(func(*fakeWire, int64, int, int) {}), origin: OriginStale},
		{name: "READ never arrives", fault: onRead(func(*fakeWire, int64, int, int) {}), origin: OriginStale},
		{name: "one page further on", fault: shift(p), origin: OriginStale},
		{name: "three bytes further on", fault: shift(3), origin: OriginShifted, cases: []string{CaseWhole, CaseUnaligned}},
		{name: "WRITE of zeroes", fault: onWrite(func(w *fakeWire, off int64, _, n int) { clear(w.mem[off : off+int64(n)]) }), origin: OriginZero},
		{name: "READ of all ones", fault: onRead(func(w *fakeWire, _ int64, at, n int) {
			for i := range n {
				w.in[at+i] = 0xff
			}
		}), origin: OriginAllOnes},
		{name: "one bit", fault: onWrite(func(w *fakeWire, off int64, at, n int) {
			w.copy(opWrite, off, at, n)
			w.mem[off+int64(n/2)] ^= 4
		}), origin: OriginUnknown},
		{name: "one byte too many before", fault: onWrite(func(w *fakeWire, off int64, at, n int) {
			w.copy(opWrite, off-1, at-1, n+1)
		}), cases: []string{CaseLastByte, CaseUnaligned, CaseUnalignedMR}},
		{name: "packet too many behind", fault: onWrite(func(w *fakeWire, off int64, at, n int) {
			newPattern(1, 1).fill(w.out[at+n:at+n+32], 0)
			w.copy(opWrite, off, at, min(n+32, int(w.mem.Size()-off)))
		}), cases: []string{CaseFirstByte, CaseUnalignedMR, CaseIOVA}},
		{name: "READ fills more than asked for", fault: onRead(func(w *fakeWire, off int64, at, n int) {
			w.copy(opRead, off, at, n)
			w.in[at+n] ^= 1
		}), origin: OriginUnknown},
		{name: "READ from elsewhere", fault: onRead(func(w *fakeWire, off int64, at, n int) { w.copy(opRead, off+8, at, n) }), origin: OriginShifted, cases: []string{CaseWhole, CaseUnaligned}},
		{name: "READ answered from the WRITE's memory", fault: onRead(func(w *fakeWire, _ int64, at, n int) { copy(w.in[at:at+n], w.out[at:at+n]) }),
			cases: []string{CaseWhole, CaseUnaligned, CaseIOVA, CaseFirstByte}},
		{name: "every chunk lands in the first", fault: func(w *fakeWire, o op, off int64, at, n int) { w.copy(o, off%(64<<10), at, n) },
			cases: []string{CaseWhole, CaseLastByte}, origin: OriginShifted},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rep, _, err := runFake(t, 1<<20, func(w *fakeWire) { w.fault = tt.fault })
			var failure *Failure
			if !errors.As(err, &failure) || rep.OK {
				t.Fatalf("the fault was not found: OK %v, %v", rep.OK, err)
			}
			var failed []string
			for _, c := range rep.Failed() {
				failed = append(failed, c.Name)
				if c.Mismatch == nil {
					t.Errorf("%s failed without a mismatch: %s", c.Name, c.Detail)
				}
			}
			want := tt.cases
			if want == nil {
				want = []string{CaseWhole, CaseFirstByte, CaseLastByte, CaseUnaligned, CasePageCrossing, CaseAlignedMR, CaseUnalignedMR, CaseIOVA}
			}
			for _, name := range want {
				if !slices.Contains(failed, name) {
					t.Errorf("%q passed; failed: %q", name, failed)
				}
			}
			var m *Mismatch
			if !errors.As(err, &m) {
				t.Fatalf("no Mismatch in %v", err)
			}
			if tt.origin != "" && m.Origin != tt.origin {
				t.Errorf("origin %q, want %q: %v", m.Origin, tt.origin, m)
			}
			t.Log(m)
		})
	}
}

func TestShiftIsMeasured(t *testing.T) {
	p := page()
	_, _, err := runFake(t, 64*p, func(w *fakeWire) {
		w.fault = func(w *fakeWire, o op, off int64, at, n int) {
			if o == opRead {
				off += 5
			}
			w.copy(o, off, at, n)
		}
	})
	var m *Mismatch
	if !errors.As(err, &m) || m.Origin != OriginShifted || m.Shift != -5 {
		t.Errorf("READs come from 5 bytes further on, so bytes stand 5 too early; reported: %v", err)
	}

	_, _, err = runFake(t, 64*p, func(w *fakeWire) {
		w.fault = func(w *fakeWire, o op, off int64, at, n int) {
			if o == opWrite {
				off += p
			}
			w.copy(o, off, at, n)
		}
	})
	m = nil
	if !errors.As(err, &m) || m.Origin != OriginStale || m.LandedAt != m.Offset+p {
		t.Errorf("WRITEs land a page further on; reported: %v", err)
	}
}

func TestForbiddenAccessThatHappensIsFound(t *testing.T) {
	refusals := []string{CaseWritePastEnd, CaseWriteBefore, CaseReadPastEnd, CaseNoRemoteWrite, CaseDeregistered}
	for _, tt := range []struct {
		name string
		lax  func(w *fakeWire, o op, off int64, at, n int) error
	}{
		{"carried out", func(w *fakeWire, o op, off int64, at, n int) error { w.copy(o, off, at, n); return nil }},
		{"answered with success", func(*fakeWire, op, int64, int, int) error { return nil }},
		{"refused after a byte moved", func(w *fakeWire, o op, off int64, at, n int) error {
			w.copy(o, off, at, 1)
			return &TransferError{Err: &ibvfd.WCError{Status: ibvfd.WCRemAccessErr}}
		}},
		{"refused otherwise", func(*fakeWire, op, int64, int, int) error {
			return &TransferError{Err: &ibvfd.WCError{Status: ibvfd.WCRemInvReqErr}}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rep, _, err := runFake(t, 1<<20, func(w *fakeWire) { w.lax = tt.lax })
			if err == nil {
				t.Fatal("no error")
			}
			var failed []string
			for _, c := range rep.Failed() {
				failed = append(failed, c.Name)
			}
			if !slices.Equal(failed, refusals) {
				t.Errorf("failed cases: %q, want %q", failed, refusals)
			}
			t.Log(err)
		})
	}
}

func TestABrokenLinkEndsTheRun(t *testing.T) {
	rep, w, err := runFake(t, 1<<20, func(w *fakeWire) {
		w.beforeErr = func(op, int64, int) error {
			if w.moves > 3 {
				return &ibvfd.WCError{Status: ibvfd.WCRetryExcErr, VendorErr: 0x81}
			}
			return nil
		}
	})
	var broken *TransferError
	if !errors.As(err, &broken) || !strings.Contains(err.Error(), "ip link") {
		t.Errorf("error without a remedy: %v", err)
	}
	if w.moves != 4 {
		t.Errorf("%d transfers were tried, want 4: each costs seconds on a dead link", w.moves)
	}
	for _, c := range rep.Cases[1:] {
		if c.OK || !strings.HasPrefix(c.Detail, "not run") {
			t.Errorf("%q: OK %v, %q", c.Name, c.OK, c.Detail)
		}
	}
	if rep.OK || len(rep.Failed()) != len(CaseNames()) {
		t.Errorf("OK %v with %d failed cases", rep.OK, len(rep.Failed()))
	}
}

func TestCancel(t *testing.T) {
	for after := range 30 {
		ctx, cancel := context.WithCancelCause(t.Context())
		opt := fakeOptions()
		opt.Progress = func(done, total int64) {
			if done > total {
				t.Errorf("progress %d of %d", done, total)
			}
		}
		w := newFakeWire(1<<20, opt)
		w.beforeErr = func(op, int64, int) error {
			if w.moves > after {
				cancel(errFake)
				return ctx.Err()
			}
			return nil
		}
		rep := &Report{}
		err := run(ctx, w, w.mem, opt, rep)
		cancel(nil)
		if !errors.Is(err, errFake) || rep.OK {
			t.Errorf("cancelled in transfer %d: OK %v, %v", after, rep.OK, err)
		}
		if w.open != 0 {
			t.Errorf("cancelled in transfer %d: %d regions leaked", after, w.open)
		}
	}
}

func TestProgressReachesItsTotal(t *testing.T) {
	opt := fakeOptions()
	var done, total int64
	opt.Progress = func(d, n int64) { done, total = d, n }
	w := newFakeWire(1<<20, opt)
	if err := run(t.Context(), w, w.mem, opt, &Report{}); err != nil {
		t.Fatal(err)
	}
	if done != total || total == 0 {
		t.Errorf("progress ended at %d of %d", done, total)
	}
}

func TestChooseCases(t *testing.T) {
	opt := fakeOptions()
	opt.Cases = []string{CaseIOVA, CaseLastByte}
	w := newFakeWire(1<<20, opt)
	rep := &Report{}
	if err := run(t.Context(), w, w.mem, opt, rep); err != nil {
		t.Fatal(err)
	}
	if len(rep.Cases) != 2 || rep.Cases[0].Name != CaseIOVA || rep.Cases[1].Name != CaseLastByte {
		t.Errorf("cases %+v", rep.Cases)
	}
	opt.Cases = []string{"whole"}
	err := run(t.Context(), w, w.mem, opt, &Report{})
	if err == nil || !strings.Contains(err.Error(), CaseWhole) {
		t.Errorf("unknown case: %v, want an error that lists them", err)
	}
}

func TestTooSmall(t *testing.T) {
	if _, _, err := runFake(t, 100, nil); err == nil {
		t.Error("a buffer of 100 bytes was accepted")
	}
}

func TestReportSurvivesJSON(t *testing.T) {
	rep, _, err := runFake(t, 1<<20, func(w *fakeWire) {
		w.fault = func(*fakeWire, op, int64, int, int) {}
	})
	if err == nil {
		t.Fatal("no error")
	}
	data, err := json.Marshal(rep)
	if err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(*rep, back) {
		t.Errorf("got  %+v\nwant %+v", back, *rep)
	}
}

// A case that does not fit the buffer checks nothing, and nothing checked is
// no pass.
func TestNothingCheckedIsNoPass(t *testing.T) {
	opt := fakeOptions()
	opt.Cases = []string{CasePageCrossing}
	w := newFakeWire(page(), opt)
	rep := &Report{}
	err := run(t.Context(), w, w.mem, opt, rep)
	if rep.OK || !errors.Is(err, ErrNothingChecked) {
		t.Errorf("OK %v, %v; want ErrNothingChecked", rep.OK, err)
	}
}
