// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"github.com/gpurdma/gpurdma/ibvfd/internal/libibverbs"
)

import "sync"

// GRHLen is how many bytes the global route header takes at the start of each
// receive of a UD queue pair, whether or not the packet had one
// ([WCWithGRH] says so). Over RoCE v2 with IPv4 the last 20 of them hold the IPv4
// header.
const GRHLen = 40

// PathAttr tunes the path to a peer. A zero field takes the default.
type PathAttr struct {
	HopLimit     uint8 // default 64
	TrafficClass uint8
	FlowLabel    uint32 // 20 bits
	SL           uint8
	SrcPathBits  uint8
	StaticRate   uint8 // enum ibv_rate
	// Global has a GRH also where the peer has a LID. One behind a router has to be
	// given the router's LID in place of its own, which only the subnet manager
	// knows: nothing here asks it but rdma_cm ([ManagedAttr]). Over RoCE, and to a
	// peer without a LID, there always is a GRH.
	Global bool
}

// AH is an address handle: the path to a port, for sends of UD queue pairs.
type AH struct {
	life
	home   *parent       // the PD
	posts  *sync.RWMutex // the PD's: it guards addr
	device string
	v      libibverbs.AH
	addr   uintptr // of the provider's; 0 once closed
}

// Close destroys the address handle. Closing again does nothing.
func (h *AH) Close() error {
	return h.end(func() error {
		h.posts.Lock() // no work request that names it is on its way to the provider
		defer h.posts.Unlock()
		if err := h.v.Destroy(); err != nil {
			return failed("ibv_destroy_ah", h.device, err)
		}
		h.addr = 0
		h.home.drop(kindAH)
		return nil
	})
}
