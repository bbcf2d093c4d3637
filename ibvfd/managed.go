// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/ibvfd/internal/libibverbs"
)

// ManagedAttr are a connection's attributes as a connection manager has settled
// them with the peer (rdma_init_qp_attr(3)). Nothing in it has a default.
type ManagedAttr struct {
	Port      int
	PKeyIndex int
	Access    Access // what the peer may do, each MR allowing; no FLUSH if MaxDestRead is 0

	Remote   Endpoint // QPN, PSN, and GID or LID are used; the LID is a router's, if the peer is behind one
	GIDIndex int      // ours, in the port's table
	// PathAttr has Global if there is a GRH, as always over RoCE.
	PathAttr
	MTU         int    // bytes
	PSN         uint32 // first packet sequence number that this side sends
	MinRNRTimer uint8
	MaxDestRead uint8 // READs, atomics and FLUSHes of the peer on their way
	MaxRead     uint8 // ours
	Timeout     uint8
	RetryCount  uint8
	RNRRetry    uint8
}

// ConnectManaged is [QP.Connect] with what a connection manager has settled:
// the queue pair's own port, GID and packet sequence number do not count.
func (q *QP) ConnectManaged(a ManagedAttr) error {
	if err := q.enter(); err != nil {
		return err
	}
	defer q.leave()
	m, err := q.managed(&a)
	if err != nil {
		return err
	}
	return q.bringUp(m)
}

func (q *QP) managed(a *ManagedAttr) (*libibverbs.QPModify, error) {
	e := failed("ibv_modify_qp", q.pd.ctx.name, unix.EINVAL)
	switch {
	case q.attr.Type != RC:
		e.Detail = fmt.Sprintf("QP %d is %v", q.num, q.attr.Type)
		e.Remedy = "use an RC queue pair"
		return nil, e
	case a.Port < 1 || a.Port > 255 || a.GIDIndex < 0 || a.GIDIndex > 255 || ibdev.MTUEnum(a.MTU) < ibdev.MTUMin:
		e.Detail = fmt.Sprintf("port %d, GID index %d, MTU %d", a.Port, a.GIDIndex, a.MTU)
		e.Remedy = "take the attributes from the connection manager when it has settled them"
		return nil, e
	}
	if err := q.checkPKey(a.PKeyIndex); err != nil {
		return nil, err
	}
	if q.checkFlush(a.Access, a.MaxDestRead) != nil {
		a.Access &^= accessFlush // which rdma_cm gives to every peer, unasked
	}
	return &libibverbs.QPModify{
		Type: int(RC), PKeyIndex: a.PKeyIndex, Access: uint32(a.Access),
		Path: libibverbs.Path{
			Port: a.Port, LID: a.Remote.LID, GID: a.Remote.GID, GIDIndex: a.GIDIndex, Global: a.Global,
			HopLimit: a.HopLimit, Class: a.TrafficClass, FlowLabel: a.FlowLabel,
			SL: a.SL, SrcPathBits: a.SrcPathBits, StaticRate: a.StaticRate,
		},
		RemoteQPN: a.Remote.QPN, RemotePSN: a.Remote.PSN, MTU: a.MTU,
		MaxDestRead: a.MaxDestRead, MinRNRTimer: a.MinRNRTimer,
		PSN: a.PSN, Timeout: a.Timeout, RetryCount: a.RetryCount, RNRRetry: a.RNRRetry, MaxRead: a.MaxRead,
	}, nil
}
