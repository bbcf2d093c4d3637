// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"testing"

	"github.com/gpurdma/gpurdma/ibvfd"
)

// Registrations are relaxed, for local use and for peers, unless the caller chose otherwise
// for the buffer, or for a slice of it. The peer does not see the ordering.
func TestOrdering(t *testing.T) {
	w := inMemory(t).world(t, EndpointOptions{})
	f := w.b.nic.dev.(*fakeDevice).On()
	relaxed := func(what string, keys Memory, want bool) {
		t.Helper()
		for _, p := range keys {
			access, _ := accessOf(t, f, p.Key)
			if got := access&ibvfd.AccessRelaxedOrdering != 0; got != want {
				t.Errorf("%s: relaxed is %v, want %v", what, got, want)
			}
		}
	}
	shared := func(what string, s Span, want ...bool) {
		t.Helper()
		for _, access := range []ibvfd.Access{ibvfd.AccessRemoteRead, allAccess} {
			rb := w.share(s, access)
			if len(rb.spaces) != len(want) {
				t.Fatalf("%s: %d sources, want %d", what, len(rb.spaces), len(want))
			}
			for i, want := range want {
				relaxed(what, rb.spaces[i].Memory, want)
			}
		}
	}
	register := func(direct bool, o Ordering) *Buffer {
		b := must(w.b.nic.Register(&memSource{mem: make([]byte, 64), direct: direct}, BufferOptions{Ordering: o}))(t)
		closingBuffer(t, b)
		return b
	}
	for _, c := range []struct {
		name  string
		b     *Buffer
		order Ordering
	}{
		{"host", hostKind.make(t, w.b.nic, 64), RelaxedOrdering},
		{"direct", register(true, RelaxedOrdering), RelaxedOrdering},
		{"staged", register(false, RelaxedOrdering), RelaxedOrdering},
		{"direct, strict", register(true, StrictOrdering), StrictOrdering},
		{"staged, strict", register(false, StrictOrdering), StrictOrdering},
	} {
		want := c.order == RelaxedOrdering
		relaxed(c.name, c.b.core.reg.Local, want)
		shared(c.name, c.b.All(), want)
		part := must(c.b.Slice(8, 16))(t)
		closingBuffer(t, part)
		shared(c.name+", a slice", part.All(), want)
		flag := must(c.b.StrictSlice(32, 8))(t)
		closingBuffer(t, flag)
		shared(c.name+", a flag", flag.All(), false)
		again := must(flag.Slice(0, 4))(t)
		closingBuffer(t, again)
		shared(c.name+", a slice of a flag", again.All(), false)
		both := must(NewRegion(part, flag))(t)
		closing(t, both)
		shared(c.name+", a region", both.All(), want, false)
	}
	ro := must(hostKind.make(t, w.b.nic, 64).ReadOnlySlice(0, 64))(t)
	closingBuffer(t, ro)
	flag := must(ro.StrictSlice(0, 8))(t)
	closingBuffer(t, flag)
	if !flag.ReadOnly() {
		t.Error("a strict slice of what is for reading only may be written to")
	}
}
