// SPDX-License-Identifier: Apache-2.0

package fi

import (
	"fmt"
)

// AtomicOp is the operation of an atomic (enum fi_op), with libfabric's values. The constants are
// the operations that NICs have.
type AtomicOp int

// The operations.
const (
	Sum   AtomicOp = 2  // add (FI_SUM): of fetch atomics
	CSwap AtomicOp = 12 // compare, and swap if equal (FI_CSWAP): of compare atomics
)

// String returns "sum" or "compare-and-swap".
func (o AtomicOp) String() string {
	switch o {
	case Sum:
		return "sum"
	case CSwap:
		return "compare-and-swap"
	}
	return fmt.Sprintf("AtomicOp(%d)", int(o))
}

// MsgAtomic is an atomic with all its parameters (struct fi_msg_atomic). It is one operation on a
// number of 8 bytes (FI_UINT64), in the hosts' byte order.
type MsgAtomic struct {
	Operand uint64   // Sum adds it, CSwap writes it
	Result  []IOV    // 8 bytes of local memory for the old value
	Addr    Addr     // the peer
	RMAIOV  []RMAIOV // the 8 bytes of the peer's memory, aligned to 8
	Op      AtomicOp // Sum or CSwap
	Context any      // returned with the completion
}

// FetchAtomic adds operand to the 8 bytes of to, which must be aligned to 8, and puts their old
// value into the 8 bytes of result (fi_fetch_atomic of FI_UINT64). op must be Sum, otherwise
// FetchAtomic returns [EOPNOTSUPP]. It also returns EOPNOTSUPP if the NIC has no atomics. The
// operation is atomic only with respect to other atomics of the peer's NIC.
//
// With SelectiveCompletion it makes no completion unless it fails. The result has then arrived
// when a later write, message or atomic to that peer has completed.
func (e *Endpoint) FetchAtomic(operand uint64, result IOV, dest Addr, to RMAIOV, op AtomicOp, context any) error {
	if err := op.is(Sum, "a fetch atomic"); err != nil {
		return err
	}
	p, err := e.peer(dest)
	if err != nil {
		return err
	}
	return coded(e.ep.FetchAdd(result.engine(), p, to.engine(), operand, context))
}

// FetchAtomicMsg is FetchAtomic with flags (fi_fetch_atomicmsg).
func (e *Endpoint) FetchAtomicMsg(m MsgAtomic, flags Flags) error {
	if err := m.Op.is(Sum, "a fetch atomic"); err != nil {
		return err
	}
	l := e.take()
	defer e.put(l)
	l.local, l.remote = appendIOV(l.local, m.Result), appendRMAIOV(l.remote, m.RMAIOV)
	x, f, err := e.msg(l, m.Addr, flags, 0, m.Context)
	if err != nil {
		return err
	}
	return coded(e.ep.FetchAddMsg(x, m.Operand, f))
}

// CompareAtomic writes operand to the 8 bytes of to if they equal compare, and puts their old
// value into result (fi_compare_atomic of FI_UINT64). op must be CSwap, otherwise CompareAtomic
// returns [EOPNOTSUPP]. The rest is as for FetchAtomic.
func (e *Endpoint) CompareAtomic(operand, compare uint64, result IOV, dest Addr, to RMAIOV, op AtomicOp, context any) error {
	if err := op.is(CSwap, "a compare atomic"); err != nil {
		return err
	}
	p, err := e.peer(dest)
	if err != nil {
		return err
	}
	return coded(e.ep.CompareSwap(result.engine(), p, to.engine(), compare, operand, context))
}

// CompareAtomicMsg is CompareAtomic with flags (fi_compare_atomicmsg).
func (e *Endpoint) CompareAtomicMsg(m MsgAtomic, compare uint64, flags Flags) error {
	if err := m.Op.is(CSwap, "a compare atomic"); err != nil {
		return err
	}
	l := e.take()
	defer e.put(l)
	l.local, l.remote = appendIOV(l.local, m.Result), appendRMAIOV(l.remote, m.RMAIOV)
	x, f, err := e.msg(l, m.Addr, flags, 0, m.Context)
	if err != nil {
		return err
	}
	return coded(e.ep.CompareSwapMsg(x, compare, m.Operand, f))
}

// is refuses all operations but one.
func (o AtomicOp) is(one AtomicOp, call string) error {
	if o == one {
		return nil
	}
	return errorOf(call, o.String(), "use "+one.String(), EOPNOTSUPP)
}
