// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/internal/libibverbs"
)

// MWType is a memory window's type. The numbers are those of enum ibv_mw_type.
type MWType int

// The types of memory windows (ibv_alloc_mw(3)).
const (
	// MWType1 is bound by the library's own call and may be bound anew at any
	// time.
	MWType1 MWType = 1
	// MWType2 is bound by a work request, belongs to the queue pair that bound
	// it, and must be invalidated (OpLocalInv, or the peer's OpSendInv) before it
	// is bound anew.
	MWType2 MWType = 2
)

// MW is a memory window: a part of an MR with a remote key and rights of its own. To bind it and to
// unbind it registers nothing. Windows are for host memory: the kernel gives no dma-buf MR
// AccessMWBind.
type MW struct {
	life
	pd  *PD
	v   libibverbs.MW
	typ MWType
	key atomic.Uint32 // 0 once closed
}

// AllocMW allocates a memory window that is not bound. The caller closes it before the PD.
func (pd *PD) AllocMW(typ MWType) (*MW, error) {
	if err := pd.enter(); err != nil {
		return nil, err
	}
	defer pd.leave()
	e := failed("ibv_alloc_mw", pd.ctx.name, unix.EINVAL)
	e.Detail = fmt.Sprintf("type %d", typ)
	if typ != MWType1 && typ != MWType2 {
		e.Remedy = "there are types 1 and 2"
		return nil, e
	}
	v, err := pd.v.AllocMW(int(typ))
	if err != nil {
		e.Err = err
		if a, qerr := pd.ctx.v.QueryDevice(); qerr == nil && a.MaxMW == 0 {
			e.Remedy = "the device has no memory windows: register the range by itself"
		}
		return nil, e
	}
	pd.hold(kindMW)
	mw := &MW{pd: pd, v: v, typ: typ}
	mw.key.Store(v.RKey())
	return mw, nil
}

// MWBind says to which memory BindMW binds a memory window.
type MWBind struct {
	ID    uint64 // comes back in WC.ID
	Flags SendFlags
	// MR needs AccessMWBind, and AccessLocalWrite if Access lets the peer write.
	// nil, with a type 1 window, unbinds.
	MR *MR
	// Addr counts from the MR's IOVA. The range must lie in the MR.
	Addr, Length uint64
	Access       Access // of AccessRemoteRead, RemoteWrite and RemoteAtomic
}

// BindMW posts the binding of a memory window, in order with the queue pair's other work requests. It
// returns the window's new remote key, which is valid once the binding has completed. After a
// completion in error the window is unbound.
func (q *QP) BindMW(mw *MW, b MWBind) (rkey uint32, err error) {
	if err := q.enter(); err != nil {
		return 0, err
	}
	defer q.leave()
	if err := mw.enter(); err != nil {
		return 0, err
	}
	defer mw.leave()
	var mr libibverbs.MR
	if b.MR != nil {
		b.MR.mu.Lock() // it stays registered
		defer b.MR.mu.Unlock()
		if b.MR.closed {
			return 0, os.ErrClosed
		}
		mr = b.MR.reg().made.v
	}
	if e := q.badBind(mw, &b, mr); e != nil {
		return 0, e
	}
	q.send.Lock() // in order with PostSend
	defer q.send.Unlock()
	if err := q.v.BindMW(mw.v, mr, &libibverbs.Bind{ID: b.ID, Flags: uint32(b.Flags), Addr: b.Addr, Length: b.Length, Access: uint32(b.Access)}); err != nil {
		e := failed("ibv_bind_mw", q.pd.ctx.name, err)
		e.Detail = fmt.Sprintf("QP %d, type %d, %#x bytes at %#x", q.num, mw.typ, b.Length, b.Addr)
		return 0, e
	}
	mw.key.Store(mw.v.RKey())
	return mw.key.Load(), nil
}

// badBind refuses bindings that the library would accept, or would crash on.
func (q *QP) badBind(mw *MW, b *MWBind, mr libibverbs.MR) error {
	e := failed("ibv_bind_mw", q.pd.ctx.name, unix.EINVAL)
	switch {
	case mw.pd != q.pd || b.MR != nil && b.MR.PD() != q.pd:
		e.Detail = "window, MR and queue pair are of different PDs"
		e.Remedy = "make all of them in one PD"
	case b.MR == nil && (mw.typ != MWType1 || b.Addr != 0 || b.Length != 0):
		e.Detail = "no MR"
		e.Remedy = "name the MR; a window of type 2 is unbound by OpLocalInv"
	case b.MR != nil && b.MR.Access()&AccessMWBind == 0:
		e.Detail = "the MR has no mw-bind"
		e.Remedy = "register host memory with AccessMWBind; a dma-buf MR cannot have it"
	case b.MR != nil && mr == nil:
		e.Err = unix.EOPNOTSUPP
		e.Detail = "the MR was registered by the ioctl, and the library does not know it"
	default:
		return nil
	}
	return e
}

// RKey returns the remote key of the last binding that was posted, and 0 once the window is closed.
func (mw *MW) RKey() uint32 { return mw.key.Load() }

// Close deallocates the window, bound or not. The caller closes it before its MR, and a window of type
// 2 before the queue pair that bound it: rxe takes 50 s to destroy a queue pair with a bound window.
// Closing again does nothing.
func (mw *MW) Close() error {
	return mw.end(func() error {
		if err := mw.v.Dealloc(); err != nil {
			return failed("ibv_dealloc_mw", mw.pd.ctx.name, err)
		}
		mw.key.Store(0)
		mw.pd.drop(kindMW)
		return nil
	})
}
