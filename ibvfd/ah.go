// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/ibvfd/internal/libibverbs"
)

// GRHLen is the size of a global route header (GRH) in bytes. Each receive of a UD queue pair
// begins with that many bytes. They hold a GRH only if the packet had one, which [WCWithGRH]
// says. Over RoCE v2 with IPv4 the last 20 of them hold the IPv4 header.
const GRHLen = 40

// PathAttr chooses how packets travel to a peer. A field that is 0 takes its default.
type PathAttr struct {
	HopLimit     uint8  // default 64
	TrafficClass uint8  // over RoCE v2: the IP header's TOS, or traffic class
	FlowLabel    uint32 // 20 bits
	SL           uint8  // service level: 0 to 15, over RoCE 0 to 7
	SrcPathBits  uint8  // InfiniBand only: bits that the port adds to its base LID
	StaticRate   uint8  // enum ibv_rate; 0 is the port's own rate
	// Global adds a GRH even if the peer has a LID. Packets over RoCE, and to a peer without a
	// LID, always have one. For a peer behind an InfiniBand router Endpoint.LID must be the
	// router's. Only the subnet manager knows that LID: rdma_cm asks it ([ManagedAttr]), and
	// this package does not.
	Global bool
}

// AH is an address handle: the path to a peer's port, by which UD queue pairs send.
type AH struct {
	life
	home   *parent       // of the PD
	posts  *sync.RWMutex // of the PD: guards addr
	device string
	v      libibverbs.AH
	addr   uintptr // of the provider's struct ibv_ah; 0 once closed
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

// CreateAH makes an address handle to remote. It uses remote's GID and, on
// InfiniBand, its LID. This queue pair and all others with its PD, port and GID
// may use the handle. Over RoCE the provider or the kernel looks up the peer's MAC address, which
// may wait for the network and fails if the peer does not answer. The caller keeps the handle open
// until the sends that name it have completed, and closes it before the PD.
func (q *QP) CreateAH(remote Endpoint, opt PathAttr) (*AH, error) {
	if err := q.enter(); err != nil {
		return nil, err
	}
	defer q.leave()
	setDefault(&opt.HopLimit, 64)
	path := q.pathTo(remote, opt)
	v, err := q.pd.v.CreateAH(&path)
	if err != nil {
		e := failed("ibv_create_ah", q.pd.ctx.name, err)
		e.Detail = path.String()
		e.Remedy = "check that the peer's address can be reached from this port's network device"
		return nil, e
	}
	return q.newAH(v), nil
}

// ReplyAH makes an address handle to the sender of a message that this queue pair received: wc is
// the message's completion, and grh the first GRHLen bytes of its buffer. The error is EINVAL if
// grh is shorter.
func (q *QP) ReplyAH(wc *WC, grh []byte) (*AH, error) {
	if err := q.enter(); err != nil {
		return nil, err
	}
	defer q.leave()
	e := failed("ibv_create_ah_from_wc", q.pd.ctx.name, unix.EINVAL)
	if len(grh) < GRHLen {
		e.Detail = fmt.Sprintf("a GRH of %d bytes", len(grh))
		e.Remedy = fmt.Sprintf("pass the first %d bytes of the receive", GRHLen)
		return nil, e
	}
	v, err := q.pd.v.ReplyAH(wc.raw(), grh[:GRHLen], q.local.Port)
	if err != nil {
		e.Err = err
		e.Detail = fmt.Sprintf("message from QP %d", wc.SrcQP)
		return nil, e
	}
	return q.newAH(v), nil
}

func (q *QP) newAH(v libibverbs.AH) *AH {
	q.pd.hold(kindAH)
	return &AH{home: &q.pd.parent, posts: &q.pd.ahs, device: q.pd.ctx.name, v: v, addr: v.Identity()}
}

// pathTo is the path from the queue pair's port and GID to remote.
func (q *QP) pathTo(remote Endpoint, opt PathAttr) libibverbs.Path {
	return libibverbs.Path{
		Port: q.local.Port, LID: remote.LID, GID: remote.GID, GIDIndex: q.local.GIDIndex,
		Global:   opt.Global || q.port.LinkLayer != ibdev.LinkInfiniBand || remote.LID == 0,
		HopLimit: opt.HopLimit, Class: opt.TrafficClass, FlowLabel: opt.FlowLabel,
		SL: opt.SL, SrcPathBits: opt.SrcPathBits, StaticRate: opt.StaticRate,
	}
}
