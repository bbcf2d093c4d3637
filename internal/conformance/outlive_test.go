// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/fabrictest"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// cut ends the links of a pair's connections, until mend is called.
func (s *setting) cut(t testing.TB, p *pair) (mend func()) {
	if s.net == nil {
		return testenv.LinkDown(t)
	}
	s.net.Cut(p.a, p.b)
	s.net.CutExchanges(fabrictest.Reset)
	return func() {
		s.net.Mend(p.a, p.b)
		s.net.MendExchanges()
	}
}

// A connection outlives its link, and so do the operations that were under way and the memory that
// was exported.
func testOutlive(t *testing.T, s *setting) {
	cfg := gpurdma.Config{Outlive: true, PeerTimeout: bound}
	p := s.pairWith(t, cfg, cfg)
	mine, theirs, remote := p.both(1 << 14)
	r := testenv.Seeded(t)
	rounds := testenv.Soak(3, 100)
	for round := range rounds {
		want := fill(t, r, mine)
		mend := s.cut(t, p)
		list := []*gpurdma.Transfer{must(p.client.Start(limited(t), gpurdma.Op{Kind: gpurdma.OpWrite, Local: mine.All(), Remote: remote, Notify: true, Note: []byte{byte(round)}}))(t)}
		for i := range 5 {
			list = append(list, must(p.client.Start(limited(t), gpurdma.Op{Kind: gpurdma.OpSend, Inline: fmt.Append(nil, round, i)}))(t))
		}
		for ctx := limited(t); p.client.Rails()[0].Up; time.Sleep(time.Millisecond) {
			if ctx.Err() != nil {
				t.Fatal("the link is not lost")
			}
		}
		time.Sleep(200 * time.Millisecond) // attempts fail meanwhile
		mend()
		for i, x := range list {
			<-x.Done()
			if err := x.Err(); err != nil {
				t.Fatalf("round %d: operation %d: %v", round, i, err)
			}
		}
		if note := must(p.server.ReceiveNotification(limited(t)))(t); note[0] != byte(round) {
			t.Errorf("round %d: note %d", round, note)
		}
		same(t, fmt.Sprintf("round %d", round), theirs, want)
		for i := range 5 {
			if m := must(p.server.Receive(limited(t)))(t); string(m) != fmt.Sprint(round, i) {
				t.Fatalf("round %d: message %d is %q", round, i, m)
			}
		}
		p.alive()
	}
	if n := p.client.Rails()[0].Lost; n != rounds {
		t.Errorf("%d links were lost", n)
	}
}
