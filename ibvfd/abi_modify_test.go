// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd

import (
	"testing"
	"unsafe"

	"github.com/gpurdma/gpurdma/ibvfd/internal/verbsstub"
)

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
	m := qpModify{
		pkeyIndex: 3, access: AccessRemoteRead, qkey: 0x77,
		path:      pathAttr{port: 2, lid: 33, gid: [16]byte{1, 15: 2}, gidIndex: 4, flowLabel: 5, hopLimit: 6, class: 7, sl: 8, srcPathBits: 9, staticRate: 10},
		remoteQPN: 18, remotePSN: 19, mtu: 2048, maxDestRead: 11, minRNRTimer: 12,
		psn: 20, timeout: 13, retryCount: 5, rnrRetry: 6, maxRead: 14, notify: true,
	}
	lid := verbsstub.Path{DLID: 33, SL: 8, SrcPathBits: 9, StaticRate: 10, Port: 2}
	global := lid
	global.Global, global.DGID, global.FlowLabel, global.SGIDIndex, global.HopLimit, global.TrafficCls = true, m.path.gid, 5, 4, 6, 7
	beyond := m
	beyond.path.global = true
	resume := m
	resume.resume, resume.current = true, StateSQD
	afterError := resume
	afterError.current = StateSQE
	for _, c := range []struct {
		name string
		typ  QPType
		m    qpModify
		want verbsstub.Modify
	}{
		{"RESET", RC, m, verbsstub.Modify{State: 0, Mask: state}},
		{"INIT", RC, m, verbsstub.Modify{State: 1, Port: 2, PKeyIndex: 3, Access: 4, Mask: state | port | pkey | access}},
		{"INIT", UD, m, verbsstub.Modify{State: 1, Port: 2, PKeyIndex: 3, QKey: 0x77, Mask: state | port | pkey | qkey}},
		{"RTR, by LID", RC, m, verbsstub.Modify{
			State: 2, Path: lid, MTU: 4, DestQPN: 18, RQPSN: 19, MaxDestRead: 11, MinRNRTimer: 12,
			Mask: state | av | mtu | dest | rqPSN | maxDest | minRNR,
		}},
		{"RTR, by GID", RC, beyond, verbsstub.Modify{
			State: 2, Path: global, MTU: 4, DestQPN: 18, RQPSN: 19, MaxDestRead: 11, MinRNRTimer: 12,
			Mask: state | av | mtu | dest | rqPSN | maxDest | minRNR,
		}},
		{"RTR", UD, m, verbsstub.Modify{State: 2, Mask: state}},
		{"RTS", RC, m, verbsstub.Modify{
			State: 3, SQPSN: 20, Timeout: 13, Retry: 5, RNR: 6, MaxRead: 14,
			Mask: state | sqPSN | timeout | retry | rnr | maxRead,
		}},
		{"RTS", UD, m, verbsstub.Modify{State: 3, SQPSN: 20, Mask: state | sqPSN}},
		{"RTS, resumed", RC, resume, verbsstub.Modify{State: 3, Current: 4, Mask: state | current}},
		{"RTS, after a failed send", UD, afterError, verbsstub.Modify{State: 3, Current: 5, Mask: state | current}},
		{"SQD", RC, m, verbsstub.Modify{State: 4, SQDNotify: 1, Mask: state | notify}},
		{"ERR", RC, m, verbsstub.Modify{State: 6, Mask: state}},
	} {
		c.m.typ, c.m.state = c.typ, QPState(c.want.State)
		q := &libQP{ctx: recorder()}
		if err := q.modify(&c.m); err != nil {
			t.Error(err)
		}
		if got := verbsstub.Modified(); got != c.want {
			t.Errorf("%v %s:\ngot  %+v\nwant %+v", c.typ, c.name, got, c.want)
		}
	}
	if _, err := (&libPD{ctx: recorder()}).createAH(&beyond.path); err != nil || verbsstub.AHMade() != global {
		t.Errorf("address handle %+v, %v", verbsstub.AHMade(), err)
	}
}
