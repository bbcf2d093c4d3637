// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package libibverbs

/*
#include <stdlib.h>
#include "verbs_lib.h"
*/
import "C"

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
)

type libContext struct {
	lib *libibverbs
	c   *C.struct_vb_context
}

func (c *libContext) CmdFD() int { return int(c.c.cmd_fd) }

func (c *libContext) QueryDevice() (ibdev.DeviceAttr, error) {
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

func (c *libContext) QueryPort(port int) (ibdev.PortAttr, error) {
	var a C.struct_vb_port_attr
	if err := result(C.vb_query_port(c.lib.c, c.c, C.uint8_t(port), &a)); err != nil {
		return ibdev.PortAttr{}, err
	}
	return ibdev.PortAttr{
		State: ibdev.PortState(a.state), MTU: ibdev.MTUBytes(int(a.active_mtu)), MaxMTU: ibdev.MTUBytes(int(a.max_mtu)),
		LID: uint16(a.lid), GIDs: int(a.gid_tbl_len), MaxMsg: uint32(a.max_msg_sz), LinkLayer: ibdev.LinkLayer(a.link_layer),
	}, nil
}

func (c *libContext) GIDs() ([]ibdev.GID, []int, error) {
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

func (c *libContext) AllocPD() (PD, error) {
	var pd *C.struct_vb_pd
	if err := result(C.vb_alloc_pd(c.lib.c, c.c, &pd)); err != nil {
		return nil, err
	}
	return &libPD{c, pd}, nil
}

func (c *libContext) Close() error { return result(C.vb_close(c.lib.c, c.c)) }

type libPD struct {
	ctx *libContext
	c   *C.struct_vb_pd
}

func (p *libPD) Handle() uint32 { return uint32(p.c.handle) }

func (p *libPD) Dealloc() error { return result(C.vb_dealloc_pd(p.ctx.lib.c, p.c)) }

func (p *libPD) RegHost(addr, length, iova uint64, access uint32) (MR, error) {
	var mr *C.struct_vb_mr
	if err := result(C.vb_reg_mr(p.ctx.lib.c, p.c, C.uint64_t(addr), C.uint64_t(length), C.uint64_t(iova), C.uint32_t(access), &mr)); err != nil {
		return nil, err
	}
	return &libMR{p.ctx.lib, mr, callRegMR}, nil
}

func (p *libPD) RegDMABuf(offset, length, iova uint64, fd int, access uint32) (MR, error) {
	var mr *C.struct_vb_mr
	var ex C.int
	if err := result(C.vb_reg_dmabuf_mr(p.ctx.lib.c, p.c, C.uint64_t(offset), C.uint64_t(length), C.uint64_t(iova), C.int(fd), C.uint32_t(access), &mr, &ex)); err != nil {
		return nil, err
	}
	call := callRegDMABuf
	if ex != 0 {
		call = callRegMREx
	}
	return &libMR{p.ctx.lib, mr, call}, nil
}

type libMR struct {
	lib  *libibverbs
	c    *C.struct_vb_mr
	call string
}

// The functions that register, as people know them.
const (
	callRegMR         = "ibv_reg_mr"
	callRegDMABuf     = "ibv_reg_dmabuf_mr"
	callRegMREx       = "ibv_reg_mr_ex"
	callRegBuf        = "ibv_reg_buf_mr"
	callRegDataDirect = "mlx5dv_reg_dmabuf_mr"
)

func (m *libMR) Call() string { return m.call }

func (m *libMR) Keys() (lkey, rkey, handle uint32) {
	return uint32(m.c.lkey), uint32(m.c.rkey), uint32(m.c.handle)
}

func (m *libMR) Rereg(pd PD, access *uint32) error {
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

func (m *libMR) Moved(pd PD) { m.c.pd = pd.(*libPD).c }

func (m *libMR) Dereg() error { return result(C.vb_dereg_mr(m.lib.c, m.c)) }
