// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package verbsstub

/*
#cgo CFLAGS: -I${SRCDIR}/../libibverbs
#include <stdlib.h>
#include "verbs_lib.h"

#include <errno.h>

// A provider of memory windows that keeps what it was given last.
struct stub_windows {
	struct vb_context ctx;
	struct vb_pd pd;
	struct vb_qp qp;
	struct vb_mr mr;
	struct vb_mw mw;
	int answer; // of binding
	int live;
	int bind_calls, send_calls;
	struct vb_mw *bound_mw;
	struct vb_mw_bind bound;
	struct vb_send_wr sent;
};

static struct stub_windows *windows;

static struct vb_mw *alloc_window(struct vb_pd *pd, int type)
{
	if (pd != &windows->pd) {
		errno = EINVAL;
		return NULL;
	}
	windows->mw.context = &windows->ctx;
	windows->mw.pd = pd;
	windows->mw.type = type;
	windows->live++;
	return &windows->mw;
}

static int dealloc_window(struct vb_mw *mw)
{
	if (mw != &windows->mw)
		return EINVAL;
	windows->live--;
	return 0;
}

// As providers do, it gives the window its new key itself.
static int bind_window(struct vb_qp *qp, struct vb_mw *mw, struct vb_mw_bind *bind)
{
	windows->bind_calls++;
	windows->bound_mw = mw;
	windows->bound = *bind;
	if (qp != &windows->qp)
		return EINVAL;
	if (!windows->answer)
		mw->rkey += 0x100;
	return windows->answer;
}

static int send_window(struct vb_qp *qp, struct vb_send_wr *wr, struct vb_send_wr **bad)
{
	windows->send_calls++;
	windows->sent = *wr;
	if (qp != &windows->qp)
		return EINVAL;
	*bad = windows->answer ? wr : NULL;
	return windows->answer;
}

static void new_windows(void)
{
	windows = calloc(1, sizeof(*windows));
	windows->ctx.ops.alloc_mw = alloc_window;
	windows->ctx.ops.bind_mw = bind_window;
	windows->ctx.ops.dealloc_mw = dealloc_window;
	windows->ctx.ops.post_send = send_window;
	windows->pd.context = windows->qp.context = windows->mr.context = &windows->ctx;
}

static void free_windows(void)
{
	free(windows);
	windows = NULL;
}

static struct stub_windows *the_windows(void) { return windows; }
*/
import "C"

import "unsafe"

// Windows is a provider of one memory window. One test at a time may use it.
type Windows struct{ c *C.struct_stub_windows }

// NewWindows makes it. The caller calls Free.
func NewWindows() *Windows {
	C.new_windows()
	return &Windows{C.the_windows()}
}

// Free frees it.
func (w *Windows) Free() { C.free_windows() }

// PD is its struct ibv_pd.
func (w *Windows) PD() unsafe.Pointer { return unsafe.Pointer(&w.c.pd) }

// QP is its struct ibv_qp.
func (w *Windows) QP() unsafe.Pointer { return unsafe.Pointer(&w.c.qp) }

// MR is its struct ibv_mr.
func (w *Windows) MR() unsafe.Pointer { return unsafe.Pointer(&w.c.mr) }

// MW is its struct ibv_mw.
func (w *Windows) MW() unsafe.Pointer { return unsafe.Pointer(&w.c.mw) }

// Type is what type the window was allocated as.
func (w *Windows) Type() int { return int(w.c.mw._type) }

// Live is how many windows are allocated.
func (w *Windows) Live() int { return int(w.c.live) }

// SetKey gives the window a remote key.
func (w *Windows) SetKey(rkey uint32) { w.c.mw.rkey = C.uint32_t(rkey) }

// Answer makes binding fail with that errno; 0 is success.
func (w *Windows) Answer(errno int) { w.c.answer = C.int(errno) }

// Calls is how often bind_mw and post_send were called.
func (w *Windows) Calls() (bind, send int) { return int(w.c.bind_calls), int(w.c.send_calls) }

// Binding is what a window is bound to, as C reads it.
type Binding struct {
	ID           uint64
	Flags        uint32
	MW, MR       unsafe.Pointer
	Addr, Length uint64
	Access       uint32
	// Of a work request only.
	Op, RKey uint32
	Rest     bool // a list, SGEs, or a remote address
}

func (b *Binding) info(i *C.struct_vb_mw_bind_info) {
	b.MR, b.Addr, b.Length, b.Access = unsafe.Pointer(i.mr), uint64(i.addr), uint64(i.length), uint32(i.mw_access_flags)
}

// Bound is what bind_mw was given last.
func (w *Windows) Bound() Binding {
	b := Binding{ID: uint64(w.c.bound.wr_id), Flags: uint32(w.c.bound.send_flags), MW: unsafe.Pointer(w.c.bound_mw)}
	b.info(&w.c.bound.bind_info)
	return b
}

// Sent is what post_send was given last.
func (w *Windows) Sent() Binding {
	s := &w.c.sent
	b := Binding{
		ID: uint64(s.wr_id), Flags: uint32(s.send_flags), MW: unsafe.Pointer(s.bind_mw.mw), Op: uint32(s.opcode), RKey: uint32(s.bind_mw.rkey),
		Rest: s.next != nil || s.sg_list != nil || s.num_sge != 0 || s.wr != [len(s.wr)]byte{},
	}
	b.info(&s.bind_mw.bind_info)
	return b
}
