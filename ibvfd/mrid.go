// SPDX-License-Identifier: Apache-2.0

package ibvfd

import "os"

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
	id.Number, id.NumberKnown = r.pd.ctx.numbers.find(r.pd.ctx.name, r.serial, mrKeys{r.made.lkey, r.made.rkey})
	return id
}
