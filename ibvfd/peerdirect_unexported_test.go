// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Memory that was never exported is registered by its pointers alone, and only where
// that is allowed and a client is there.
func TestPeerDirectUnexported(t *testing.T) {
	const page = 4096
	s := newScript()
	pd := scripted(t, s, &kernel{driver: 4, reg: func(int32) unix.Errno {
		t.Error("the kernel was asked for a dma-buf")
		return unix.EBADF
	}})
	attr := MRAttr{Kind: DMABufFD, FD: -1, Pointer: farAway, Offset: page, Length: page, IOVA: page, Policy: RouteAutoPeerDirect}
	refused := func(name string, attr MRAttr, words string) {
		t.Helper()
		r, err := pd.RegMR(attr)
		if e := (*RegError)(nil); !errors.As(err, &e) || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v, %v; want %q", name, r, err, words)
		}
	}
	refused("no client", attr, "no peer-memory client is registered")
	peer(t, pd, "nv_mem", "1.3")
	unasked := attr
	unasked.Policy = RouteAuto
	refused("not asked for", unasked, "no dma-buf of the memory is at hand: EOPNOTSUPP")

	one, err := pd.RegMR(attr)
	if err != nil {
		t.Fatal(err)
	}
	if one.Route() != RoutePeerDirect || one.IOVA() != page || s.addr != farAway+page {
		t.Errorf("%+v, registered at %#x", one.State(), s.addr)
	}
	// The range of an MR by itself can change.
	if err := one.Rereg(ReregAttr{Change: ReregAccess, MRAttr: MRAttr{Access: AccessRemoteRead}, InPlace: InPlaceNever}); err != nil {
		t.Errorf("another access: %v", err)
	} else if one.Route() != RoutePeerDirect || one.Access() != AccessRemoteRead || s.addr != farAway+page {
		t.Errorf("%+v, registered at %#x", one.State(), s.addr)
	}
	if err := one.Close(); err != nil {
		t.Error(err)
	}
	// A dma-buf's MR can become one of such memory, as it can be made of it.
	pd2 := scripted(t, newScript(), &kernel{driver: 4, reg: always(0)})
	peer(t, pd2, "nv_mem", "1.3")
	mr, err := pd2.RegMR(MRAttr{Kind: DMABufFD, FD: openFile(t), Length: page, SkipChecks: true, Policy: RouteIoctlOnly})
	if err != nil {
		t.Fatal(err)
	}
	bare := MRAttr{Kind: DMABufFD, FD: -1, Pointer: farAway, Length: page, Policy: RouteAutoPeerDirect}
	if err := mr.Rereg(ReregAttr{Change: ReregMemory, MRAttr: bare}); err != nil || mr.Route() != RoutePeerDirect {
		t.Errorf("of a dma-buf: %v, %+v", err, mr.State())
	}
	if err := mr.Close(); err != nil {
		t.Error(err)
	}
}
