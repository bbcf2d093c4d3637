// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"sync"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/fabrictest"
)

// A driver takes memory away under transfers over rails: operations that touch it fail, the connection
// and other memory go on.
func TestRailsRevoked(t *testing.T) {
	const size = 1 << 20
	s, p := overRails(t, fabrictest.Options{}, gpurdma.Config{PeerTimeout: 5 * time.Second})
	mem := must(fabrictest.NewMemory(size))(t)
	t.Cleanup(func() { ok(t, mem.Close()) })
	revoked := must(p.b.Register(limited(t), mem))(t)
	lost := p.export(revoked.All(), all)
	mine, theirs, remote := p.both(size)
	var others sync.WaitGroup
	stop := make(chan struct{})
	others.Go(func() {
		for n := byte(0); ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			if err := p.client.Write(limited(t), remote, mine.All()); err != nil {
				t.Errorf("a write to other memory: %v", err)
				return
			}
		}
	})
	for range 5 {
		ok(t, p.client.Write(limited(t), lost, mine.All()))
	}
	s.net.Revoke(mem)
	for _, n := range []int64{8, size} {
		if err := p.client.Write(limited(t), lost.Range(0, n), mine.Range(0, n)); err == nil {
			t.Errorf("a write of %d bytes to memory that was taken away has succeeded", n)
		} else {
			t.Log(err)
		}
		if err := p.client.Read(limited(t), mine.Range(0, n), lost.Range(0, n)); err == nil {
			t.Errorf("a read of %d bytes of memory that was taken away has succeeded", n)
		}
	}
	close(stop)
	others.Wait()
	p.alive()
	p.allUp(len(s.nics))
	want := content(t, mine)
	ok(t, p.client.Write(limited(t), remote, mine.All(), gpurdma.Notify(nil)))
	must(p.server.ReceiveNotification(limited(t)))(t)
	same(t, "other memory", theirs, want)
	ok(t, p.client.Close())
	gone(t, p.server)
	ok(t, revoked.Close())
}
