// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd

import (
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/ibvfd/internal/libibverbs"
	"github.com/gpurdma/gpurdma/ibvfd/internal/verbsstub"
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

// What a side asks for is bounded by the peer: the MTU, and READs on their way, while
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

// What the fields of struct ibv_qp_attr would cut off is refused.
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

func TestAddressHandles(t *testing.T) {
	s := newScript()
	pd, qp, _ := queuePair(t, s, QPAttr{Type: UD})
	ah, err := qp.CreateAH(Endpoint{GID: [16]byte{3}, LID: 4}, PathAttr{TrafficClass: 5})
	if err != nil {
		t.Fatal(err)
	}
	want := libibverbs.Path{Port: 1, LID: 4, GID: [16]byte{3}, GIDIndex: 1, Global: true, HopLimit: 64, Class: 5}
	if got := ah.v.(*scriptAH).path; got != want {
		t.Errorf("path %+v, want %+v", got, want)
	}
	if err := pd.Close(); !errors.Is(err, dmabuf.ErrInUse) {
		t.Errorf("the PD closes under an address handle: %v", err)
	}
	wr := []SendWR{{Op: OpSend, AH: ah, QPN: 5, QKey: 6}}
	if n, err := qp.PostSend(wr); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	s.failWith("destroyAH", unix.EBUSY)
	if err := ah.Close(); !errors.Is(err, unix.EBUSY) {
		t.Errorf("Close: %v", err)
	}
	if n, err := qp.PostSend(wr); n != 1 || err != nil {
		t.Errorf("after a Close that failed: %d, %v", n, err)
	}
	s.failWith("destroyAH", nil)
	for range 2 {
		if err := ah.Close(); err != nil {
			t.Error(err)
		}
	}
	if n, err := qp.PostSend(wr); n != 0 || !errors.Is(err, unix.EINVAL) {
		t.Errorf("a closed address handle: %d, %v", n, err)
	}
	if _, err := qp.ReplyAH(&WC{}, make([]byte, GRHLen-1)); !errors.Is(err, unix.EINVAL) {
		t.Errorf("a short GRH: %v", err)
	}
	reply, err := qp.ReplyAH(&WC{}, make([]byte, GRHLen))
	if err != nil {
		t.Fatal(err)
	}
	if err := reply.Close(); err != nil {
		t.Error(err)
	}
	s.failWith("createAH", unix.EHOSTUNREACH)
	if _, err := qp.CreateAH(Endpoint{}, PathAttr{}); !errors.Is(err, unix.EHOSTUNREACH) {
		t.Errorf("CreateAH: %v", err)
	}
	if _, err := qp.ReplyAH(&WC{}, make([]byte, GRHLen)); !errors.Is(err, unix.EHOSTUNREACH) {
		t.Errorf("ReplyAH: %v", err)
	}
}

// Work requests of UD carry handle, QPN and Q_Key, and nothing else is posted.
func TestPostUD(t *testing.T) {
	pd, other := &PD{}, &PD{}
	stub, q := newSend(t, 100, 0, 8, 2)
	q.ud = &pd.parent
	ok := SendWR{ID: 1, Op: OpSend, AH: &AH{home: &pd.parent, addr: 0xabcdef0123456789}, QPN: 0x123456, QKey: 0x87654321}
	imm := ok
	imm.Op, imm.Imm = OpSendImm, 0x01020304
	for _, c := range []struct {
		name string
		wr   SendWR
		bad  postRefusal
	}{
		{"SEND", ok, postOK},
		{"SEND with immediate", imm, postOK},
		{"no handle", SendWR{Op: OpSend}, postNoAH},
		{"closed handle", SendWR{Op: OpSend, AH: &AH{home: &pd.parent}}, postNoAH},
		{"another PD's handle", SendWR{Op: OpSend, AH: &AH{home: &other.parent, addr: 1}}, postNoAH},
		{"WRITE", SendWR{Op: OpWrite, AH: ok.AH}, postOpcode},
		{"SEND with invalidate", SendWR{Op: OpSendInv, AH: ok.AH}, postOpcode},
	} {
		n, bad, _ := q.post([]SendWR{c.wr})
		if bad != c.bad || (n == 1) != (c.bad == postOK) {
			t.Errorf("%s: posted %d, %v; want %v", c.name, n, bad, c.bad)
		}
	}
	sent := stub.Sent()
	if len(sent) != 2 || sent[1].Imm != imm.Imm {
		t.Fatalf("arrived: %+v", sent)
	}
	for _, s := range sent {
		if s.AH != uint64(ok.AH.addr) || s.QPN != ok.QPN || s.QKey != ok.QKey || s.Rest {
			t.Errorf("arrived as %+v", s)
		}
	}
}

// Keys to invalidate are in the host's byte order, which immediate data is not.
func TestInvalidate(t *testing.T) {
	stub, q := newSend(t, 100, 0, 8, 2)
	if n, bad, _ := q.post([]SendWR{{Op: OpLocalInv, RKey: 0x01020304}, {Op: OpSendInv, RKey: 0x05060708}}); n != 2 || bad != postOK {
		t.Fatal(n, bad)
	}
	for i, want := range []uint32{0x01020304, 0x05060708} {
		if s := stub.Sent()[i]; s.Invalidate != want || s.Rest {
			t.Errorf("%+v, want key %#x", s, want)
		}
	}
	cq := verbsstub.NewCQ(1, 0, verbsstub.Completion{Imm: bigEndian(0x0a0b0c0d), Flags: uint32(WCWithInv)})
	defer cq.Free()
	c, err := newCompletionQueue(cq.Ptr(), verbsstub.NumberedPoll(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Free()
	wc := make([]WC, 1)
	if n := c.poll(wc); n != 1 || wc[0].Imm != 0x0a0b0c0d {
		t.Errorf("%d completions, %+v", n, wc[0])
	}
}

func TestSRQ(t *testing.T) {
	s := newScript()
	pd := scripted(t, s, &kernel{reg: always(0)})
	c := pd.Context()
	for _, fn := range []string{"createSRQ", "receive array"} {
		s.failWith(fn, unix.ENOMEM)
		if _, err := pd.CreateSRQ(SRQAttr{}); !errors.Is(err, unix.ENOMEM) {
			t.Errorf("%s: %v", fn, err)
		}
		s.failWith(fn, nil)
	}
	if _, err := pd.CreateSRQ(SRQAttr{Depth: -1}); !errors.Is(err, unix.EINVAL) {
		t.Errorf("depth -1: %v", err)
	}
	srq, err := pd.CreateSRQ(SRQAttr{Depth: 8, SGE: 2})
	if err != nil {
		t.Fatal(err)
	}
	cq, err := c.CreateCQ(8)
	if err != nil {
		t.Fatal(err)
	}
	attr := QPAttr{Type: RC, SendCQ: cq, RecvCQ: cq, SRQ: srq}
	wrong := attr
	wrong.RecvDepth = 1
	if _, err := pd.CreateQP(wrong); !errors.Is(err, unix.EINVAL) {
		t.Errorf("a receive depth beside an SRQ: %v", err)
	}
	qp, err := pd.CreateQP(attr)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := qp.PostRecv(make([]RecvWR, 1)); n != 0 || !errors.Is(err, unix.EINVAL) {
		t.Errorf("PostRecv beside an SRQ: %d, %v", n, err)
	}
	if n, err := srq.Post(make([]RecvWR, 5)); n != 5 || err != nil {
		t.Errorf("Post: %d, %v", n, err)
	}
	if n, err := srq.Post([]RecvWR{{}, {SGE: make([]SGE, 3)}}); n != 1 || !errors.Is(err, unix.EINVAL) {
		t.Errorf("too many SGEs: %d, %v", n, err)
	}
	if err := srq.SetLimit(4); err != nil {
		t.Error(err)
	}
	if n, err := srq.Limit(); n != 4 || err != nil {
		t.Errorf("Limit: %d, %v", n, err)
	}
	for _, n := range []int{-1, 9} {
		if err := srq.SetLimit(n); !errors.Is(err, unix.EINVAL) {
			t.Errorf("limit %d of 8: %v", n, err)
		}
	}
	// The script grants 64.
	if err := errors.Join(srq.Resize(16), srq.SetLimit(60), srq.SetLimit(0)); err != nil || srq.Attr() != (SRQAttr{64, 2}) {
		t.Errorf("%v, %+v", err, srq.Attr())
	}
	for fn, call := range map[string]func() error{
		"modifySRQ": func() error { return srq.SetLimit(1) }, "resizeSRQ": func() error { return srq.Resize(1) },
		"querySRQ": func() error { _, err := srq.Limit(); return err },
	} {
		s.failWith(fn, unix.EINVAL)
		if err := call(); !errors.Is(err, unix.EINVAL) {
			t.Errorf("%s: %v", fn, err)
		}
		s.failWith(fn, nil)
	}
	if err := srq.Close(); !errors.Is(err, dmabuf.ErrInUse) {
		t.Errorf("Close under a queue pair: %v", err)
	}
	if err := errors.Join(qp.Close(), cq.Close()); err != nil {
		t.Error(err)
	}
	if err := pd.Close(); !errors.Is(err, dmabuf.ErrInUse) {
		t.Errorf("the PD closes under an SRQ: %v", err)
	}
	s.failWith("destroySRQ", unix.EBUSY)
	if err := srq.Close(); !errors.Is(err, unix.EBUSY) {
		t.Errorf("Close: %v", err)
	}
	s.failWith("destroySRQ", nil)
	for range 2 {
		if err := srq.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := srq.Post(make([]RecvWR, 1)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Post to a closed SRQ: %v", err)
	}
	if err := srq.SetLimit(1); !errors.Is(err, os.ErrClosed) {
		t.Errorf("SetLimit of a closed SRQ: %v", err)
	}
}

func TestMemoryWindows(t *testing.T) {
	s := newScript()
	pd, qp, v := queuePair(t, s, QPAttr{Type: RC})
	mem, err := hostmem.Alloc(100)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	reg := func(a Access) *MR {
		t.Helper()
		mr, err := pd.RegMR(MRAttr{Kind: HostMemory, Host: mem.Bytes(), Length: 100, Access: a, Owner: mem})
		if err != nil {
			t.Fatal(err)
		}
		return mr
	}
	bindable, plain := reg(AccessLocalWrite|AccessMWBind), reg(AccessLocalWrite)
	defer bindable.Close()
	gone := reg(AccessMWBind)
	_ = gone.Close()
	if _, err := pd.AllocMW(3); !errors.Is(err, unix.EINVAL) {
		t.Errorf("type 3: %v", err)
	}
	s.failWith("allocMW", unix.EOPNOTSUPP)
	if _, err := pd.AllocMW(MWType1); !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("AllocMW: %v", err)
	}
	s.failWith("allocMW", nil)
	one, err := pd.AllocMW(MWType1)
	if err != nil {
		t.Fatal(err)
	}
	two, err := pd.AllocMW(MWType2)
	if err != nil {
		t.Fatal(err)
	}
	if err := pd.Close(); !errors.Is(err, dmabuf.ErrInUse) {
		t.Errorf("the PD closes under a window: %v", err)
	}
	good := MWBind{ID: 1, Flags: SendSignaled, MR: bindable, Addr: bindable.IOVA() + 10, Length: 20, Access: AccessRemoteRead}
	key, err := qp.BindMW(two, good)
	if err != nil || key != 0x1201 || two.RKey() != key || len(v.bound) != 1 || v.bound[0] != (libibverbs.Bind{ID: good.ID, Flags: uint32(good.Flags), Addr: good.Addr, Length: good.Length, Access: uint32(good.Access)}) {
		t.Errorf("key %#x, %v, %+v", key, err, v.bound)
	}
	bad := func(mw *MW, mr *MR, want error) {
		t.Helper()
		b := good
		b.MR = mr
		if _, err := qp.BindMW(mw, b); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	bad(two, plain, unix.EINVAL)
	bad(two, nil, unix.EINVAL)
	bad(one, nil, unix.EINVAL) // with a length
	bad(two, gone, os.ErrClosed)
	if _, err := qp.BindMW(one, MWBind{}); err != nil {
		t.Errorf("unbind: %v", err)
	}
	s.failWith("bindMW", unix.ENOMEM)
	bad(two, bindable, unix.ENOMEM)
	s.failWith("bindMW", nil)
	_ = plain.Close()
	for _, mw := range []*MW{one, one, two} {
		if err := mw.Close(); err != nil {
			t.Error(err)
		}
	}
	bad(two, bindable, os.ErrClosed)
	if two.RKey() != 0 {
		t.Error("a closed window has a key")
	}
}

// Atomic writes: who cannot have them is told what it takes, and posting one to
// a queue pair without them says so.
func TestAtomicWriteIsRefused(t *testing.T) {
	s := newScript()
	pd, qp, _ := queuePair(t, s, QPAttr{Type: RC})
	attr := QPAttr{Type: RC, SendCQ: qp.attr.SendCQ, RecvCQ: qp.attr.RecvCQ, AtomicWrite: true}
	s.failWith("createQP", unix.EOPNOTSUPP)
	_, err := pd.CreateQP(attr)
	var e *dmabuf.Error
	if !errors.Is(err, errors.ErrUnsupported) || !errors.As(err, &e) || !strings.Contains(e.Remedy, "libibverbs 44") {
		t.Errorf("%v", err)
	}
	s.failWith("createQP", nil)
	attr.Type = UD
	if _, err := pd.CreateQP(attr); !errors.Is(err, unix.EINVAL) {
		t.Errorf("UD: %v", err)
	}
	if n, err := qp.PostSend([]SendWR{{Op: OpAtomicWrite}}); n != 0 || !errors.As(err, &e) || !strings.Contains(e.Remedy, "QPAttr.AtomicWrite") {
		t.Errorf("%d, %v", n, err)
	}
}

// FLUSH likewise, beside atomic writes or alone.
func TestFlushIsRefused(t *testing.T) {
	s := newScript()
	pd, qp, _ := queuePair(t, s, QPAttr{Type: RC})
	var e *dmabuf.Error
	says := func(err error, words ...string) {
		t.Helper()
		if !errors.As(err, &e) {
			t.Fatalf("%T: %v", err, err)
		}
		for _, w := range words {
			if !strings.Contains(e.Error(), w) {
				t.Errorf("%v lacks %q", err, w)
			}
		}
	}
	attr := QPAttr{Type: RC, SendCQ: qp.attr.SendCQ, RecvCQ: qp.attr.RecvCQ, Flush: true}
	s.failWith("createQP", unix.EOPNOTSUPP)
	_, err := pd.CreateQP(attr)
	if says(err, "Linux 6.2", "libibverbs 45", "leave Flush out"); !errors.Is(err, errors.ErrUnsupported) || strings.Contains(err.Error(), "atomic") {
		t.Errorf("%v", err)
	}
	attr.AtomicWrite = true
	_, err = pd.CreateQP(attr)
	says(err, "libibverbs 44", "leave AtomicWrite out", "libibverbs 45", "leave Flush out")
	s.failWith("createQP", nil)
	attr.Type, attr.AtomicWrite = UD, false
	_, err = pd.CreateQP(attr)
	if says(err, "FLUSH on UD", "RC"); !errors.Is(err, unix.EINVAL) {
		t.Errorf("UD: %v", err)
	}
	_, err = qp.PostSend([]SendWR{{Op: OpFlush, Placement: FlushGlobal}})
	says(err, "work request 0 is a FLUSH", "QPAttr.Flush")
	for bad, words := range map[postRefusal][]string{
		postNoSGE:       {"has SGEs", "FlushLength", "CompareAdd"},
		postNoPlacement: {"no placement", "FlushGlobal", "FlushPersistent"},
		postForeign:     {"inline", "below 64 KiB", "dma-buf", "without SendInline"},
		postUnaligned:   {"atomic", "no multiple of 8"},
	} {
		says(qp.explainPost("ibv_post_send", 3, 8, 1, bad, unix.EINVAL), append(words, "work request 3")...)
	}
}

// Who may flush lets the peer do so too, unless Access says what it may do.
func TestFlushIsAllowedToThePeer(t *testing.T) {
	const classic = AccessLocalWrite | AccessRemoteRead | AccessRemoteWrite | AccessRemoteAtomic
	for _, c := range []struct {
		flush     bool
		ask, want Access
	}{
		{false, 0, classic},
		{true, 0, classic | AccessFlushGlobal | AccessFlushPersistent},
		{true, classic, classic},
		{false, classic | AccessFlushGlobal, classic | AccessFlushGlobal},
	} {
		_, qp, v := queuePair(t, newScript(), QPAttr{Type: RC, Flush: c.flush})
		if err := qp.Connect(Endpoint{QPN: 18, MTU: 512}, ConnectAttr{Access: c.ask}); err != nil {
			t.Fatal(err)
		}
		if m := v.modified[len(v.modified)-1]; v.init.Flush != c.flush || Access(m.Access) != c.want {
			t.Errorf("%+v: access %v", c, Access(m.Access))
		}
		// Nothing is flushed where nothing may be read.
		refused := c.want&accessFlush != 0
		if err := qp.Connect(Endpoint{QPN: 18, MTU: 512}, ConnectAttr{Access: c.ask, MaxRead: Zero}); errors.Is(err, unix.EINVAL) != refused || (err != nil) != refused {
			t.Errorf("%+v without READs: %v", c, err)
		}
		if err := qp.ConnectManaged(ManagedAttr{Port: 1, MTU: 512, Access: c.want}); err != nil {
			t.Errorf("%+v without READs, managed: %v", c, err)
		}
		if m := v.modified[len(v.modified)-1]; Access(m.Access) != c.want&^accessFlush {
			t.Errorf("%+v without READs, managed: access %v", c, Access(m.Access))
		}
	}
}
