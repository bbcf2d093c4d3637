// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/gpurdma/gpurdma/internal/rdmanl"
)

// MRID identifies an MR for tracers and for `rdma resource show mr`.
type MRID struct {
	Device string `json:"device"`
	// Number is the kernel's mrn. NumberKnown is false if it could not be told
	// for certain: RDMA netlink shows the keys, by which the MR is found, to
	// CAP_NET_ADMIN only.
	Number      uint32 `json:"mrn"`
	NumberKnown bool   `json:"mrn_known"`
	LKey        uint32 `json:"lkey"`
	RKey        uint32 `json:"rkey"`
	PID         int    `json:"pid"`
	Handle      uint32 `json:"handle"` // uverbs object handle, of the context's descriptor
}

// ID returns the MR's identity. It asks RDMA netlink for the device's MRs,
// once for all MRs registered so far.
func (m *MR) ID() MRID {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.reg()
	id := MRID{Device: r.pd.ctx.name, LKey: r.made.lkey, RKey: r.made.rkey, PID: os.Getpid(), Handle: r.made.handle}
	if m.closed {
		return id // deregistered: its keys may be another MR's by now
	}
	id.Number, id.NumberKnown = r.pd.ctx.numbers.find(r)
	return id
}

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

func (n *mrNumbers) find(r *registration) (number uint32, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.byKeys == nil || r.serial > n.upTo {
		n.refresh(r.pd.ctx.name)
	}
	number, ok = n.byKeys[mrKeys{r.made.lkey, r.made.rkey}]
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
