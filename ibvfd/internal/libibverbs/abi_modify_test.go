// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package libibverbs

import (
	"testing"
	"unsafe"

	"github.com/gpurdma/gpurdma/ibvfd/internal/verbsstub"
)

// typeRC is of enum ibv_qp_type.
const typeRC = 2

// recorder is libibverbs with functions that record.
func recorder() *libContext {
	lib := &libibverbs{}
	*(*unsafe.Pointer)(unsafe.Pointer(&lib.c)) = verbsstub.Lib()
	return &libContext{lib: lib}
}

// Each transition has the attributes, and the mask, that ibv_modify_qp(3) wants
// for the transport: no more and no less.
func TestModifyAttributes(t *testing.T) {
	const (
		state, current, notify, access, pkey, port, qkey, av, mtu = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 4, 1 << 5, 1 << 6, 1 << 7, 1 << 8

		timeout, retry, rnr, rqPSN, maxRead, minRNR, sqPSN, maxDest, dest = 1 << 9, 1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 15, 1 << 16, 1 << 17, 1 << 20
	)
	m := QPModify{
		PKeyIndex: 3, Access: 4, QKey: 0x77,
		Path:      Path{Port: 2, LID: 33, GID: [16]byte{1, 15: 2}, GIDIndex: 4, FlowLabel: 5, HopLimit: 6, Class: 7, SL: 8, SrcPathBits: 9, StaticRate: 10},
		RemoteQPN: 18, RemotePSN: 19, MTU: 2048, MaxDestRead: 11, MinRNRTimer: 12,
		PSN: 20, Timeout: 13, RetryCount: 5, RNRRetry: 6, MaxRead: 14, Notify: true,
	}
	lid := verbsstub.Path{DLID: 33, SL: 8, SrcPathBits: 9, StaticRate: 10, Port: 2}
	global := lid
	global.Global, global.DGID, global.FlowLabel, global.SGIDIndex, global.HopLimit, global.TrafficCls = true, m.Path.GID, 5, 4, 6, 7
	beyond := m
	beyond.Path.Global = true
	resume := m
	resume.Resume, resume.Current = true, 4
	afterError := resume
	afterError.Current = 5
	for _, c := range []struct {
		name string
		typ  int
		m    QPModify
		want verbsstub.Modify
	}{
		{"RESET", typeRC, m, verbsstub.Modify{State: 0, Mask: state}},
		{"INIT", typeRC, m, verbsstub.Modify{State: 1, Port: 2, PKeyIndex: 3, Access: 4, Mask: state | port | pkey | access}},
		{"INIT", typeUD, m, verbsstub.Modify{State: 1, Port: 2, PKeyIndex: 3, QKey: 0x77, Mask: state | port | pkey | qkey}},
		{"RTR, by LID", typeRC, m, verbsstub.Modify{
			State: 2, Path: lid, MTU: 4, DestQPN: 18, RQPSN: 19, MaxDestRead: 11, MinRNRTimer: 12,
			Mask: state | av | mtu | dest | rqPSN | maxDest | minRNR,
		}},
		{"RTR, by GID", typeRC, beyond, verbsstub.Modify{
			State: 2, Path: global, MTU: 4, DestQPN: 18, RQPSN: 19, MaxDestRead: 11, MinRNRTimer: 12,
			Mask: state | av | mtu | dest | rqPSN | maxDest | minRNR,
		}},
		{"RTR", typeUD, m, verbsstub.Modify{State: 2, Mask: state}},
		{"RTS", typeRC, m, verbsstub.Modify{
			State: 3, SQPSN: 20, Timeout: 13, Retry: 5, RNR: 6, MaxRead: 14,
			Mask: state | sqPSN | timeout | retry | rnr | maxRead,
		}},
		{"RTS", typeUD, m, verbsstub.Modify{State: 3, SQPSN: 20, Mask: state | sqPSN}},
		{"RTS, resumed", typeRC, resume, verbsstub.Modify{State: 3, Current: 4, Mask: state | current}},
		{"RTS, after a failed send", typeUD, afterError, verbsstub.Modify{State: 3, Current: 5, Mask: state | current}},
		{"SQD", typeRC, m, verbsstub.Modify{State: 4, SQDNotify: 1, Mask: state | notify}},
		{"ERR", typeRC, m, verbsstub.Modify{State: 6, Mask: state}},
	} {
		c.m.Type, c.m.State = c.typ, int(c.want.State)
		q := &libQP{ctx: recorder()}
		if err := q.Modify(&c.m); err != nil {
			t.Error(err)
		}
		if got := verbsstub.Modified(); got != c.want {
			t.Errorf("%v %s:\ngot  %+v\nwant %+v", c.typ, c.name, got, c.want)
		}
	}
	if _, err := (&libPD{ctx: recorder()}).CreateAH(&beyond.Path); err != nil || verbsstub.AHMade() != global {
		t.Errorf("address handle %+v, %v", verbsstub.AHMade(), err)
	}
}
