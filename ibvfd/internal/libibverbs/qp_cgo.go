// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package libibverbs

// #include "verbs_lib.h"
import "C"

import (
	"unsafe"

	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
)

func (p *libPD) CreateQP(init *QPInit) (QP, error) {
	// The CQs are this library's own: CreateQP has checked that they belong to
	// the same context.
	a := C.struct_vb_qp_init_attr{
		send_cq: init.Send.(*libCQ).c,
		recv_cq: init.Recv.(*libCQ).c,
		cap: C.struct_vb_qp_cap{
			max_send_wr: C.uint32_t(init.SendDepth), max_recv_wr: C.uint32_t(init.RecvDepth),
			max_send_sge: C.uint32_t(init.SendSGE), max_recv_sge: C.uint32_t(init.RecvSGE),
			max_inline_data: C.uint32_t(init.Inline),
		},
		qp_type: C.int(init.Type),
	}
	if init.SRQ != nil {
		a.srq = init.SRQ.(*libSRQ).c
	}
	if init.SignalAll {
		a.sq_sig_all = 1
	}
	var qp *C.struct_vb_qp
	var ex *C.struct_vb_qp_ex
	var err error
	var ops C.uint64_t
	if init.AtomicWrite {
		ops |= C.VB_QP_EX_WITH_ATOMIC_WRITE
	}
	if init.Flush {
		ops |= C.VB_QP_EX_WITH_FLUSH
	}
	if ops != 0 {
		err = result(C.vb_create_qp_ex(p.ctx.lib.c, p.c, &a, ops, &qp, &ex))
	} else {
		err = result(C.vb_create_qp(p.ctx.lib.c, p.c, &a, &qp))
	}
	if err != nil {
		return nil, err
	}
	init.SendDepth, init.RecvDepth = max(init.SendDepth, int(a.cap.max_send_wr)), max(init.RecvDepth, int(a.cap.max_recv_wr))
	init.SendSGE, init.RecvSGE = max(init.SendSGE, int(a.cap.max_send_sge)), max(init.RecvSGE, int(a.cap.max_recv_sge))
	init.Inline = max(init.Inline, int(a.cap.max_inline_data))
	return &libQP{p.ctx, qp, ex, *init}, nil
}

type libQP struct {
	ctx  *libContext
	c    *C.struct_vb_qp
	ex   *C.struct_vb_qp_ex // nil without atomic writes and FLUSH
	init QPInit             // as granted
}

func (q *libQP) Identity() uintptr { return uintptr(unsafe.Pointer(q.c)) }

func (q *libQP) Num() uint32 { return uint32(q.c.qp_num) }

func (q *libQP) Queues() (*SendQueue, *RecvQueue, error) {
	send, err := NewSendQueue(unsafe.Pointer(q.c), *slot(&q.ctx.c.ops.post_send), q.init.SendDepth, q.init.SendSGE)
	if err != nil {
		return nil, nil, err
	}
	send.Extend(unsafe.Pointer(q.ex), q.init.AtomicWrite, q.init.Flush)
	if q.init.SRQ != nil {
		return send, nil, nil
	}
	recv, err := NewRecvQueue(unsafe.Pointer(q.c), *slot(&q.ctx.c.ops.post_recv), q.init.RecvDepth, q.init.RecvSGE)
	if err != nil {
		send.Free()
		return nil, nil, err
	}
	return send, recv, nil
}

func (q *libQP) Destroy() error { return result(C.vb_destroy_qp(q.ctx.lib.c, q.c)) }

func (q *libQP) State() (int, error) {
	var s C.int
	err := result(C.vb_qp_state(q.ctx.lib.c, q.c, &s))
	return int(s), err
}

// Of enum ibv_qp_state and enum ibv_qp_type.
const (
	stateInit = 1
	stateRTR  = 2
	stateRTS  = 3
	stateSQD  = 4
	typeUD    = 4
)

// Modify sets exactly the attributes that the transition requires
// (ibv_modify_qp(3), tables for IBV_QPT_RC and IBV_QPT_UD).
func (q *libQP) Modify(m *QPModify) error {
	a := C.struct_vb_qp_attr{qp_state: C.int(m.State)}
	mask := C.int(C.VB_QP_STATE)
	switch {
	case m.State == stateInit:
		a.port_num = C.uint8_t(m.Path.Port)
		a.pkey_index = C.uint16_t(m.PKeyIndex)
		mask |= C.VB_QP_PORT | C.VB_QP_PKEY_INDEX
		if m.Type == typeUD {
			a.qkey = C.uint32_t(m.QKey)
			mask |= C.VB_QP_QKEY
		} else {
			a.qp_access_flags = C.uint(m.Access)
			mask |= C.VB_QP_ACCESS_FLAGS
		}
	case m.State == stateRTR && m.Type != typeUD:
		a.path_mtu = C.int(ibdev.MTUEnum(m.MTU))
		a.dest_qp_num = C.uint32_t(m.RemoteQPN)
		a.rq_psn = C.uint32_t(m.RemotePSN)
		a.max_dest_rd_atomic = C.uint8_t(m.MaxDestRead)
		a.min_rnr_timer = C.uint8_t(m.MinRNRTimer)
		a.ah_attr = pathTo(&m.Path)
		mask |= C.VB_QP_AV | C.VB_QP_PATH_MTU | C.VB_QP_DEST_QPN | C.VB_QP_RQ_PSN | C.VB_QP_MAX_DEST_RD_ATOMIC | C.VB_QP_MIN_RNR_TIMER
	case m.State == stateRTS && m.Resume:
		a.cur_qp_state = C.int(m.Current)
		mask |= C.VB_QP_CUR_STATE
	case m.State == stateRTS:
		a.sq_psn = C.uint32_t(m.PSN)
		mask |= C.VB_QP_SQ_PSN
		if m.Type != typeUD {
			a.timeout = C.uint8_t(m.Timeout)
			a.retry_cnt = C.uint8_t(m.RetryCount)
			a.rnr_retry = C.uint8_t(m.RNRRetry)
			a.max_rd_atomic = C.uint8_t(m.MaxRead)
			mask |= C.VB_QP_TIMEOUT | C.VB_QP_RETRY_CNT | C.VB_QP_RNR_RETRY | C.VB_QP_MAX_QP_RD_ATOMIC
		}
	case m.State == stateSQD && m.Notify:
		a.en_sqd_async_notify = 1
		mask |= C.VB_QP_EN_SQD_ASYNC_NOTIFY
	}
	return result(C.vb_modify_qp(q.ctx.lib.c, q.c, &a, mask))
}

func pathTo(p *Path) C.struct_vb_ah_attr {
	a := C.struct_vb_ah_attr{
		dlid: C.uint16_t(p.LID), sl: C.uint8_t(p.SL), src_path_bits: C.uint8_t(p.SrcPathBits),
		static_rate: C.uint8_t(p.StaticRate), port_num: C.uint8_t(p.Port),
	}
	if p.Global {
		a.is_global = 1
		a.grh.dgid = p.GID
		a.grh.flow_label = C.uint32_t(p.FlowLabel)
		a.grh.sgid_index = C.uint8_t(p.GIDIndex)
		a.grh.hop_limit = C.uint8_t(p.HopLimit)
		a.grh.traffic_class = C.uint8_t(p.Class)
	}
	return a
}
