// SPDX-License-Identifier: Apache-2.0

package station

import (
	"errors"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/buffer"
	"github.com/gpurdma/gpurdma/internal/engine"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/rails"
)

// What happens to a rail is said once: that it has no link, and that it has one again.
func TestRailChange(t *testing.T) {
	down := map[string]bool{}
	state := func(up, slow bool, err error) rails.State {
		return rails.State{Path: engine.ConnPath{NIC: "mlx5_1", Port: 1}, Up: up, Slow: slow, Err: err}
	}
	for i, c := range []struct {
		s    rails.State
		says string
	}{
		{state(true, false, nil), ""}, // it was made
		{state(true, true, nil), ""},
		{state(false, false, errors.New("a cable is cut")), "the rail of mlx5_1 has no link: a cable is cut"},
		{state(true, false, nil), "the rail of mlx5_1 has a link again: port 1 of mlx5_1"},
		{state(true, false, nil), ""},
		{state(false, false, nil), "the rail of mlx5_1 has no link: its port is down"},
	} {
		if got := railChange(c.s, down); got != c.says && (c.says == "" || !strings.HasPrefix(got, c.says)) {
			t.Errorf("%d: %q, want %q", i, got, c.says)
		}
	}
}

// A NIC whose registration is refused says why, and whether another NIC reaches the memory.
func TestDescribeSeveral(t *testing.T) {
	s := &Station{src: &buffer.Source{}}
	refused := errors.New("rxe1 has refused it")
	for _, c := range []struct {
		path        memory.Path
		kind, words string
	}{
		{memory.Path{Direct: memory.Registered, Route: "REG_DMABUF_MR ioctl"}, PathDirect, "registered by REG_DMABUF_MR ioctl"},
		{memory.Path{Direct: memory.Missing, Reason: refused}, pathMissing, "the registration was refused, and another NIC reaches the memory: rxe1 has refused it"},
		{memory.Path{Reason: refused}, PathStaged, "the registration was refused: rxe1 has refused it"},
		{memory.Path{}, PathStaged, "asked for by --policy"},
	} {
		var r registration
		if s.describeOne(&r, c.path); r.Path != c.kind || r.Why != c.words {
			t.Errorf("%v: %+v", c.path, r)
		}
	}
	s.src = nil
	var r registration
	if s.describeOne(&r, memory.Path{}); r.Path != Host {
		t.Errorf("%+v", r)
	}
}

// A side with several NICs admits callers with several, and one with one admits those with one.
func TestAdmit(t *testing.T) {
	one := &Station{Side: Side{NIC: "b0"}, nics: make([]*memory.NIC, 1)}
	several := &Station{Side: Side{NIC: "a0,a1"}, nics: make([]*memory.NIC, 2)}
	if err := several.admit(t.Context(), engine.PeerInfo{}); err == nil || !strings.Contains(err.Error(), "--nic a0,a1, and the client 1") {
		t.Errorf("one NIC to several: %v", err)
	}
	if err := one.admit(t.Context(), engine.PeerInfo{Hello: greeting(2)}); err == nil || !strings.Contains(err.Error(), "and the client 2") {
		t.Errorf("several NICs to one: %v", err)
	}
	if err := one.admit(t.Context(), engine.PeerInfo{}); err != nil {
		t.Errorf("one NIC to one: %v", err)
	}
	if err := several.admit(t.Context(), engine.PeerInfo{Hello: greeting(3)}); err != nil {
		t.Errorf("three NICs to two: %v", err)
	}
}
