// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd_test

import (
	"context"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd"
)

// A queue that makes a completion now and then never fills up for good, though
// no work request asks for one.
func TestVMSignalEvery(t *testing.T) {
	pd := openPD(t)
	const depth, every, many = 16, 5, 100
	p := connectOne(t, pd, ibvfd.QPAttr{SendDepth: depth, SignalEvery: every})
	_, mr := hostMR(t, pd, 4096)
	_, target := hostMR(t, pd, 4096)
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	posted, completed := 0, 0
	take := func() {
		t.Helper()
		n, err := p.cq.PollUntil(ctx, p.wc)
		if err != nil {
			t.Fatal(err)
		}
		for _, wc := range p.wc[:n] {
			if completed += every; wc.Status != ibvfd.WCSuccess || wc.ID != uint64(completed) {
				t.Fatalf("%+v, want a good one of work request %d", wc, completed)
			}
		}
	}
	for posted < many {
		_, err := p.a.PostSend([]ibvfd.SendWR{{
			ID: uint64(posted + 1), Op: ibvfd.OpWrite, SGE: []ibvfd.SGE{{Addr: mr.IOVA(), Length: 64, LKey: mr.LKey()}},
			RemoteAddr: target.IOVA(), RKey: target.RKey(),
		}})
		if errors.Is(err, unix.ENOMEM) {
			if posted-completed < depth {
				t.Fatalf("the queue is full of %d", posted-completed)
			}
			take()
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		posted++
	}
	for completed < many {
		take()
	}
	if n, err := p.cq.Poll(p.wc); n != 0 || err != nil {
		t.Errorf("%d completions more, %v", n, err)
	}
}
