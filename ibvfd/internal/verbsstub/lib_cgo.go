// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package verbsstub

/*
#cgo CFLAGS: -I${SRCDIR}/../libibverbs
#include <stdlib.h>
#include "verbs_lib.h"

#include <errno.h>
#include <string.h>

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

// A provider with the extended interface: what its device has, what it knows of
// send_ops_flags, and for which of them it has a function.
static uint64_t device_caps, known_ops, built_ops;
static uint64_t asked_ops;
static int destroyed;

static int query_caps(struct vb_context *ctx, const void *input,
		      struct vb_device_attr_ex *attr, size_t size)
{
	attr->device_cap_flags_ex = device_caps;
	return 0;
}

static void no_atomic_write(struct vb_qp_ex *ex, uint32_t rkey, uint64_t addr, const void *value) {}
static void no_flush(struct vb_qp_ex *ex, uint32_t rkey, uint64_t addr, size_t len, uint8_t type, uint8_t level) {}

static struct vb_qp *make_qp(struct vb_context *ctx, struct vb_qp_init_attr_ex *attr)
{
	static struct vb_qp_ex ex;

	asked_ops = attr->send_ops_flags;
	if (asked_ops & ~known_ops) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	memset(&ex, 0, sizeof(ex));
	if (asked_ops & built_ops & VB_QP_EX_WITH_ATOMIC_WRITE)
		ex.wr_atomic_write = no_atomic_write;
	if (asked_ops & built_ops & VB_QP_EX_WITH_FLUSH)
		ex.wr_flush = no_flush;
	return &ex.qp_base;
}

static struct vb_qp *plain_qp(struct vb_pd *pd, struct vb_qp_init_attr *attr)
{
	static struct vb_qp qp;

	return &qp;
}

static struct vb_qp_ex *ex_of(struct vb_qp *qp) { return (struct vb_qp_ex *)qp; }
static int count_destroyed(struct vb_qp *qp) { destroyed++; return 0; }

static void *provider(uint64_t caps, uint64_t known, uint64_t built)
{
	static struct vb_verbs_context v;
	static struct vb_pd pd;

	device_caps = caps;
	known_ops = known;
	built_ops = built;
	asked_ops = 0;
	destroyed = 0;
	v.query_device_ex = query_caps;
	v.create_qp_ex = make_qp;
	v.sz = sizeof(v);
	v.context.abi_compat = (void *)UINTPTR_MAX;
	pd.context = &v.context;
	return &pd;
}

static uint64_t last_ops(void) { return asked_ops; }
static int last_destroyed(void) { return destroyed; }

static struct vb_lib lib = {
	.create_qp = plain_qp,
	.qp_to_qp_ex = ex_of,
	.destroy_qp = count_destroyed,
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
// they are given, and whose create_qp makes a queue pair of nothing. One test at a
// time may use it.
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

// Provider is what create_qp_ex of a PD comes to.
type Provider struct {
	Caps  uint64 // device_cap_flags_ex
	Known uint64 // send_ops_flags that it does not refuse
	Built uint64 // those of them that it has a function for
}

// PD is a struct ibv_pd of it. One test at a time may use it.
func (p Provider) PD() unsafe.Pointer {
	return C.provider(C.uint64_t(p.Caps), C.uint64_t(p.Known), C.uint64_t(p.Built))
}

// Asked is send_ops_flags of the last create_qp_ex since PD, 0 without one, and
// how many queue pairs were destroyed.
func Asked() (ops uint64, destroyed int) { return uint64(C.last_ops()), int(C.last_destroyed()) }

// Getenv is the environment as C sees it.
func Getenv(name string) string {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	return C.GoString(C.getenv(c))
}
