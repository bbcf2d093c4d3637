// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ConnectAttr tunes a connection. A zero field takes the default.
type ConnectAttr struct {
	MTU          int    // bytes; default: the smaller of both ports'
	Access       Access // what the peer may do; default: READ, WRITE and atomics, each MR allowing
	PKeyIndex    int
	HopLimit     uint8 // default 64
	TrafficClass uint8
	SL           uint8
	MinRNRTimer  uint8 // default 12 (0.64 ms)
	Timeout      uint8 // 4.096 us * 2^Timeout until a retry; default 14 (67 ms)
	RetryCount   uint8 // default 6: rxe takes 7, the most, for "for ever"
	RNRRetry     uint8 // default 7: for ever
	MaxRead      uint8 // READs and atomics on their way in each direction; default: what the device allows, 16 at most
}

func (a *ConnectAttr) setDefaults(dev DeviceAttr) {
	if a.Access == 0 {
		a.Access = AccessLocalWrite | AccessRemoteRead | AccessRemoteWrite | AccessRemoteAtomic
	}
	setDefault(&a.HopLimit, 64)
	setDefault(&a.MinRNRTimer, 12)
	setDefault(&a.Timeout, 14)
	setDefault(&a.RetryCount, 6)
	setDefault(&a.RNRRetry, 7)
	setDefault(&a.MaxRead, uint8(min(max(dev.MaxReadAtomic, 0), max(dev.MaxInitReadAtom, 0), 16)))
}

func setDefault(v *uint8, d uint8) {
	if *v == 0 {
		*v = d
	}
}

// choosePort settles port, GID and the local Endpoint.
func (q *QP) choosePort() error {
	c := q.pd.ctx
	var err error
	if q.attr.Port == 0 {
		q.attr.Port, q.port, err = c.activePort()
	} else {
		q.port, err = c.queryPort(q.attr.Port)
	}
	if err != nil {
		return err
	}
	q.local = Endpoint{LID: q.port.LID, Port: q.attr.Port, MTU: q.port.MTU}
	gid := q.attr.GID
	if gid == nil {
		table, err := c.gidTable(q.attr.Port)
		if err != nil {
			return failed("read the GID table", c.name, err)
		}
		chosen, _, err := ChooseGID(table, q.port.LinkLayer)
		if err != nil {
			e := failed("choose a GID", c.name, err)
			e.Detail = fmt.Sprintf("port %d has %d GIDs", q.attr.Port, len(table))
			e.Remedy = "give the port's network device an IP address"
			return e
		}
		gid = &chosen
	}
	q.local.GID, q.local.GIDIndex = gid.GID, gid.Index
	return nil
}

// activePort is the device's first active port.
func (c *Context) activePort() (int, PortAttr, error) {
	var none error
	for port := 1; port <= max(len(c.info.Ports), 1); port++ {
		a, err := c.queryPort(port)
		if err != nil {
			return 0, a, err
		}
		if a.State == PortActive {
			return port, a, nil
		}
		e := failed("choose a port", c.name, unix.ENETDOWN)
		e.Detail = fmt.Sprintf("port %d is %v", port, a.State)
		e.Remedy = "bring the port's network device up"
		none = errors.Join(none, e)
	}
	return 0, PortAttr{}, none
}

// Connect takes the queue pair from RESET through INIT and RTR to RTS, towards
// remote. Both sides connect, each with the other's Endpoint. A queue pair in
// another state is reset first.
func (q *QP) Connect(remote Endpoint, opt ConnectAttr) error {
	if err := q.enter(); err != nil {
		return err
	}
	defer q.leave()
	c := q.pd.ctx
	dev, err := c.v.queryDevice()
	if err != nil {
		return failed("ibv_query_device", c.name, err)
	}
	opt.setDefaults(dev)
	mtu := q.local.MTU
	if remote.MTU > 0 {
		mtu = min(mtu, remote.MTU)
	}
	if opt.MTU > 0 {
		mtu = opt.MTU
	}
	if mtuEnum(mtu) < mtuMin {
		e := failed("ibv_modify_qp", c.name, unix.EINVAL)
		e.Detail = fmt.Sprintf("MTU %d", mtu)
		e.Remedy = "256 bytes is the smallest"
		return e
	}
	if err := q.modify(&qpModify{state: StateReset}); err != nil {
		return err
	}
	m := &qpModify{
		port: q.local.Port, pkeyIndex: opt.PKeyIndex, access: opt.Access,
		remote: remote, gidIndex: q.local.GIDIndex, mtu: mtu,
		global:   q.port.LinkLayer != LinkInfiniBand || remote.LID == 0,
		hopLimit: opt.HopLimit, class: opt.TrafficClass, sl: opt.SL,
		maxDestRead: opt.MaxRead, minRNRTimer: opt.MinRNRTimer,
		psn: q.local.PSN, timeout: opt.Timeout, retryCount: opt.RetryCount, rnrRetry: opt.RNRRetry, maxRead: opt.MaxRead,
	}
	for _, s := range []QPState{StateInit, StateRTR, StateRTS} {
		m.state = s
		if err := q.modify(m); err != nil {
			return explainConnect(err, m)
		}
	}
	return nil
}

// explainConnect adds the path's numbers to a refused transition.
func explainConnect(err error, m *qpModify) error {
	n, e := asFailed(err)
	if e == nil {
		return err
	}
	switch {
	case m.state == StateRTR:
		e.Detail += fmt.Sprintf(": QP %d at GID %v, our GID index %d, port %d, MTU %d", m.remote.QPN, GID{GID: m.remote.GID}.Addr(), m.gidIndex, m.port, m.mtu)
		if n == unix.ENETUNREACH || n == unix.EHOSTUNREACH || n == unix.ETIMEDOUT || n == unix.EINVAL {
			e.Remedy = "check that the peer's address can be reached from this port's network device"
		}
	case m.state == StateInit:
		e.Detail += fmt.Sprintf(": port %d, P_Key index %d, access %v", m.port, m.pkeyIndex, m.access)
	}
	return err
}

// LoopbackPair makes two queue pairs in pd, both with cq, and connects them
// with each other. attr's CQs are ignored; 0 depths mean 1.
func LoopbackPair(pd *PD, cq *CQ, attr QPAttr) (a, b *QP, err error) {
	attr.SendCQ, attr.RecvCQ = cq, cq
	if a, err = pd.CreateQP(attr); err != nil {
		return nil, nil, err
	}
	if b, err = pd.CreateQP(attr); err != nil {
		return nil, nil, errors.Join(err, a.Close())
	}
	if err = a.Connect(b.Local(), ConnectAttr{}); err == nil {
		err = b.Connect(a.Local(), ConnectAttr{})
	}
	if err != nil {
		return nil, nil, errors.Join(err, a.Close(), b.Close())
	}
	return a, b, nil
}
