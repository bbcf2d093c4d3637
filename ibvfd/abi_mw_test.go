// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd

import (
	"errors"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/internal/verbsstub"
)

// What the provider is given to bind a window to, field by field: in bind_mw for one
// of type 1, whose key is the provider's choice, and in a work request for one of
// type 2, whose key is counted up in its low byte.
func TestBindArguments(t *testing.T) {
	stub := verbsstub.NewWindows()
	defer stub.Free()
	pd, qp, mr := &libPD{}, &libQP{}, &libMR{}
	*(*unsafe.Pointer)(unsafe.Pointer(&pd.c)) = stub.PD()
	*(*unsafe.Pointer)(unsafe.Pointer(&qp.c)) = stub.QP()
	*(*unsafe.Pointer)(unsafe.Pointer(&mr.c)) = stub.MR()
	binds := []mwBind{
		{id: 1<<63 + 5, flags: SendSignaled | SendFence, addr: 0x1122334455667788, length: 0x99aabbccdd, access: AccessRemoteRead},
		{id: 2, addr: 1 << 40, length: 1, access: AccessRemoteWrite},
		{id: 3, flags: SendSignaled, addr: 4096, length: 4096, access: AccessRemoteAtomic},
		{id: 4, flags: SendFence, length: 1<<64 - 1, access: AccessRemoteRead | AccessRemoteWrite | AccessRemoteAtomic},
	}
	for _, typ := range []MWType{MWType1, MWType2} {
		mw, err := pd.allocMW(typ)
		if err != nil || stub.Type() != int(typ) || stub.Live() != 1 {
			t.Fatalf("ibv_alloc_mw: %v; %d windows, of type %d, want %d", err, stub.Live(), stub.Type(), typ)
		}
		for i, b := range binds {
			before := uint32(0x123456fe + i) // the low byte's end is among them
			stub.SetKey(before)
			byBind, bySend := stub.Calls()
			want := verbsstub.Binding{
				ID: b.id, Flags: uint32(b.flags), MW: stub.MW(), MR: stub.MR(), Addr: b.addr, Length: b.length, Access: uint32(b.access),
			}
			got, key := stub.Bound, before+0x100
			if typ == MWType2 {
				got, key = stub.Sent, before&^0xff|(before+1)&0xff
				want.Op, want.RKey = 8, key // IBV_WR_BIND_MW
				bySend++
			} else {
				byBind++
			}
			if err := qp.bindMW(mw, mr, &b); err != nil {
				t.Fatal(err)
			}
			if got() != want {
				t.Errorf("type %d, %+v: the provider was given %+v, want %+v", typ, b, got(), want)
			}
			if mw.rkey() != key {
				t.Errorf("type %d: key %#x became %#x, want %#x", typ, before, mw.rkey(), key)
			}
			if b, s := stub.Calls(); b != byBind || s != bySend {
				t.Errorf("type %d: %d calls of bind_mw and %d of post_send, want %d and %d", typ, b, s, byBind, bySend)
			}
		}
		// A refusal is told, and the key stays.
		before := mw.rkey()
		stub.Answer(int(unix.ENOMEM))
		if err := qp.bindMW(mw, mr, &binds[0]); !errors.Is(err, unix.ENOMEM) || mw.rkey() != before {
			t.Errorf("type %d refused: %v, key %#x was %#x", typ, err, mw.rkey(), before)
		}
		stub.Answer(0)
		if typ == MWType1 { // unbound: nothing of nothing
			if err := qp.bindMW(mw, nil, &mwBind{id: 9}); err != nil || stub.Bound() != (verbsstub.Binding{ID: 9, MW: stub.MW()}) {
				t.Errorf("unbind: %v, %+v", err, stub.Bound())
			}
		}
		if err := mw.dealloc(); err != nil || stub.Live() != 0 {
			t.Errorf("ibv_dealloc_mw: %v, %d windows", err, stub.Live())
		}
	}
}
