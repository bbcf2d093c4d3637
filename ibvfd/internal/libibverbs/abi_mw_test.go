// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package libibverbs

import (
	"errors"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/internal/verbsstub"
	"github.com/gpurdma/gpurdma/ibvfd/uverbs"
)

// The provider gets the binding field by field: in bind_mw for one
// of type 1, whose key is the provider's choice, and in a work request for one of
// type 2, whose key is counted up in its low byte.
func TestBindArguments(t *testing.T) {
	stub := verbsstub.NewWindows()
	defer stub.Free()
	pd, qp, mr := &libPD{}, &libQP{}, &libMR{}
	*(*unsafe.Pointer)(unsafe.Pointer(&pd.c)) = stub.PD()
	*(*unsafe.Pointer)(unsafe.Pointer(&qp.c)) = stub.QP()
	*(*unsafe.Pointer)(unsafe.Pointer(&mr.c)) = stub.MR()
	binds := []Bind{
		{ID: 1<<63 + 5, Flags: 2 | 1, Addr: 0x1122334455667788, Length: 0x99aabbccdd, Access: uverbs.AccessRemoteRead},
		{ID: 2, Addr: 1 << 40, Length: 1, Access: uverbs.AccessRemoteWrite},
		{ID: 3, Flags: 2, Addr: 4096, Length: 4096, Access: uverbs.AccessRemoteAtomic},
		{ID: 4, Flags: 1, Length: 1<<64 - 1, Access: uverbs.AccessRemoteRead | uverbs.AccessRemoteWrite | uverbs.AccessRemoteAtomic},
	}
	for _, typ := range []int{1, 2} {
		mw, err := pd.AllocMW(typ)
		if err != nil || stub.Type() != typ || stub.Live() != 1 {
			t.Fatalf("ibv_alloc_mw: %v; %d windows, of type %d, want %d", err, stub.Live(), stub.Type(), typ)
		}
		for i, b := range binds {
			before := uint32(0x123456fe + i) // the low byte's end is among them
			stub.SetKey(before)
			byBind, bySend := stub.Calls()
			want := verbsstub.Binding{
				ID: b.ID, Flags: uint32(b.Flags), MW: stub.MW(), MR: stub.MR(), Addr: b.Addr, Length: b.Length, Access: uint32(b.Access),
			}
			got, key := stub.Bound, before+0x100
			if typ == 2 {
				got, key = stub.Sent, before&^0xff|(before+1)&0xff
				want.Op, want.RKey = 8, key // IBV_WR_BIND_MW
				bySend++
			} else {
				byBind++
			}
			if err := qp.BindMW(mw, mr, &b); err != nil {
				t.Fatal(err)
			}
			if got() != want {
				t.Errorf("type %d, %+v: the provider was given %+v, want %+v", typ, b, got(), want)
			}
			if mw.RKey() != key {
				t.Errorf("type %d: key %#x became %#x, want %#x", typ, before, mw.RKey(), key)
			}
			if b, s := stub.Calls(); b != byBind || s != bySend {
				t.Errorf("type %d: %d calls of bind_mw and %d of post_send, want %d and %d", typ, b, s, byBind, bySend)
			}
		}
		// A refusal is returned, and the key stays.
		before := mw.RKey()
		stub.Answer(int(unix.ENOMEM))
		if err := qp.BindMW(mw, mr, &binds[0]); !errors.Is(err, unix.ENOMEM) || mw.RKey() != before {
			t.Errorf("type %d refused: %v, key %#x was %#x", typ, err, mw.RKey(), before)
		}
		stub.Answer(0)
		if typ == 1 { // unbound: nothing of nothing
			if err := qp.BindMW(mw, nil, &Bind{ID: 9}); err != nil || stub.Bound() != (verbsstub.Binding{ID: 9, MW: stub.MW()}) {
				t.Errorf("unbind: %v, %+v", err, stub.Bound())
			}
		}
		if err := mw.Dealloc(); err != nil || stub.Live() != 0 {
			t.Errorf("ibv_dealloc_mw: %v, %d windows", err, stub.Live())
		}
	}
}
