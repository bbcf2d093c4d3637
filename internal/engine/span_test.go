// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"testing"

	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/layout"
)

// All fixes the bytes of a Span: a layout that its region is assigned later changes nothing.
func TestSpanKeepsItsLayout(t *testing.T) {
	w := inMemory(t).world(t, EndpointOptions{})
	mine, theirs := hostKind.make(t, w.a.nic, 64), hostKind.make(t, w.b.nic, 64)
	want := random(t, testenv.Seeded(t), mine, 64)
	to := w.share(theirs.All(), allAccess)
	r := must(memory.NewRegion(mine))(t)
	closing(t, r)
	w.ok(r.AssignSG(layout.Extent{Off: 0, Len: 16}))
	first := r.All()
	w.ok(r.AssignSG(layout.Extent{Off: 32, Len: 16}))
	w.ok(w.a.Write(first, w.ab, to.Part(0, 16), "the first layout"))
	w.ok(w.a.Write(r.All(), w.ab, to.Part(16, 16), "the second"))
	w.ok(w.a.Write(memory.Span{Region: r, Length: 16}, w.ab, to.Part(32, 16), "the one of now"))
	for _, what := range []string{"the first layout", "the second", "the one of now"} {
		w.done(w.a, operation.Write, what)
	}
	got := content(t, theirs)
	for i, from := range []int{0, 32, 32} {
		if !bytes.Equal(got[16*i:][:16], want[from:][:16]) {
			t.Errorf("write %d moved other bytes than those from %d on", i, from)
		}
	}
}
