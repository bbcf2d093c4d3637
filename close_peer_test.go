// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/internal/memstream"
)

// Close waits for the writes that the NIC has, also while the peer exports memory.
func TestCloseWhileThePeerExports(t *testing.T) {
	for range 20 {
		w := newWorld(t, Config{})
		_, remote := w.lend("memory", 1<<16)
		mine := w.host(w.a, 1<<16)
		var list []*Transfer
		for range 50 {
			list = append(list, must(w.ca.Start(limited(t), Op{Kind: OpWrite, Local: mine.All(), Remote: remote}))(t))
		}
		done := make(chan bool)
		go func() {
			defer close(done)
			m, err := w.b.Alloc(limited(t), "host", 8)
			for i := 0; err == nil; i++ {
				err = w.cb.Export(fmt.Sprint(i), m.All(), ReadOnly)
			}
		}()
		w.ok(w.ca.Close())
		<-done
		last := false
		for i, x := range list {
			<-x.Done()
			if ok := x.Err() == nil; ok && i > 0 && !last {
				t.Errorf("write %d has succeeded, and the one before it was withdrawn", i)
			} else {
				last = ok
			}
		}
	}
}

// The Close of a fabric reports what is unknown of connections that have ended before.
func TestFabricCloseReportsTheUnknown(t *testing.T) {
	w := newWorld(t, Config{PeerTimeout: 500 * time.Millisecond})
	mine := w.host(w.a, 8)
	_, remote := w.lend("m", 8)
	w.net.Cut(w.da, w.db)
	w.net.CutExchanges(memstream.Silent)
	if err := w.ca.Write(limited(t), remote, mine.All()); err == nil {
		t.Fatal("a write over a path that is cut")
	}
	<-w.ca.Done()
	if err := w.a.Close(); !errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("Close of the fabric: %v", err)
	}
}
