// SPDX-License-Identifier: Apache-2.0

package request

import (
	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/lower"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/rc"
)

// Begin prepares work requests within the limits of a connection. If it returns true, Pack must
// run before the first one is made.
func (r *Request) Begin(a *rc.Attr) (pack bool, err error) {
	if a.ReadsOut == 0 && r.reads() { // otherwise the request would wait for ever, or end the connection
		return false, &failure.Error{
			Op: r.Kind.String(), Detail: "no READs or atomics may be on their way", Err: unix.EOPNOTSUPP,
			Remedy: "leave the number of READs at its default, here and at the peer (MaxRead)",
		}
	}
	lim := lower.Limits{MaxSGE: a.SGE, MaxMsg: a.MaxMsg, MaxInline: a.Inline}
	if !r.host() {
		lim.MaxInline = 0
	}
	switch r.Kind {
	case operation.Read:
		lim.MaxSGE = a.ReadSGE
		lower.Start(&r.low, ibvfd.OpRead, r.local, r.remote, r.Length, lim)
	case operation.Write:
		lower.Start(&r.low, ibvfd.OpWrite, r.local, r.remote, r.Length, lim)
	case operation.Send, operation.Recv:
		return r.packs(a)
	}
	return false, nil
}

// reads reports whether the request uses a READ or an atomic.
func (r *Request) reads() bool {
	switch r.Kind {
	case operation.Read, operation.FetchAdd, operation.CompareSwap:
		return true
	}
	return r.Kind == operation.Write && r.Flags&operation.FlagDeliveryComplete != 0 && r.Length > 0
}

// host reports whether the CPU can read all local memory.
func (r *Request) host() bool {
	for i := range r.operands {
		if !r.operands[i].Host() {
			return false
		}
	}
	return true
}

// Made reports whether all work requests are made.
func (r *Request) Made() bool { return r.made }

// Next fills wrs with the next work requests. It returns their number, and the number of SGEs
// used. sges must have room for the most SGEs that one work request may have.
func (r *Request) Next(a *rc.Attr, wrs []ibvfd.SendWR, sges []ibvfd.SGE) (n, used int) {
	switch r.Kind {
	case operation.Send:
		used = r.Message(sges)
		wrs[0] = ibvfd.SendWR{Op: ibvfd.OpSend, SGE: sges[:used:used]}
		if r.Flags&operation.FlagRemoteCQData != 0 {
			wrs[0].Op, wrs[0].Imm = ibvfd.OpSendImm, r.Data
		}
		// The CPU can put the message into the work request.
		if r.Length <= int64(a.Inline) && r.pack == nil && r.host() {
			wrs[0].Flags |= ibvfd.SendInline
		}
		n, r.made = 1, true
	case operation.FetchAdd, operation.CompareSwap:
		used = r.Message(sges)
		x := lower.PiecesOf(r.remote)
		to, _ := x.Next()
		wrs[0] = ibvfd.SendWR{Op: ibvfd.OpFetchAdd, SGE: sges[:used:used], RemoteAddr: to.Addr, RKey: to.Key, CompareAdd: r.add, Swap: r.swap}
		if r.Kind == operation.CompareSwap {
			wrs[0].Op = ibvfd.OpCompareSwap
		}
		n, r.made = 1, true
	default:
		n, used = r.transfer(wrs, sges)
	}
	return n, used
}

// Message makes the SGEs of a message or a receive, and returns their number; Begin has checked
// that they fit.
func (r *Request) Message(sges []ibvfd.SGE) (used int) {
	p := lower.PiecesOf(r.local)
	for g, ok := p.Next(); ok; g, ok = p.Next() {
		sges[used] = ibvfd.SGE{Addr: g.Addr, Length: uint32(g.Length), LKey: g.Key}
		used++
	}
	return used
}

// transfer makes work requests of a read or a write.
func (r *Request) transfer(wrs []ibvfd.SendWR, sges []ibvfd.SGE) (n, used int) {
	if r.flushing {
		// Read one byte back into memory that is not used otherwise.
		sink := r.home.Slab.Sink()
		sges[0] = ibvfd.SGE{Addr: sink.Addr, Length: 1, LKey: sink.Key}
		wrs[0] = ibvfd.SendWR{Op: ibvfd.OpRead, SGE: sges[:1:1], RemoteAddr: r.last.Addr, RKey: r.last.Key}
		r.made = true
		return 1, 1
	}
	if r.Length == 0 {
		// For 0 bytes the peer's NIC checks neither address nor key.
		wrs[0] = ibvfd.SendWR{Op: ibvfd.OpWrite}
		if r.Kind == operation.Read {
			wrs[0].Op = ibvfd.OpRead
		}
		n = 1
	} else {
		n = r.low.Next(wrs, sges)
	}
	for _, wr := range wrs[:n] {
		used += len(wr.SGE)
	}
	if !r.low.Done() {
		return n, used
	}
	end := &wrs[n-1]
	r.last = lower.Piece{Addr: end.RemoteAddr, Key: end.RKey}
	if r.Flags&operation.FlagRemoteCQData != 0 {
		end.Op, end.Imm = ibvfd.OpWriteImm, r.Data
	}
	if r.Kind == operation.Write && r.Flags&operation.FlagDeliveryComplete != 0 && r.Length > 0 {
		r.flushing = true
	} else {
		r.made = true
	}
	return n, used
}
