// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/gpurdma/gpurdma/internal/rdmanl"
)

// mrNumbers caches a dump of the device's MRs. An MR that was registered
// before the dump and is still open is in it under its own keys: two live MRs
// of one process and device cannot share an lkey.
type mrNumbers struct {
	serial atomic.Uint64

	mu     sync.Mutex
	upTo   uint64 // MRs up to this serial are in byKeys
	byKeys map[mrKeys]uint32
	dump   func(device string) ([]rdmanl.MR, error) // rdmanl.MRs, except in tests
}

type mrKeys struct{ lkey, rkey uint32 }

// registered counts a registration.
func (n *mrNumbers) registered() uint64 { return n.serial.Add(1) }

// find is the number of the registration with that serial and those keys.
func (n *mrNumbers) find(device string, serial uint64, keys mrKeys) (number uint32, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.byKeys == nil || serial > n.upTo {
		n.refresh(device)
	}
	number, ok = n.byKeys[keys]
	return number, ok
}

func (n *mrNumbers) refresh(device string) {
	dump := n.dump
	if dump == nil {
		dump = rdmanl.MRs
	}
	upTo := n.serial.Load()
	mrs, err := dump(device)
	n.byKeys = map[mrKeys]uint32{}
	n.upTo = upTo
	if err != nil {
		return // not known, which is what an empty map says
	}
	twice := map[mrKeys]bool{}
	for _, mr := range mrs {
		if !mr.KeysKnown || !ownThread(mr.PID) {
			continue
		}
		k := mrKeys{mr.LKey, mr.RKey}
		if _, dup := n.byKeys[k]; dup {
			twice[k] = true
		}
		n.byKeys[k] = mr.Number
	}
	for k := range twice { // two contexts' MRs on a driver with keys per context
		delete(n.byKeys, k)
	}
}

// ownThread reports whether id is a thread of this process: RDMA netlink shows
// the thread that made a resource.
func ownThread(id uint32) bool {
	_, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", id))
	return err == nil
}
