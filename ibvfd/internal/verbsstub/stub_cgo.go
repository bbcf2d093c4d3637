// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package verbsstub

/*
#cgo CFLAGS: -I${SRCDIR}/../libibverbs
#include <stdlib.h>
#include <string.h>
#include "verbs_abi.h"

enum { MAX_WR = 2048, MAX_SGE = 4 };

// A queue pair that takes so many work requests and keeps copies of them.
struct stub_qp {
	uint32_t room, n;
	int rc;
	struct vb_send_wr send[MAX_WR];
	struct vb_recv_wr recv[MAX_WR];
	struct vb_sge sge[MAX_WR][MAX_SGE];
	uint32_t calls;
};

static int record_send(struct vb_qp *q, struct vb_send_wr *wr, struct vb_send_wr **bad)
{
	struct stub_qp *qp = (struct stub_qp *)q;

	qp->calls++;
	for (; wr; wr = wr->next) {
		if (qp->n == qp->room) {
			*bad = wr;
			return qp->rc;
		}
		qp->send[qp->n] = *wr;
		for (int i = 0; i < wr->num_sge && i < MAX_SGE; i++)
			qp->sge[qp->n][i] = wr->sg_list[i];
		qp->n++;
	}
	return 0;
}

static int record_recv(struct vb_qp *q, struct vb_recv_wr *wr, struct vb_recv_wr **bad)
{
	struct stub_qp *qp = (struct stub_qp *)q;

	qp->calls++;
	for (; wr; wr = wr->next) {
		if (qp->n == qp->room) {
			*bad = wr;
			return qp->rc;
		}
		qp->recv[qp->n] = *wr;
		for (int i = 0; i < wr->num_sge && i < MAX_SGE; i++)
			qp->sge[qp->n][i] = wr->sg_list[i];
		qp->n++;
	}
	return 0;
}

// The same queue pair for what is posted one by one.
struct stub_qp_ex {
	struct vb_qp_ex ex;
	struct stub_qp *qp;
	struct vb_send_wr wr;
};

static void ex_start(struct vb_qp_ex *ex)
{
	memset(&((struct stub_qp_ex *)ex)->wr, 0, sizeof(struct vb_send_wr));
}

static void ex_atomic_write(struct vb_qp_ex *ex, uint32_t rkey, uint64_t addr, const void *value)
{
	struct vb_send_wr *wr = &((struct stub_qp_ex *)ex)->wr;

	wr->wr_id = ex->wr_id;
	wr->send_flags = ex->wr_flags;
	wr->opcode = VB_WR_ATOMIC_WRITE;
	wr->wr.atomic.remote_addr = addr;
	wr->wr.atomic.rkey = rkey;
	memcpy(&wr->wr.atomic.compare_add, value, 8);
}

// The arguments lie where an atomic operation's do, the level above the type.
static void ex_flush(struct vb_qp_ex *ex, uint32_t rkey, uint64_t addr, size_t len, uint8_t type, uint8_t level)
{
	struct vb_send_wr *wr = &((struct stub_qp_ex *)ex)->wr;

	wr->wr_id = ex->wr_id;
	wr->send_flags = ex->wr_flags;
	wr->opcode = VB_WR_FLUSH;
	wr->wr.atomic.remote_addr = addr;
	wr->wr.atomic.rkey = rkey;
	wr->wr.atomic.compare_add = len;
	wr->wr.atomic.swap = type | level << 8;
}

static int ex_complete(struct vb_qp_ex *ex)
{
	struct stub_qp_ex *s = (struct stub_qp_ex *)ex;
	struct vb_send_wr *bad;

	return record_send((struct vb_qp *)s->qp, &s->wr, &bad);
}

static struct stub_qp_ex *new_ex(struct stub_qp *qp)
{
	struct stub_qp_ex *s = calloc(1, sizeof(*s));

	s->qp = qp;
	s->ex.wr_start = ex_start;
	s->ex.wr_atomic_write = ex_atomic_write;
	s->ex.wr_flush = ex_flush;
	s->ex.wr_complete = ex_complete;
	return s;
}

static int noop_send(struct vb_qp *q, struct vb_send_wr *wr, struct vb_send_wr **bad)
{
	return 0;
}

static int noop_recv(struct vb_qp *q, struct vb_recv_wr *wr, struct vb_recv_wr **bad)
{
	return 0;
}

// A completion queue that has so many completions left, numbered. They may be
// added to while it is polled.
struct stub_cq {
	int left, rc;
	uint64_t id;
	struct vb_wc wc;
};

static int numbered_poll(struct vb_cq *c, int n, struct vb_wc *wc)
{
	struct stub_cq *cq = (struct stub_cq *)c;
	int i;

	if (cq->rc)
		return cq->rc;
	for (i = 0; i < n && __atomic_load_n(&cq->left, __ATOMIC_ACQUIRE); i++) {
		wc[i] = cq->wc;
		wc[i].wr_id = cq->id++;
		__atomic_fetch_sub(&cq->left, 1, __ATOMIC_ACQ_REL);
	}
	return i;
}

static int full_poll(struct vb_cq *c, int n, struct vb_wc *wc)
{
	return n;
}

static void add_completions(struct stub_cq *cq, int n)
{
	__atomic_fetch_add(&cq->left, n, __ATOMIC_ACQ_REL);
}

// The work of a C program with a NIC that takes no time: it fills n work requests
// of a list of its own, posts them, polls as many completions and looks at each.
// The functions are called through pointers, as verbs.h does. Returns how many
// completions were good.
static uint64_t c_loop(uint64_t rounds, uint32_t n, void *send, void *poll)
{
	vb_post_send_fn *volatile post_send = send;
	vb_poll_cq_fn *volatile poll_cq = poll;
	static struct vb_send_wr wr[MAX_WR];
	static struct vb_sge sge[MAX_WR];
	static struct vb_wc wc[MAX_WR];
	uint64_t good = 0;

	for (uint64_t r = 0; r < rounds; r++) {
		struct vb_send_wr *bad;

		for (uint32_t i = 0; i < n; i++) {
			sge[i] = (struct vb_sge){ .addr = r + i, .length = 64, .lkey = 3 };
			wr[i] = (struct vb_send_wr){
				.wr_id = i, .next = i + 1 < n ? &wr[i + 1] : NULL,
				.sg_list = &sge[i], .num_sge = 1, .send_flags = 2,
				.wr.rdma = { .remote_addr = r + i, .rkey = 5 },
			};
		}
		if (post_send(NULL, wr, &bad))
			return 0;
		for (uint32_t got = 0; got < n;) {
			int k = poll_cq(NULL, n - got, wc);

			for (int i = 0; i < k; i++)
				good += wc[i].status == 0;
			got += k;
		}
	}
	return good;
}

// cgo takes the address of exported C functions only.
static void *record_send_fn(void) { return record_send; }
static void *record_recv_fn(void) { return record_recv; }
static void *noop_send_fn(void) { return noop_send; }
static void *noop_recv_fn(void) { return noop_recv; }
static void *numbered_poll_fn(void) { return numbered_poll; }
static void *full_poll_fn(void) { return full_poll; }
*/
import "C"

import (
	"encoding/binary"
	"unsafe"
)

// MaxBatch is how many work requests CLoop and a QP have room for.
const MaxBatch = C.MAX_WR

// CLoop posts and polls batches of n work requests in C, as a C program does,
// against functions that return at once. It returns how many completions there
// were.
func CLoop(rounds, n int) uint64 {
	return uint64(C.c_loop(C.uint64_t(rounds), C.uint32_t(min(n, MaxBatch)), C.noop_send_fn(), C.full_poll_fn()))
}

// QP stands for a provider's queue pair, in C memory.
type QP struct{ c *C.struct_stub_qp }

// NewQP makes one that takes room work requests and answers rc to the next.
func NewQP(room, rc int) *QP {
	c := (*C.struct_stub_qp)(C.calloc(1, C.sizeof_struct_stub_qp))
	c.room, c.rc = C.uint32_t(room), C.int(rc)
	return &QP{c}
}

// Ptr is what the functions get as their queue pair.
func (q *QP) Ptr() unsafe.Pointer { return unsafe.Pointer(q.c) }

// Extended is what posts atomic writes and FLUSH to it. The caller calls free.
func (q *QP) Extended() (ex unsafe.Pointer, free func()) {
	p := unsafe.Pointer(C.new_ex(q.c))
	return p, func() { C.free(p) }
}

// Calls is how often it was posted to.
func (q *QP) Calls() int { return int(q.c.calls) }

// Free frees it.
func (q *QP) Free() { C.free(unsafe.Pointer(q.c)) }

// RecordSend, RecordRecv keep copies of what is posted to a QP.
func RecordSend() unsafe.Pointer { return C.record_send_fn() }

// RecordRecv is RecordSend for receives.
func RecordRecv() unsafe.Pointer { return C.record_recv_fn() }

// NoopSend returns at once, having taken everything.
func NoopSend() unsafe.Pointer { return C.noop_send_fn() }

// NoopRecv is NoopSend for receives.
func NoopRecv() unsafe.Pointer { return C.noop_recv_fn() }

// FullPoll returns at once, the array being full of what was in it.
func FullPoll() unsafe.Pointer { return C.full_poll_fn() }

// NumberedPoll polls a CQ.
func NumberedPoll() unsafe.Pointer { return C.numbered_poll_fn() }

// SGE is a struct ibv_sge as C reads it.
type SGE struct {
	Addr         uint64
	Length, LKey uint32
}

// Send is a struct ibv_send_wr as C reads it.
type Send struct {
	ID             uint64
	Op, Flags, Imm uint32 // Imm in host byte order
	Addr           uint64 // wr.rdma.remote_addr and wr.atomic.remote_addr
	RKey           uint32 // wr.rdma.rkey
	Compare, Swap  uint64 // wr.atomic; a FLUSH's length, and its type with the level from bit 8 on
	AtomicRKey     uint32
	AH             uint64 // wr.ud
	QPN, QKey      uint32
	Invalidate     uint32 // invalidate_rkey
	SGE            []SGE
	Rest           bool // something in the unions that are never filled
}

// Sent is what was posted.
func (q *QP) Sent() []Send {
	var list []Send
	for i := range int(q.c.n) {
		w := &q.c.send[i]
		rdma := (*struct {
			addr uint64
			rkey uint32
		})(unsafe.Pointer(&w.wr))
		atomic := (*struct {
			addr, compare, swap uint64
			rkey                uint32
		})(unsafe.Pointer(&w.wr))
		ud := (*struct {
			ah        uint64
			qpn, qkey uint32
		})(unsafe.Pointer(&w.wr))
		imm := *(*uint32)(unsafe.Pointer(&w.anon0)) // imm_data, invalidate_rkey
		s := Send{
			ID: uint64(w.wr_id), Op: uint32(w.opcode), Flags: uint32(w.send_flags), Imm: swap(imm), Invalidate: imm,
			AH: ud.ah, QPN: ud.qpn, QKey: ud.qkey,
			Addr: rdma.addr, RKey: rdma.rkey, Compare: atomic.compare, Swap: atomic.swap, AtomicRKey: atomic.rkey,
			SGE: q.sges(i, int(w.num_sge)), Rest: w.qp_type != 0,
		}
		s.Rest = s.Rest || w.bind_mw.mw != nil || w.bind_mw.rkey != 0 || w.bind_mw.bind_info != C.struct_vb_mw_bind_info{}
		list = append(list, s)
	}
	return list
}

// Recv is a struct ibv_recv_wr as C reads it.
type Recv struct {
	ID  uint64
	SGE []SGE
}

// Received is what was posted.
func (q *QP) Received() []Recv {
	var list []Recv
	for i := range int(q.c.n) {
		w := &q.c.recv[i]
		list = append(list, Recv{uint64(w.wr_id), q.sges(i, int(w.num_sge))})
	}
	return list
}

func (q *QP) sges(i, n int) []SGE {
	var list []SGE
	for j := range n {
		s := &q.c.sge[i][j]
		list = append(list, SGE{uint64(s.addr), uint32(s.length), uint32(s.lkey)})
	}
	return list
}

// CQ stands for a provider's completion queue, in C memory.
type CQ struct{ c *C.struct_stub_cq }

// Completion is what every completion of a CQ looks like, but for its number.
type Completion struct {
	Status, Opcode, VendorErr, ByteLen, Imm, QPN, SrcQP, Flags uint32
}

// NewCQ makes one with left completions, numbered from 0. If rc is not 0,
// polling answers it.
func NewCQ(left, rc int, wc Completion) *CQ {
	c := (*C.struct_stub_cq)(C.calloc(1, C.sizeof_struct_stub_cq))
	c.left, c.rc = C.int(left), C.int(rc)
	c.wc = C.struct_vb_wc{
		status: C.int(wc.Status), opcode: C.int(wc.Opcode), vendor_err: C.uint32_t(wc.VendorErr), byte_len: C.uint32_t(wc.ByteLen),
		qp_num: C.uint32_t(wc.QPN), src_qp: C.uint32_t(wc.SrcQP), wc_flags: C.uint(wc.Flags),
	}
	*(*uint32)(unsafe.Pointer(&c.wc.anon0)) = swap(wc.Imm) // imm_data
	return &CQ{c}
}

// Ptr is what the functions get as their completion queue.
func (q *CQ) Ptr() unsafe.Pointer { return unsafe.Pointer(q.c) }

// Add makes n more completions.
func (q *CQ) Add(n int) { C.add_completions(q.c, C.int(n)) }

// Free frees it.
func (q *CQ) Free() { C.free(unsafe.Pointer(q.c)) }

// swap turns network byte order into the host's, and back.
func swap(v uint32) uint32 {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], v)
	return binary.NativeEndian.Uint32(b[:])
}
