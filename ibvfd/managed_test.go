// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd

import (
	"errors"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/internal/libibverbs"
)

// The attributes of a connection manager reach the provider as they are; receives
// that were posted in INIT are kept.
func TestConnectManaged(t *testing.T) {
	_, qp, v := queuePair(t, newScript(), QPAttr{Type: RC})
	a := ManagedAttr{
		Port: 2, PKeyIndex: 3, Access: AccessRemoteRead, Remote: Endpoint{QPN: 18, PSN: 19, LID: 33, GID: [16]byte{1, 15: 2}}, GIDIndex: 4,
		PathAttr: PathAttr{HopLimit: 1, TrafficClass: 2, FlowLabel: 3, SL: 5, SrcPathBits: 6, StaticRate: 7, Global: true},
		MTU:      512, PSN: 20, MinRNRTimer: 8, MaxDestRead: 9, MaxRead: 10, Timeout: 11, RetryCount: 5, RNRRetry: 4,
	}
	if err := qp.ConnectManaged(a); err != nil {
		t.Fatal(err)
	}
	want := libibverbs.QPModify{
		Type: int(RC), State: int(StateRTS), PKeyIndex: 3, Access: uint32(AccessRemoteRead), RemoteQPN: 18, RemotePSN: 19, MTU: 512, MinRNRTimer: 8, PSN: 20,
		MaxDestRead: 9, MaxRead: 10, Timeout: 11, RetryCount: 5, RNRRetry: 4,
		Path: libibverbs.Path{Port: 2, LID: 33, GID: a.Remote.GID, GIDIndex: 4, Global: true, HopLimit: 1, Class: 2, FlowLabel: 3, SL: 5, SrcPathBits: 6, StaticRate: 7},
	}
	if got := v.modified[len(v.modified)-1]; got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if got := v.states(); !reflect.DeepEqual(got, []QPState{StateReset, StateInit, StateRTR, StateRTS}) {
		t.Errorf("through %v", got)
	}
	if err := qp.Init(ConnectAttr{}); err != nil {
		t.Fatal(err)
	}
	v.states()
	if err := qp.ConnectManaged(a); err != nil {
		t.Error(err)
	}
	if got := v.states(); !reflect.DeepEqual(got, []QPState{StateInit, StateRTR, StateRTS}) {
		t.Errorf("from INIT through %v", got)
	}
	for name, change := range map[string]func(*ManagedAttr){
		"nothing settled": func(a *ManagedAttr) { *a = ManagedAttr{} }, "port 256": func(a *ManagedAttr) { a.Port = 256 },
		"GID index": func(a *ManagedAttr) { a.GIDIndex = 256 }, "MTU": func(a *ManagedAttr) { a.MTU = 128 }, "negative MTU": func(a *ManagedAttr) { a.MTU = -1 }, "P_Key index": func(a *ManagedAttr) { a.PKeyIndex = -1 },
	} {
		b := a
		change(&b)
		if err := qp.ConnectManaged(b); !errors.Is(err, unix.EINVAL) || len(v.modified) != 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A context that is wrapped is not closed with the Context.
func TestWrap(t *testing.T) {
	if _, err := Wrap(nil, nil); err == nil {
		t.Error("nothing was wrapped")
	}
	s := newScript()
	raw, err := s.Open("roce0")
	if err != nil {
		t.Fatal(err)
	}
	closed := 0
	c, err := wrap(borrowed{raw, func() { closed++ }}, "roce0", deviceTree(t), &kernel{})
	if err != nil {
		t.Fatal(err)
	}
	pd, err := c.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err == nil || closed != 0 {
		t.Errorf("closed with a PD: %v", err)
	}
	for range 2 {
		if err := errors.Join(pd.Close(), c.Close()); err != nil || closed != 1 {
			t.Errorf("close: %v, told %d times", err, closed)
		}
	}
	if s.live["context"] != 1 {
		t.Error("the context was closed")
	}
}
