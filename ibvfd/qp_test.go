// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd

import (
	"errors"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/ibvfd/internal/libibverbs"
)

// queuePair is a scripted queue pair on a CQ of its own, closed at the end.
func queuePair(t *testing.T, s *script, attr QPAttr) (*PD, *QP, *scriptQP) {
	t.Helper()
	pd := scripted(t, s, &kernel{reg: always(0)})
	cq, err := pd.Context().CreateCQ(8)
	if err != nil {
		t.Fatal(err)
	}
	attr.SendCQ, attr.RecvCQ = cq, cq
	qp, err := pd.CreateQP(attr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, x := range []interface{ Close() error }{qp, cq} {
			if err := x.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return pd, qp, qp.v.(*scriptQP)
}

// states are those that the queue pair was taken to, from then on forgotten.
func (q *scriptQP) states() []QPState {
	var list []QPState
	for _, m := range q.modified {
		list = append(list, QPState(m.State))
	}
	q.modified = nil
	return list
}

func TestStates(t *testing.T) {
	_, qp, v := queuePair(t, newScript(), QPAttr{Type: RC})
	remote, local := Endpoint{QPN: 18, MTU: 512}, qp.Local()
	for _, step := range []struct {
		name string
		do   func() error
		want []QPState
	}{
		{"Init", func() error { return qp.Init(ConnectAttr{}) }, []QPState{StateReset, StateInit}},
		{"Connect keeps INIT's receives", func() error { return qp.Connect(remote, ConnectAttr{}) }, []QPState{StateInit, StateRTR, StateRTS}},
		{"Drain", qp.Drain, []QPState{StateSQD}},
		{"Resume", qp.Resume, []QPState{StateRTS}},
		{"Err", qp.Err, []QPState{StateErr}},
		{"Connect recovers", func() error { return qp.Connect(remote, ConnectAttr{}) }, []QPState{StateReset, StateInit, StateRTR, StateRTS}},
		{"Reset", qp.Reset, []QPState{StateReset}},
	} {
		if qp.Local() != local {
			t.Errorf("%+v, before %s: %+v", local, step.name, qp.Local())
		}
		if err := step.do(); err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
		if got := v.states(); !reflect.DeepEqual(got, step.want) {
			t.Errorf("%s goes through %v, want %v", step.name, got, step.want)
		}
	}
	again := qp.Local()
	if again.PSN == local.PSN || again.PSN >= 1<<24 {
		t.Errorf("PSN %#x, and %#x after Reset", local.PSN, again.PSN)
	}
	if again.PSN = local.PSN; again != local {
		t.Errorf("Reset makes %+v of %+v", again, local)
	}
	if err := qp.Resume(); !errors.Is(err, unix.EINVAL) || len(v.modified) != 0 {
		t.Errorf("Resume from RESET: %v", err)
	}
	if err := qp.Activate(0); !errors.Is(err, unix.EINVAL) || len(v.modified) != 0 {
		t.Errorf("Activate an RC queue pair: %v", err)
	}
	v.at = StateSQE
	if err := qp.Resume(); err != nil || !v.modified[0].Resume || v.modified[0].Current != int(StateSQE) {
		t.Errorf("Resume from SQE: %v, %+v", err, v.modified)
	}
}

func TestConnectParameters(t *testing.T) {
	_, qp, v := queuePair(t, newScript(), QPAttr{Type: RC})
	remote := Endpoint{QPN: 18, PSN: 5, MTU: 512, GID: [16]byte{1}}
	if err := qp.Connect(remote, ConnectAttr{}); err != nil {
		t.Fatal(err)
	}
	m := v.modified[len(v.modified)-1]
	if m.Timeout != 14 || m.RetryCount != 6 || m.RNRRetry != 7 || m.MaxRead != 8 || m.MinRNRTimer != 12 || m.MTU != 512 ||
		m.Path.HopLimit != 64 || !m.Path.Global || m.Path.GID != remote.GID || m.Path.GIDIndex != 1 || m.RemoteQPN != 18 || m.RemotePSN != 5 {
		t.Errorf("defaults: %+v", m)
	}
	all := ConnectAttr{
		PathAttr: PathAttr{HopLimit: 1, TrafficClass: 2, FlowLabel: 3, SL: 4, SrcPathBits: 5, StaticRate: 6},
		MTU:      256, Access: AccessRemoteRead, PKeyIndex: 7, MinRNRTimer: 8,
		Timeout: Zero, RetryCount: Zero, RNRRetry: Zero, MaxRead: Zero,
	}
	if err := qp.Connect(remote, all); err != nil {
		t.Fatal(err)
	}
	got := v.modified[len(v.modified)-1]
	want := libibverbs.QPModify{
		Type: int(RC), State: int(StateRTS), PKeyIndex: 7, Access: uint32(AccessRemoteRead), RemoteQPN: 18, RemotePSN: 5, MTU: 256, MinRNRTimer: 8, PSN: qp.Local().PSN,
		Path: libibverbs.Path{Port: 1, GID: remote.GID, GIDIndex: 1, Global: true, HopLimit: 1, Class: 2, FlowLabel: 3, SL: 4, SrcPathBits: 5, StaticRate: 6},
	}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// The peer bounds the wishes of a side: the MTU, and READs on their way, while
// it answers as many as it has said.
func TestConnectTakesTheSmaller(t *testing.T) {
	_, qp, v := queuePair(t, newScript(), QPAttr{Type: RC}) // of a port with MTU 1024, and 8 READs
	for _, c := range []struct {
		peer         int
		ask          ConnectAttr
		mtu          int
		answer, send uint8
	}{
		{4096, ConnectAttr{}, 1024, 8, 8},
		{256, ConnectAttr{MTU: 512, PeerReads: 1}, 256, 8, 1},
		{1024, ConnectAttr{MTU: 512, MaxRead: 2, PeerReads: 5}, 512, 2, 2},
		{1024, ConnectAttr{MTU: 4096, PeerReads: Zero}, 1024, 8, 0},
		{0, ConnectAttr{MTU: 4096, MaxRead: Zero, PeerReads: 5}, 1024, 0, 0},
	} {
		if err := qp.Connect(Endpoint{QPN: 18, MTU: c.peer}, c.ask); err != nil {
			t.Fatal(err)
		}
		if m := v.modified[len(v.modified)-1]; m.MTU != c.mtu || m.MaxDestRead != c.answer || m.MaxRead != c.send {
			t.Errorf("%+v: MTU %d, %d READs answered, %d sent", c, m.MTU, m.MaxDestRead, m.MaxRead)
		}
	}
}

// A number that the fields of struct ibv_qp_attr would cut off is refused.
func TestNumbersThatDoNotFit(t *testing.T) {
	pd, qp, v := queuePair(t, newScript(), QPAttr{Type: RC})
	for _, index := range []int{-1, 1 << 16} {
		for name, err := range map[string]error{
			"Connect": qp.Connect(Endpoint{QPN: 18, MTU: 512}, ConnectAttr{PKeyIndex: index}),
			"Init":    qp.Init(ConnectAttr{PKeyIndex: index}),
		} {
			if !errors.Is(err, unix.EINVAL) || len(v.modified) != 0 {
				t.Errorf("%s, P_Key index %d: %v", name, index, err)
			}
		}
	}
	for name, change := range map[string]func(a *QPAttr){
		"GID index 256": func(a *QPAttr) { a.GID = &ibdev.GID{Index: 256, GID: [16]byte{1}} },
		"GID index -1":  func(a *QPAttr) { a.GID = &ibdev.GID{Index: -1, GID: [16]byte{1}} },
		"inline 2^30":   func(a *QPAttr) { a.Inline = 1 << 30 },
		"depth 2^30":    func(a *QPAttr) { a.SendDepth = 1 << 30 },
	} {
		attr := QPAttr{Type: RC, SendCQ: qp.attr.SendCQ, RecvCQ: qp.attr.RecvCQ}
		change(&attr)
		if _, err := pd.CreateQP(attr); !errors.Is(err, unix.EINVAL) {
			t.Errorf("%s: %v", name, err)
		}
	}
	attr := QPAttr{Type: UD, SendCQ: qp.attr.SendCQ, RecvCQ: qp.attr.RecvCQ, GID: &ibdev.GID{Index: 255, GID: [16]byte{1}}}
	ud, err := pd.CreateQP(attr)
	if err != nil {
		t.Fatal(err)
	}
	if err := ud.Activate(1 << 16); !errors.Is(err, unix.EINVAL) {
		t.Errorf("Activate: %v", err)
	}
	if err := ud.Close(); err != nil {
		t.Error(err)
	}
}

// On InfiniBand the path is a LID, without a GRH, unless the peer is beyond the
// subnet, in which case it has a LID of ours to go to, a router's, only with a GRH.
func TestInfiniBand(t *testing.T) {
	s := newScript()
	s.port = &ibdev.PortAttr{State: ibdev.PortActive, MTU: 4096, MaxMTU: 4096, LID: 9, LinkLayer: ibdev.LinkInfiniBand}
	_, qp, v := queuePair(t, s, QPAttr{Type: RC, GID: &ibdev.GID{GID: [16]byte{0xfe, 0x80}}})
	if l := qp.Local(); l.LID != 9 || l.MTU != 4096 {
		t.Errorf("Local() = %+v", l)
	}
	if err := qp.Connect(Endpoint{QPN: 18, LID: 33, MTU: 2048, GID: [16]byte{2}}, ConnectAttr{PKeyIndex: 3, PathAttr: PathAttr{SL: 2, SrcPathBits: 1}}); err != nil {
		t.Fatal(err)
	}
	if m := v.modified[len(v.modified)-1]; m.Path.Global || m.Path.LID != 33 || m.Path.SL != 2 || m.Path.SrcPathBits != 1 || m.PKeyIndex != 3 || m.MTU != 2048 {
		t.Errorf("within the subnet: %+v", m)
	}
	if err := qp.Connect(Endpoint{QPN: 18, GID: [16]byte{2}}, ConnectAttr{}); err != nil {
		t.Fatal(err)
	}
	if m := v.modified[len(v.modified)-1]; !m.Path.Global || m.Path.GID != [16]byte{2} {
		t.Errorf("beyond the subnet: %+v", m)
	}
	if err := qp.Connect(Endpoint{QPN: 18, LID: 34, GID: [16]byte{2}}, ConnectAttr{PathAttr: PathAttr{Global: true}}); err != nil {
		t.Fatal(err)
	}
	if m := v.modified[len(v.modified)-1]; !m.Path.Global || m.Path.GID != [16]byte{2} || m.Path.LID != 34 {
		t.Errorf("behind a router: %+v", m)
	}
}

// A UD queue pair has no access rights and no peer, and a Q_Key.
func TestUDStates(t *testing.T) {
	_, qp, v := queuePair(t, newScript(), QPAttr{Type: UD, QKey: 0x1234})
	if qp.Local().QKey != 0x1234 {
		t.Errorf("Local() = %+v", qp.Local())
	}
	if err := qp.Activate(2); err != nil {
		t.Fatal(err)
	}
	for _, m := range v.modified {
		if m.Type != int(UD) || m.QKey != 0x1234 || m.PKeyIndex != 2 || m.Access != 0 || m.Path.Port != 1 {
			t.Errorf("%+v", m)
		}
	}
	if got := v.states(); !reflect.DeepEqual(got, []QPState{StateReset, StateInit, StateRTR, StateRTS}) {
		t.Errorf("Activate goes through %v", got)
	}
	if err := qp.Connect(Endpoint{QPN: 1, MTU: 512}, ConnectAttr{}); !errors.Is(err, unix.EINVAL) || len(v.modified) != 0 {
		t.Errorf("Connect a UD queue pair: %v", err)
	}
	if err := errors.Join(qp.Init(ConnectAttr{}), qp.Activate(0)); err != nil {
		t.Fatal(err)
	}
	if got := v.states(); !reflect.DeepEqual(got, []QPState{StateReset, StateInit, StateInit, StateRTR, StateRTS}) {
		t.Errorf("Activate after Init goes through %v", got)
	}
}

// After an error a UD queue pair comes back: from ERR by Activate, through all states
// with its Q_Key, and from SQE, in which a failed send leaves it, by Resume.
func TestUDRecovers(t *testing.T) {
	_, qp, v := queuePair(t, newScript(), QPAttr{Type: UD, QKey: 0x1234})
	if err := qp.Activate(0); err != nil {
		t.Fatal(err)
	}
	v.modified = nil
	v.at = StateErr
	if err := qp.Resume(); !errors.Is(err, unix.EINVAL) || len(v.modified) != 0 {
		t.Errorf("Resume from ERR: %v, %+v", err, v.modified)
	}
	if err := qp.Activate(3); err != nil {
		t.Fatal(err)
	}
	for _, m := range v.modified {
		if m.Type != int(UD) || m.QKey != 0x1234 || m.PKeyIndex != 3 || m.Resume {
			t.Errorf("Activate from ERR: %+v", m)
		}
	}
	if got := v.states(); !reflect.DeepEqual(got, []QPState{StateReset, StateInit, StateRTR, StateRTS}) || v.at != StateRTS {
		t.Errorf("Activate from ERR goes through %v to %v", got, v.at)
	}
	v.at = StateSQE
	if err := qp.Resume(); err != nil || v.at != StateRTS {
		t.Errorf("Resume from SQE: %v, in %v", err, v.at)
	}
	if want := []libibverbs.QPModify{{Type: int(UD), State: int(StateRTS), Resume: true, Current: int(StateSQE)}}; !reflect.DeepEqual(v.modified, want) {
		t.Errorf("Resume from SQE asks for %+v, want %+v", v.modified, want)
	}
}

// A fault that the device finds while it resets the queue pair takes that to
// ERR: it is reset again, and not for ever.
func TestResetAgain(t *testing.T) {
	_, qp, v := queuePair(t, newScript(), QPAttr{Type: RC})
	v.at, v.faults = StateErr, 2
	if err := qp.Connect(Endpoint{QPN: 18, MTU: 512}, ConnectAttr{}); err != nil {
		t.Fatal(err)
	}
	if got := v.states(); !reflect.DeepEqual(got, []QPState{StateReset, StateReset, StateReset, StateInit, StateRTR, StateRTS}) {
		t.Errorf("Connect goes through %v", got)
	}
	v.faults = 100
	if err := qp.Reset(); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("a queue pair that stays in ERR: %v", err)
	}
	if got := v.states(); len(got) != 1+maxResets {
		t.Errorf("Reset goes through %v", got)
	}
}
