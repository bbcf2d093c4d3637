// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/ibvfd/internal/libibverbs"
)

// CreateAH makes an address handle to remote, of which GID, or LID on
// InfiniBand, are used, for this queue pair and all others of its PD, port and
// GID. Over RoCE this looks the peer's MAC address up, which may wait for the
// network. Keep it open until the sends that name it have completed.
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

// ReplyAH makes an address handle to the sender of a message: wc is its
// completion, and grh the first GRHLen bytes of the receive.
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
