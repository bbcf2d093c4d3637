// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"testing"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/lower"
	"github.com/gpurdma/gpurdma/layout"
)

// Registrations are relaxed, for local use and for peers, unless the caller chose otherwise
// for the buffer, or for a slice of it. The peer does not see the ordering.
func TestOrdering(t *testing.T) {
	n := openNIC(t)
	f := n.dev.(*fakeDevice).On()
	relaxed := func(what string, keys lower.Memory, want bool) {
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
			rb := must(n.Grant(s, access, 1))(t)
			if len(rb.spaces) != len(want) {
				t.Fatalf("%s: %d sources, want %d", what, len(rb.spaces), len(want))
			}
			for i, want := range want {
				relaxed(what, rb.spaces[i].Memory, want)
			}
			if err := rb.Grant().Withdraw(); err != nil {
				t.Error(err)
			}
		}
	}
	host := func() *Buffer {
		b := must(n.AllocHost(64))(t)
		closing(t, b)
		return b
	}
	register := func(direct bool, o Ordering) *Buffer {
		b := must(n.Register(&memSource{mem: make([]byte, 64), direct: direct}, BufferOptions{Ordering: o}))(t)
		closing(t, b)
		return b
	}
	for _, c := range []struct {
		name  string
		b     *Buffer
		order Ordering
	}{
		{"host", host(), RelaxedOrdering},
		{"direct", register(true, RelaxedOrdering), RelaxedOrdering},
		{"staged", register(false, RelaxedOrdering), RelaxedOrdering},
		{"direct, strict", register(true, StrictOrdering), StrictOrdering},
		{"staged, strict", register(false, StrictOrdering), StrictOrdering},
	} {
		want := c.order == RelaxedOrdering
		relaxed(c.name, c.b.core.reg.Local, want)
		shared(c.name, c.b.All(), want)
		part := must(c.b.Slice(8, 16))(t)
		closing(t, part)
		shared(c.name+", a slice", part.All(), want)
		flag := must(c.b.StrictSlice(32, 8))(t)
		closing(t, flag)
		shared(c.name+", a flag", flag.All(), false)
		again := must(flag.Slice(0, 4))(t)
		closing(t, again)
		shared(c.name+", a slice of a flag", again.All(), false)
		run := must(layout.SG(layout.Extent{Len: part.Size()}, layout.Extent{Source: 1, Len: flag.Size()}))(t)
		shared(c.name+", a view", must(NewView(run, part, flag))(t).All(), want, false)
	}
	ro := must(host().ReadOnlySlice(0, 64))(t)
	closing(t, ro)
	flag := must(ro.StrictSlice(0, 8))(t)
	closing(t, flag)
	if !flag.ReadOnly() {
		t.Error("a strict slice of what is for reading only may be written to")
	}
}
