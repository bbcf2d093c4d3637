// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/memnic"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/rma"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// A NIC may acknowledge a WRITE whose bytes are still on their way to the memory. With
// FlagDeliveryComplete the completion says that they have arrived.
func TestDeliveryComplete(t *testing.T) {
	s := inMemory(t)
	s.eachPair(t, func(t *testing.T, local, remote kind) {
		r := testenv.Seeded(t)
		w := s.world(t, EndpointOptions{MaxSGE: 1})
		f := fakeOf(w.a.nic).On()
		f.OnPlace(func(memnic.Placement) time.Duration { return memnic.Held })
		defer f.OnPlace(nil)
		const size = 3000
		mine, theirs := local.make(t, w.a.nic, size), remote.make(t, w.b.nic, size)
		here, there := random(t, r, mine, size), random(t, r, theirs, size)
		rb := w.share(theirs.All(), ibvfd.AccessRemoteRead|ibvfd.AccessRemoteWrite)
		l := func(off, n int64) memory.Span { return memory.Span{Buf: mine, Offset: off, Length: n} }

		w.ok(w.a.Write(l(0, 100), w.ab, rb.Part(50, 100), "acknowledged"))
		w.done(w.a, operation.Write, "acknowledged")
		// A READ on another queue pair does not push them into the memory either.
		into := hostKind.make(t, w.a.nic, 8)
		w.ok(w.a.Read(into.All(), w.ab, rb.Part(0, 8), "read"))
		w.done(w.a, operation.Read, "read")
		same(t, "there, of what was acknowledged", theirs, there)

		for i, m := range []struct {
			flags  operation.Flags
			local  []memory.Span
			remote []memory.RemoteSpan
		}{
			{0, []memory.Span{l(200, 700)}, []memory.RemoteSpan{rb.Part(400, 700)}},
			{operation.FlagFence, []memory.Span{l(10, 300), l(900, 1), l(600, 30)}, []memory.RemoteSpan{rb.Part(2000, 300), rb.Part(10, 31)}}, // several work requests
			{operation.FlagInject, []memory.Span{l(2000, 90)}, []memory.RemoteSpan{rb.Part(1500, 90)}},
			{operation.FlagRemoteCQData, []memory.Span{l(77, 500)}, []memory.RemoteSpan{rb.Part(1400, 500)}},
		} {
			if m.flags&operation.FlagRemoteCQData != 0 {
				w.ok(w.b.Recv(memory.Span{}, w.ba, "data"))
			}
			w.ok(w.a.WriteMsg(rma.Msg{Local: m.local, Peer: w.ab, Remote: m.remote, Data: 0, Context: i}, m.flags|operation.FlagDeliveryComplete))
			w.done(w.a, operation.Write, i)
			if i == 0 { // earlier writes have arrived with it
				copy(there[50:], here[:100])
			}
			var sent []byte
			for _, s := range m.local {
				sent = append(sent, here[s.Offset:s.Offset+s.Length]...)
			}
			for _, s := range m.remote {
				sent = sent[copy(there[s.Offset:s.Offset+s.Length], sent):]
			}
			same(t, "there", theirs, there)
		}
		w.done(w.b, operation.RemoteWrite, "data")
	})
}
