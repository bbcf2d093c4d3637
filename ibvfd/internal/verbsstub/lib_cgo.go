// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package verbsstub

/*
#cgo CFLAGS: -I${SRCDIR}/../..
#include <stdlib.h>
#include "verbs_lib.h"

#include <errno.h>

static struct vb_qp_attr modified;
static int modified_mask;
static struct vb_ah_attr ah_made;

static int record_modify(struct vb_qp *qp, struct vb_qp_attr *attr, int mask)
{
	modified = *attr;
	modified_mask = mask;
	return 0;
}

static struct vb_ah *record_ah(struct vb_pd *pd, struct vb_ah_attr *attr)
{
	static struct vb_ah ah;

	ah_made = *attr;
	return &ah;
}

struct rereg {
	int flags;
	int moves; // a PD was given
	int memory; // an address or a length was
	int access;
};
static struct rereg reregistered;
static int rereg_answer;

// A negative answer is an enum ibv_rereg_mr_err_code, with errno.
static int record_rereg(struct vb_mr *mr, int flags, struct vb_pd *pd,
			void *addr, size_t length, int access)
{
	reregistered = (struct rereg){ flags, !!pd, addr || length, access };
	if (rereg_answer)
		errno = rereg_answer;
	return rereg_answer ? -4 : 0;
}

static struct vb_lib lib = {
	.modify_qp = record_modify,
	.create_ah = record_ah,
	.rereg_mr = record_rereg,
};
static struct rereg last_rereg(void) { return reregistered; }
static void answer_rereg(int err) { rereg_answer = err; }

static struct vb_qp_attr last_modified(void) { return modified; }
static int last_mask(void) { return modified_mask; }
static struct vb_ah_attr last_ah(void) { return ah_made; }
static void *lib_ptr(void) { return &lib; }
*/
import "C"

import "unsafe"

// Lib is a struct vb_lib whose modify_qp, create_ah and rereg_mr record what
// they are given. One test at a time may use it.
func Lib() unsafe.Pointer { return C.lib_ptr() }

// Path is a struct ibv_ah_attr as C reads it.
type Path struct {
	DLID                            uint16
	SL, SrcPathBits, StaticRate     uint8
	Global                          bool
	Port                            uint8
	DGID                            [16]byte
	FlowLabel                       uint32
	SGIDIndex, HopLimit, TrafficCls uint8
}

// Modify is a struct ibv_qp_attr with its mask, as C reads them.
type Modify struct {
	Mask                                   int
	State, Current                         int
	MTU                                    int
	QKey, RQPSN, SQPSN, DestQPN, Access    uint32
	Path                                   Path
	PKeyIndex                              uint16
	SQDNotify, MaxRead, MaxDestRead        uint8
	MinRNRTimer, Port, Timeout, Retry, RNR uint8
}

func pathOf(a C.struct_vb_ah_attr) Path {
	return Path{
		DLID: uint16(a.dlid), SL: uint8(a.sl), SrcPathBits: uint8(a.src_path_bits), StaticRate: uint8(a.static_rate),
		Global: a.is_global != 0, Port: uint8(a.port_num), DGID: a.grh.dgid, FlowLabel: uint32(a.grh.flow_label),
		SGIDIndex: uint8(a.grh.sgid_index), HopLimit: uint8(a.grh.hop_limit), TrafficCls: uint8(a.grh.traffic_class),
	}
}

// Modified is what modify_qp was given last.
func Modified() Modify {
	a := C.last_modified()
	return Modify{
		Mask: int(C.last_mask()), State: int(a.qp_state), Current: int(a.cur_qp_state), MTU: int(a.path_mtu),
		QKey: uint32(a.qkey), RQPSN: uint32(a.rq_psn), SQPSN: uint32(a.sq_psn), DestQPN: uint32(a.dest_qp_num),
		Access: uint32(a.qp_access_flags), Path: pathOf(a.ah_attr), PKeyIndex: uint16(a.pkey_index),
		SQDNotify: uint8(a.en_sqd_async_notify), MaxRead: uint8(a.max_rd_atomic), MaxDestRead: uint8(a.max_dest_rd_atomic),
		MinRNRTimer: uint8(a.min_rnr_timer), Port: uint8(a.port_num), Timeout: uint8(a.timeout), Retry: uint8(a.retry_cnt), RNR: uint8(a.rnr_retry),
	}
}

// AHMade is what create_ah was given last.
func AHMade() Path { return pathOf(C.last_ah()) }

// Rereg is what rereg_mr was given last.
type Rereg struct {
	Flags  int
	Moves  bool // to a PD
	Memory bool // with an address or a length
	Access uint32
}

// Reregistered is what rereg_mr was given last.
func Reregistered() Rereg {
	r := C.last_rereg()
	return Rereg{int(r.flags), r.moves != 0, r.memory != 0, uint32(r.access)}
}

// AnswerRereg makes rereg_mr fail with that errno; 0 is success.
func AnswerRereg(errno int) { C.answer_rereg(C.int(errno)) }

// Getenv is the environment as C sees it.
func Getenv(name string) string {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	return C.GoString(C.getenv(c))
}
