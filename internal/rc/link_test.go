// SPDX-License-Identifier: Apache-2.0

package rc

import (
	"math"
	"testing"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
)

// Over rdma_cm the queue pairs for data take the path of the exchange, with its partition and
// router, unless the options set others.
func TestLinkFollowsRDMACM(t *testing.T) {
	tuned := ibvfd.PathAttr{TrafficClass: 7}
	routed := ibvfd.PathAttr{HopLimit: 3, TrafficClass: 1, SL: 2, Global: true}
	own := routed
	own.Global = false
	tunedGlobal := tuned
	tunedGlobal.Global = true
	for name, c := range map[string]struct {
		ask  ibvfd.ConnectAttr
		path ibvfd.ManagedAttr
		want ibvfd.ConnectAttr
	}{
		"all of it": {
			path: ibvfd.ManagedAttr{PKeyIndex: 5, PathAttr: routed, MTU: 2048},
			want: ibvfd.ConnectAttr{PKeyIndex: 5, PathAttr: routed, MTU: 2048},
		},
		"within the subnet": {
			path: ibvfd.ManagedAttr{PathAttr: own, MTU: 2048},
			want: ibvfd.ConnectAttr{PathAttr: own, MTU: 2048},
		},
		"but for the options": {
			ask:  ibvfd.ConnectAttr{PKeyIndex: 3, PathAttr: tuned, MTU: 1500},
			path: ibvfd.ManagedAttr{PKeyIndex: 5, PathAttr: own, MTU: 2048},
			want: ibvfd.ConnectAttr{PKeyIndex: 3, PathAttr: tuned, MTU: 1024},
		},
		"behind a router, whatever they say": {
			ask:  ibvfd.ConnectAttr{PathAttr: tuned},
			path: ibvfd.ManagedAttr{PathAttr: routed, MTU: 2048},
			want: ibvfd.ConnectAttr{PathAttr: tunedGlobal, MTU: 2048},
		},
	} {
		a := Attr{Connect: c.ask}
		if a.follow(&c.path); a.Connect != c.want {
			t.Errorf("%s: %+v, want %+v", name, a.Connect, c.want)
		}
	}

	// The peer sends its own LID; all other fields are kept.
	peer := ibvfd.Endpoint{QPN: 17, LID: 33, GID: [16]byte{1}}
	a := Attr{}
	if got := a.to(peer); got != peer {
		t.Errorf("over TCP to %+v", got)
	}
	a.Path = &ibvfd.ManagedAttr{Remote: ibvfd.Endpoint{QPN: 99, LID: 9, GID: [16]byte{1}}}
	want := peer
	want.LID = 9
	if got := a.to(peer); got != want {
		t.Errorf("over rdma_cm to %+v, want %+v", got, want)
	}
}

// A port without a limit gets one: with messages of 0 bytes lowering would not end.
func TestMaxMessage(t *testing.T) {
	for max, want := range map[uint32]int64{0: maxWR, 1: 1, maxWR: maxWR, math.MaxUint32: maxWR} {
		if got := maxMessage(ibdev.PortAttr{MaxMsg: max}); got != want {
			t.Errorf("a port of %d: %d, want %d", max, got, want)
		}
	}
}
