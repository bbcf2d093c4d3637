// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"errors"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"github.com/gpurdma/gpurdma/failure"
)

// A PD closes between registrations or not at all: when Close has succeeded, no
// MR of it is there, and none comes.
func TestCloseAgainstRegistrations(t *testing.T) {
	for range 50 {
		k := &kernel{driver: 3, reg: always(0)}
		c, err := open(newScript(), "roce0", deviceTree(t), k)
		if err != nil {
			t.Fatal(err)
		}
		pd, err := c.AllocPD()
		if err != nil {
			t.Fatal(err)
		}
		attr := MRAttr{Kind: DMABufFD, FD: 5, Length: 1, Access: AccessLocalWrite, Policy: RouteIoctlOnly, SkipChecks: true}
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range rand.IntN(100) { // an end, or Close might never find a gap
					mr, err := pd.RegMR(attr)
					if errors.Is(err, os.ErrClosed) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
					if err := mr.Close(); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		for {
			if err := pd.Close(); err == nil {
				break
			} else if !errors.Is(err, failure.ErrInUse) {
				t.Fatal(err)
			}
		}
		k.mu.Lock()
		live, requests := k.live, k.requests
		k.mu.Unlock()
		all.Wait()
		if live != 0 || k.requests != requests {
			t.Fatalf("the PD was closed with %d MRs, and %d requests came after", live, k.requests-requests)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
