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

// What ibv_rereg_mr is given: PD, access, or both, and never the memory.
func TestReregArguments(t *testing.T) {
	ctx := recorder()
	var mem, other [8]uint64 // a struct vb_mr and a struct vb_pd
	m, pd := &libMR{lib: ctx.lib}, &libPD{ctx: ctx}
	*(*unsafe.Pointer)(unsafe.Pointer(&m.c)) = unsafe.Pointer(&mem)
	*(*unsafe.Pointer)(unsafe.Pointer(&pd.c)) = unsafe.Pointer(&other)
	none, some := uint32(0), uint32(uverbs.AccessLocalWrite|uverbs.AccessRelaxedOrdering)
	for _, c := range []struct {
		pd     PD
		access *uint32
		want   verbsstub.Rereg
	}{
		{pd, nil, verbsstub.Rereg{Flags: 2, Moves: true}},
		{nil, &some, verbsstub.Rereg{Flags: 4, Access: 0x100001}},
		{nil, &none, verbsstub.Rereg{Flags: 4}},
		{pd, &some, verbsstub.Rereg{Flags: 6, Moves: true, Access: 0x100001}},
	} {
		if err := m.Rereg(c.pd, c.access); err != nil || verbsstub.Reregistered() != c.want {
			t.Errorf("ibv_rereg_mr was given %+v, want %+v; %v", verbsstub.Reregistered(), c.want, err)
		}
	}
	verbsstub.AnswerRereg(int(unix.EACCES))
	defer verbsstub.AnswerRereg(0)
	if err := m.Rereg(pd, nil); !errors.Is(err, unix.EACCES) {
		t.Errorf("a refusal: %v, want EACCES", err)
	}
}
