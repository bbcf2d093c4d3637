// SPDX-License-Identifier: Apache-2.0

package mrnumbers

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/gpurdma/gpurdma/internal/rdmanl"
)

// Cache has a dump of the device's MRs. An MR that was registered
// before the dump and is still open is in it under its own keys: two live MRs
// of one process and device cannot share an lkey.
type Cache struct {
	serial atomic.Uint64

	mu     sync.Mutex
	upTo   uint64 // MRs up to this serial are in byKeys
	byKeys map[mrKeys]uint32
	Dump   func(device string) ([]rdmanl.MR, error) // rdmanl.MRs, except in tests
}

type mrKeys struct{ lkey, rkey uint32 }

// Registered counts a registration.
func (n *Cache) Registered() uint64 { return n.serial.Add(1) }

// Find is the number of the registration with that serial and those keys.
func (n *Cache) Find(device string, serial uint64, lkey, rkey uint32) (number uint32, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.byKeys == nil || serial > n.upTo {
		n.refresh(device)
	}
	number, ok = n.byKeys[mrKeys{lkey, rkey}]
	return number, ok
}

func (n *Cache) refresh(device string) {
	dump := n.Dump
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
