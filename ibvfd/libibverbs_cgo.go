// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd

/*
#include <stdlib.h>
#include "verbs_lib.h"
*/
import "C"

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/internal/dl"
)

// soname is the library that every rdma-core since 2006 installs.
const soname = "libibverbs.so.1"

// libibverbs is verbs through the library, which stays loaded.
type libibverbs struct {
	c    *C.struct_vb_lib // C memory
	path string
}

var loaded dl.Once[verbs]

func library() (verbs, error) { return loaded.Get(loadLibrary) }

func loadLibrary() (verbs, error) {
	noScatterToCQE()
	lib, err := dl.Open(soname)
	if err != nil {
		return nil, notLoaded(err)
	}
	c := (*C.struct_vb_lib)(C.calloc(1, C.sizeof_struct_vb_lib))
	if c == nil {
		return nil, failed("load", soname, unix.ENOMEM)
	}
	for _, s := range symbols(c) {
		addr, err := lib.Sym(s.name, s.version)
		if err != nil && !s.optional {
			C.free(unsafe.Pointer(c))
			return nil, &dmabuf.Error{
				Op: "load", Device: soname, Detail: fmt.Sprintf("it has no %s@%s", s.name, s.version), Err: err,
				Remedy: "install libibverbs of rdma-core 16 or newer",
			}
		}
		*s.slot = addr
	}
	return &libibverbs{c: c, path: dl.PathOf(*slot(&c.get_device_list))}, nil
}

// notLoaded tells a library that is not installed from one that does not load.
func notLoaded(err error) error {
	e := &dmabuf.Error{
		Op: "load", Device: soname, Err: ErrNoLibrary,
		Remedy: "install it (Debian: apt-get install libibverbs1 ibverbs-providers)",
	}
	var why *dl.Error
	if errors.As(err, &why) && !errors.Is(err, fs.ErrNotExist) {
		e.Detail, e.Err, e.Remedy = why.Reason, ErrBrokenLibrary, why.Remedy()
	}
	return e
}

type symbol struct {
	name, version string
	slot          *unsafe.Pointer
	optional      bool
}

// slot is where a function's address goes.
func slot[F any](field *F) *unsafe.Pointer { return (*unsafe.Pointer)(unsafe.Pointer(field)) }

// symbols lists what is looked up, with versions as in rdma-core's
// libibverbs.map. The 1.0 versions of the same names have other structures.
func symbols(c *C.struct_vb_lib) []symbol {
	return []symbol{
		{"ibv_get_device_list", "IBVERBS_1.1", slot(&c.get_device_list), false},
		{"ibv_free_device_list", "IBVERBS_1.1", slot(&c.free_device_list), false},
		{"ibv_get_device_name", "IBVERBS_1.1", slot(&c.get_device_name), false},
		{"ibv_open_device", "IBVERBS_1.1", slot(&c.open_device), false},
		{"ibv_close_device", "IBVERBS_1.1", slot(&c.close_device), false},
		{"ibv_query_device", "IBVERBS_1.1", slot(&c.query_device), false},
		{"ibv_query_port", "IBVERBS_1.1", slot(&c.query_port), false},
		{"ibv_alloc_pd", "IBVERBS_1.1", slot(&c.alloc_pd), false},
		{"ibv_dealloc_pd", "IBVERBS_1.1", slot(&c.dealloc_pd), false},
		{"ibv_reg_mr", "IBVERBS_1.1", slot(&c.reg_mr), false},
		{"ibv_rereg_mr", "IBVERBS_1.1", slot(&c.rereg_mr), false},
		{"ibv_dereg_mr", "IBVERBS_1.1", slot(&c.dereg_mr), false},
		{"ibv_create_cq", "IBVERBS_1.1", slot(&c.create_cq), false},
		{"ibv_destroy_cq", "IBVERBS_1.1", slot(&c.destroy_cq), false},
		{"ibv_create_qp", "IBVERBS_1.1", slot(&c.create_qp), false},
		{"ibv_modify_qp", "IBVERBS_1.1", slot(&c.modify_qp), false},
		{"ibv_query_qp", "IBVERBS_1.1", slot(&c.query_qp), false},
		{"ibv_destroy_qp", "IBVERBS_1.1", slot(&c.destroy_qp), false},
		{"ibv_create_comp_channel", "IBVERBS_1.0", slot(&c.create_comp_channel), false},
		{"ibv_destroy_comp_channel", "IBVERBS_1.0", slot(&c.destroy_comp_channel), false},
		{"ibv_get_cq_event", "IBVERBS_1.1", slot(&c.get_cq_event), false},
		{"ibv_ack_cq_events", "IBVERBS_1.1", slot(&c.ack_cq_events), false},
		{"ibv_get_async_event", "IBVERBS_1.1", slot(&c.get_async_event), false},
		{"ibv_ack_async_event", "IBVERBS_1.1", slot(&c.ack_async_event), false},
		{"ibv_create_srq", "IBVERBS_1.1", slot(&c.create_srq), false},
		{"ibv_modify_srq", "IBVERBS_1.1", slot(&c.modify_srq), false},
		{"ibv_query_srq", "IBVERBS_1.1", slot(&c.query_srq), false},
		{"ibv_destroy_srq", "IBVERBS_1.1", slot(&c.destroy_srq), false},
		{"ibv_create_ah", "IBVERBS_1.1", slot(&c.create_ah), false},
		{"ibv_create_ah_from_wc", "IBVERBS_1.1", slot(&c.create_ah_from_wc), false},
		{"ibv_destroy_ah", "IBVERBS_1.1", slot(&c.destroy_ah), false},
		{"ibv_qp_to_qp_ex", "IBVERBS_1.6", slot(&c.qp_to_qp_ex), true},
		{"ibv_reg_mr_iova2", "IBVERBS_1.8", slot(&c.reg_mr_iova2), true},
		{"_ibv_query_gid_table", "IBVERBS_1.11", slot(&c.query_gid_table), true},
		{"ibv_reg_dmabuf_mr", "IBVERBS_1.12", slot(&c.reg_dmabuf_mr), true},
	}
}

// Version names the libibverbs in use with its version and file, or says why
// there is none.
func Version() string {
	v, err := library()
	if err != nil {
		return err.Error()
	}
	return v.version()
}

// version reads it from the file's name: libibverbs.so.1.14.44.0, in which the
// third number is rdma-core's.
func (l *libibverbs) version() string {
	if _, v, ok := strings.Cut(filepath.Base(l.path), ".so."); ok {
		return fmt.Sprintf("libibverbs %s (%s)", v, l.path)
	}
	return "libibverbs (" + l.path + ")"
}

// result turns a vb_ function's answer into an error.
func result(rc C.int) error {
	if rc == 0 {
		return nil
	}
	return unix.Errno(rc)
}

func (l *libibverbs) open(name string) (verbsContext, error) {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	var ctx *C.struct_vb_context
	if err := result(C.vb_open(l.c, c, &ctx)); err != nil {
		if errors.Is(err, unix.ENODEV) {
			return nil, fmt.Errorf("%w: %w", ibdev.ErrNoDevice, err)
		}
		return nil, err
	}
	return &libContext{l, ctx}, nil
}

type libContext struct {
	lib *libibverbs
	c   *C.struct_vb_context
}

func (c *libContext) cmdFD() int { return int(c.c.cmd_fd) }

func (c *libContext) queryDevice() (ibdev.DeviceAttr, error) {
	var a C.struct_vb_device_attr
	if err := result(C.vb_query_device(c.lib.c, c.c, &a)); err != nil {
		return ibdev.DeviceAttr{}, err
	}
	var guid [8]byte
	binary.NativeEndian.PutUint64(guid[:], uint64(a.node_guid))
	return ibdev.DeviceAttr{
		Firmware: C.GoString(&a.fw_ver[0]), NodeGUID: binary.BigEndian.Uint64(guid[:]),
		VendorID: uint32(a.vendor_id), VendorPart: uint32(a.vendor_part_id),
		MaxMRSize: uint64(a.max_mr_size), PageSizeCap: uint64(a.page_size_cap),
		MaxMR: int(a.max_mr), MaxPD: int(a.max_pd), MaxQP: int(a.max_qp), MaxQPWR: int(a.max_qp_wr),
		MaxSGE: int(a.max_sge), MaxSGERead: int(a.max_sge_rd), MaxCQ: int(a.max_cq), MaxCQE: int(a.max_cqe),
		MaxSRQ: int(a.max_srq), MaxSRQWR: int(a.max_srq_wr), MaxSRQSGE: int(a.max_srq_sge), MaxAH: int(a.max_ah), MaxMW: int(a.max_mw),
		MaxReadAtomic: int(a.max_qp_rd_atom), MaxInitReadAtom: int(a.max_qp_init_rd_atom),
		Atomic: a.atomic_cap != 0, Ports: int(a.phys_port_cnt),
	}, nil
}

func (c *libContext) queryPort(port int) (ibdev.PortAttr, error) {
	var a C.struct_vb_port_attr
	if err := result(C.vb_query_port(c.lib.c, c.c, C.uint8_t(port), &a)); err != nil {
		return ibdev.PortAttr{}, err
	}
	return ibdev.PortAttr{
		State: ibdev.PortState(a.state), MTU: ibdev.MTUBytes(int(a.active_mtu)), MaxMTU: ibdev.MTUBytes(int(a.max_mtu)),
		LID: uint16(a.lid), GIDs: int(a.gid_tbl_len), MaxMsg: uint32(a.max_msg_sz), LinkLayer: ibdev.LinkLayer(a.link_layer),
	}, nil
}

func (c *libContext) gids() ([]ibdev.GID, []int, error) {
	var table *C.struct_vb_gid_entry
	n := C.vb_query_gid_table(c.lib.c, c.c, &table)
	defer C.free(unsafe.Pointer(table))
	if n < 0 {
		return nil, nil, unix.Errno(-n)
	}
	var gids []ibdev.GID
	var ports []int
	for _, e := range unsafe.Slice(table, int(n)) {
		gids = append(gids, ibdev.GID{Index: int(e.gid_index), GID: e.gid, Type: ibdev.GIDType(e.gid_type)})
		ports = append(ports, int(e.port_num))
	}
	return gids, ports, nil
}

func (c *libContext) allocPD() (verbsPD, error) {
	var pd *C.struct_vb_pd
	if err := result(C.vb_alloc_pd(c.lib.c, c.c, &pd)); err != nil {
		return nil, err
	}
	return &libPD{c, pd}, nil
}

func (c *libContext) close() error { return result(C.vb_close(c.lib.c, c.c)) }

type libPD struct {
	ctx *libContext
	c   *C.struct_vb_pd
}

func (p *libPD) handle() uint32 { return uint32(p.c.handle) }

func (p *libPD) dealloc() error { return result(C.vb_dealloc_pd(p.ctx.lib.c, p.c)) }

func (p *libPD) regHost(addr, length, iova uint64, access Access) (verbsMR, error) {
	var mr *C.struct_vb_mr
	if err := result(C.vb_reg_mr(p.ctx.lib.c, p.c, C.uint64_t(addr), C.uint64_t(length), C.uint64_t(iova), C.uint32_t(access), &mr)); err != nil {
		return nil, err
	}
	return &libMR{p.ctx.lib, mr}, nil
}

func (p *libPD) regDMABuf(offset, length, iova uint64, fd int, access Access) (verbsMR, error) {
	var mr *C.struct_vb_mr
	if err := result(C.vb_reg_dmabuf_mr(p.ctx.lib.c, p.c, C.uint64_t(offset), C.uint64_t(length), C.uint64_t(iova), C.int(fd), C.uint32_t(access), &mr)); err != nil {
		return nil, err
	}
	return &libMR{p.ctx.lib, mr}, nil
}

type libMR struct {
	lib *libibverbs
	c   *C.struct_vb_mr
}

func (m *libMR) keys() (lkey, rkey, handle uint32) {
	return uint32(m.c.lkey), uint32(m.c.rkey), uint32(m.c.handle)
}

func (m *libMR) rereg(pd verbsPD, access *Access) error {
	var to *C.struct_vb_pd
	if pd != nil {
		to = pd.(*libPD).c // of the same context: Rereg has checked it
	}
	var change C.int
	var bits C.uint32_t
	if access != nil {
		change, bits = 1, C.uint32_t(*access)
	}
	return result(C.vb_rereg_mr(m.lib.c, m.c, to, change, bits))
}

func (m *libMR) moved(pd verbsPD) { m.c.pd = pd.(*libPD).c }

func (m *libMR) dereg() error { return result(C.vb_dereg_mr(m.lib.c, m.c)) }

func (p *libPD) createQP(init *qpInit) (verbsQP, error) {
	// The CQs are this library's own: CreateQP has checked that they belong to
	// the same context.
	a := C.struct_vb_qp_init_attr{
		send_cq: init.send.(*libCQ).c,
		recv_cq: init.recv.(*libCQ).c,
		cap: C.struct_vb_qp_cap{
			max_send_wr: C.uint32_t(init.sendDepth), max_recv_wr: C.uint32_t(init.recvDepth),
			max_send_sge: C.uint32_t(init.sendSGE), max_recv_sge: C.uint32_t(init.recvSGE),
			max_inline_data: C.uint32_t(init.inline),
		},
		qp_type: C.int(init.typ),
	}
	if init.srq != nil {
		a.srq = init.srq.(*libSRQ).c
	}
	if init.signalAll {
		a.sq_sig_all = 1
	}
	var qp *C.struct_vb_qp
	var ex *C.struct_vb_qp_ex
	var err error
	var ops C.uint64_t
	if init.atomicWrite {
		ops |= C.VB_QP_EX_WITH_ATOMIC_WRITE
	}
	if init.flush {
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
	init.sendDepth, init.recvDepth = max(init.sendDepth, int(a.cap.max_send_wr)), max(init.recvDepth, int(a.cap.max_recv_wr))
	init.sendSGE, init.recvSGE = max(init.sendSGE, int(a.cap.max_send_sge)), max(init.recvSGE, int(a.cap.max_recv_sge))
	init.inline = max(init.inline, int(a.cap.max_inline_data))
	return &libQP{p.ctx, qp, ex, *init}, nil
}

type libQP struct {
	ctx  *libContext
	c    *C.struct_vb_qp
	ex   *C.struct_vb_qp_ex // nil without atomic writes and FLUSH
	init qpInit             // as granted
}

func (q *libQP) identity() uintptr { return uintptr(unsafe.Pointer(q.c)) }

func (q *libQP) num() uint32 { return uint32(q.c.qp_num) }

func (q *libQP) queues() (*sendQueue, *recvQueue, error) {
	send, err := newSendQueue(unsafe.Pointer(q.c), *slot(&q.ctx.c.ops.post_send), q.init.sendDepth, q.init.sendSGE)
	if err != nil {
		return nil, nil, err
	}
	send.extend(unsafe.Pointer(q.ex), q.init.atomicWrite, q.init.flush)
	if q.init.srq != nil {
		return send, nil, nil
	}
	recv, err := newRecvQueue(unsafe.Pointer(q.c), *slot(&q.ctx.c.ops.post_recv), q.init.recvDepth, q.init.recvSGE)
	if err != nil {
		send.free()
		return nil, nil, err
	}
	return send, recv, nil
}

func (q *libQP) destroy() error { return result(C.vb_destroy_qp(q.ctx.lib.c, q.c)) }

func (q *libQP) state() (QPState, error) {
	var s C.int
	err := result(C.vb_qp_state(q.ctx.lib.c, q.c, &s))
	return QPState(s), err
}

// modify sets exactly the attributes that the transition requires
// (ibv_modify_qp(3), tables for IBV_QPT_RC and IBV_QPT_UD).
func (q *libQP) modify(m *qpModify) error {
	a := C.struct_vb_qp_attr{qp_state: C.int(m.state)}
	mask := C.int(C.VB_QP_STATE)
	switch {
	case m.state == StateInit:
		a.port_num = C.uint8_t(m.path.port)
		a.pkey_index = C.uint16_t(m.pkeyIndex)
		mask |= C.VB_QP_PORT | C.VB_QP_PKEY_INDEX
		if m.typ == UD {
			a.qkey = C.uint32_t(m.qkey)
			mask |= C.VB_QP_QKEY
		} else {
			a.qp_access_flags = C.uint(m.access)
			mask |= C.VB_QP_ACCESS_FLAGS
		}
	case m.state == StateRTR && m.typ != UD:
		a.path_mtu = C.int(ibdev.MTUEnum(m.mtu))
		a.dest_qp_num = C.uint32_t(m.remoteQPN)
		a.rq_psn = C.uint32_t(m.remotePSN)
		a.max_dest_rd_atomic = C.uint8_t(m.maxDestRead)
		a.min_rnr_timer = C.uint8_t(m.minRNRTimer)
		a.ah_attr = pathTo(&m.path)
		mask |= C.VB_QP_AV | C.VB_QP_PATH_MTU | C.VB_QP_DEST_QPN | C.VB_QP_RQ_PSN | C.VB_QP_MAX_DEST_RD_ATOMIC | C.VB_QP_MIN_RNR_TIMER
	case m.state == StateRTS && m.resume:
		a.cur_qp_state = C.int(m.current)
		mask |= C.VB_QP_CUR_STATE
	case m.state == StateRTS:
		a.sq_psn = C.uint32_t(m.psn)
		mask |= C.VB_QP_SQ_PSN
		if m.typ != UD {
			a.timeout = C.uint8_t(m.timeout)
			a.retry_cnt = C.uint8_t(m.retryCount)
			a.rnr_retry = C.uint8_t(m.rnrRetry)
			a.max_rd_atomic = C.uint8_t(m.maxRead)
			mask |= C.VB_QP_TIMEOUT | C.VB_QP_RETRY_CNT | C.VB_QP_RNR_RETRY | C.VB_QP_MAX_QP_RD_ATOMIC
		}
	case m.state == StateSQD && m.notify:
		a.en_sqd_async_notify = 1
		mask |= C.VB_QP_EN_SQD_ASYNC_NOTIFY
	}
	return result(C.vb_modify_qp(q.ctx.lib.c, q.c, &a, mask))
}

func pathTo(p *pathAttr) C.struct_vb_ah_attr {
	a := C.struct_vb_ah_attr{
		dlid: C.uint16_t(p.lid), sl: C.uint8_t(p.sl), src_path_bits: C.uint8_t(p.srcPathBits),
		static_rate: C.uint8_t(p.staticRate), port_num: C.uint8_t(p.port),
	}
	if p.global {
		a.is_global = 1
		a.grh.dgid = p.gid
		a.grh.flow_label = C.uint32_t(p.flowLabel)
		a.grh.sgid_index = C.uint8_t(p.gidIndex)
		a.grh.hop_limit = C.uint8_t(p.hopLimit)
		a.grh.traffic_class = C.uint8_t(p.class)
	}
	return a
}
