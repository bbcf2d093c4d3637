// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd

import (
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/ibvfd/internal/libibverbs"
)

import "testing"

// On InfiniBand an address handle within the subnet is a LID's, without a GRH; to a
// peer that has none it is a GID's, and behind a router, whose LID it has, both. Over
// RoCE it is a GID's always.
func TestInfiniBandAddressHandles(t *testing.T) {
	gid := [16]byte{0: 0xfe, 1: 0x80, 15: 7}
	tune := PathAttr{SL: 2, SrcPathBits: 1, StaticRate: 5, TrafficClass: 3, FlowLabel: 0x12345, HopLimit: 9}
	tuned := libibverbs.Path{Port: 1, GID: gid, SL: 2, SrcPathBits: 1, StaticRate: 5, Class: 3, FlowLabel: 0x12345, HopLimit: 9}
	for name, c := range map[string]struct {
		link   ibdev.LinkLayer
		remote Endpoint
		ask    bool
		global bool
		text   string
	}{
		"within the subnet": {ibdev.LinkInfiniBand, Endpoint{LID: 33, GID: gid}, false, false, "LID 33 from port 1"},
		"beyond it":         {ibdev.LinkInfiniBand, Endpoint{GID: gid}, false, true, "GID fe80::7, our GID index 4, port 1"},
		"behind a router":   {ibdev.LinkInfiniBand, Endpoint{LID: 33, GID: gid}, true, true, "GID fe80::7, our GID index 4, port 1"},
		"RoCE":              {ibdev.LinkEthernet, Endpoint{LID: 33, GID: gid}, false, true, "GID fe80::7, our GID index 4, port 1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript()
			s.port = &ibdev.PortAttr{State: ibdev.PortActive, MTU: 4096, MaxMTU: 4096, LID: 9, LinkLayer: c.link}
			_, qp, _ := queuePair(t, s, QPAttr{Type: UD, GID: &ibdev.GID{Index: 4, GID: [16]byte{0xfe, 0x80}}})
			tune.Global = c.ask
			ah, err := qp.CreateAH(c.remote, tune)
			if err != nil {
				t.Fatal(err)
			}
			want := tuned
			want.LID, want.GIDIndex, want.Global = c.remote.LID, 4, c.global
			got := ah.v.(*scriptAH).path
			if got != want {
				t.Errorf("path %+v, want %+v", got, want)
			}
			if text := got.String(); text != c.text {
				t.Errorf("%q, want %q", text, c.text)
			}
			if err := ah.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
