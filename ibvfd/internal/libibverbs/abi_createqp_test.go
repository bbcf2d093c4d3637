// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package libibverbs

import (
	"errors"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/internal/verbsstub"
)

// A queue pair for atomic writes or FLUSH takes a device, a provider that knows
// the operation, and one that has it: whichever lacks it, the answer is the same,
// and nothing is left.
func TestCreateExtendedQP(t *testing.T) {
	const (
		classic, flush, atomicWrite           = 0x3ff, 1 << 11, 1 << 12
		capGlobal, capPersistent, capAtomic64 = 1 << 38, 1 << 39, 1 << 40

		both, caps = classic | flush | atomicWrite, uint64(capGlobal | capPersistent | capAtomic64)
	)
	for _, c := range []struct {
		name               string
		atomicWrite, flush bool
		is                 verbsstub.Provider
		asked              uint64 // 0: it comes to none
		unsupported        bool
		destroyed          int
	}{
		{"neither", false, false, verbsstub.Provider{}, 0, false, 0},
		{"FLUSH", false, true, verbsstub.Provider{Caps: caps, Known: both, Built: both}, classic | flush, false, 0},
		{"atomic writes", true, false, verbsstub.Provider{Caps: caps, Known: both, Built: both}, classic | atomicWrite, false, 0},
		{"both", true, true, verbsstub.Provider{Caps: caps, Known: both, Built: both}, both, false, 0},
		{"one placement", false, true, verbsstub.Provider{Caps: capGlobal, Known: both, Built: both}, classic | flush, false, 0},
		{"the other one", false, true, verbsstub.Provider{Caps: capPersistent, Known: both, Built: both}, classic | flush, false, 0},
		{"a device without FLUSH", false, true, verbsstub.Provider{Caps: capAtomic64, Known: both, Built: both}, 0, true, 0},
		{"a device with FLUSH only", true, true, verbsstub.Provider{Caps: capGlobal, Known: both, Built: both}, 0, true, 0},
		{"a library of 44", false, true, verbsstub.Provider{Caps: caps, Known: classic | atomicWrite, Built: both}, classic | flush, true, 0},
		{"a library of 44, both", true, true, verbsstub.Provider{Caps: caps, Known: classic | atomicWrite, Built: both}, both, true, 0},
		{"a provider that forgets it", false, true, verbsstub.Provider{Caps: caps, Known: both, Built: atomicWrite}, classic | flush, true, 1},
		{"a provider that forgets one", true, true, verbsstub.Provider{Caps: caps, Known: both, Built: flush}, both, true, 1},
	} {
		pd := &libPD{ctx: recorder()}
		*(*unsafe.Pointer)(unsafe.Pointer(&pd.c)) = c.is.PD()
		qp, err := pd.CreateQP(&QPInit{Type: typeRC, Send: &libCQ{}, Recv: &libCQ{}, AtomicWrite: c.atomicWrite, Flush: c.flush})
		asked, destroyed := verbsstub.Asked()
		if asked != c.asked || errors.Is(err, unix.EOPNOTSUPP) != c.unsupported || (err != nil) != c.unsupported || destroyed != c.destroyed {
			t.Errorf("%s: asked for %#x, %v, %d destroyed", c.name, asked, err, destroyed)
		}
		if err == nil && (qp.(*libQP).ex != nil) != (c.atomicWrite || c.flush) {
			t.Errorf("%s: %+v", c.name, qp)
		}
	}
}
