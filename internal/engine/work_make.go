// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/lower"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
)

// begin prepares work requests within the limits of the connection.
func (o *Work) begin(c *Conn) error {
	for _, rb := range o.bufs { // the op may have been posted before the connection was up
		if err := c.permits(rb); err != nil {
			return err
		}
	}
	if c.a.ReadsOut == 0 && o.reads() { // otherwise it would wait for ever, or end the connection
		return &dmabuf.Error{
			Op: o.kind.String(), Detail: "no READs or atomics may be on their way", Err: unix.EOPNOTSUPP,
			Remedy: "leave the number of READs at its default, here and at the peer (MaxRead)",
		}
	}
	lim := lower.Limits{MaxSGE: c.a.SGE, MaxMsg: c.a.MaxMsg, MaxInline: c.a.Inline}
	for i := range o.operands {
		if !o.operands[i].Host() {
			lim.MaxInline = 0
		}
	}
	switch o.kind {
	case operation.Read:
		lim.MaxSGE = c.a.ReadSGE
		lower.Start(&o.low, ibvfd.OpRead, o.local, o.remote, o.length, lim)
	case operation.Write:
		lower.Start(&o.low, ibvfd.OpWrite, o.local, o.remote, o.length, lim)
	case operation.Send, operation.Recv:
		if o.letter.kind != 0 {
			return nil // it fits into its slot
		}
		return o.beginMessage(c)
	}
	return nil
}

// reads reports whether the op uses a READ or an atomic.
func (o *Work) reads() bool {
	switch o.kind {
	case operation.Read, operation.FetchAdd, operation.CompareSwap:
		return true
	}
	return o.kind == operation.Write && o.flags&operation.FlagDeliveryComplete != 0 && o.length > 0
}

// beginMessage packs a message that has more pieces than a work request may have.
func (o *Work) beginMessage(c *Conn) error {
	if o.length > c.a.MaxMsg {
		return &dmabuf.Error{
			Op: o.kind.String(), Err: dmabuf.ErrLimit,
			Detail: fmt.Sprintf("%d bytes; a message of this connection has at most %d", o.length, c.a.MaxMsg), Remedy: "write it, or send parts",
		}
	}
	n := o.pieces()
	if n <= c.a.SGE {
		return nil
	}
	if b := o.refusesPack(); b != nil {
		return o.unpacked(b, n, c.a.SGE)
	}
	c.later(o, (*Work).packInto)
	return nil
}

// refusesPack returns a Buffer of the message whose bytes the CPU must not move, nil if there
// is none.
func (o *Work) refusesPack() *memory.Buffer {
	for i := range o.operands {
		if b := o.operands[i].DirectOnly(); b != nil {
			return b
		}
	}
	return nil
}

// packInto gives a message its own memory, in one piece. It takes long.
func (o *Work) packInto(e *Endpoint) error {
	pack, err := e.nic.AllocHost(o.length)
	if err != nil {
		return err
	}
	if err := pack.Use(); err != nil {
		return err
	}
	_ = pack.Release() // from here on it is freed when the op is recycled
	o.pack = pack
	if o.kind == operation.Send {
		if err := o.gather(pack.HostBytes()); err != nil {
			return err
		}
		e.nic.CountStaged(o.length)
	}
	o.local = append(o.local[:0], pack.Window(0, o.length))
	return nil
}

// unpacked returns the error for a message with bytes of b that cannot be packed.
func (o *Work) unpacked(b *memory.Buffer, pieces, most int) error {
	return &dmabuf.Error{
		Op: o.kind.String(), Device: b.String(), Err: unix.EOPNOTSUPP,
		Detail: fmt.Sprintf("%d pieces; a work request of this connection has at most %d, and the buffer is DirectOnly, so that the CPU packs none", pieces, most),
		Remedy: "allow more pieces (IOVLimit), send and receive parts, read or write instead, or register it with PreferDirect",
	}
}

func (o *Work) pieces() int {
	p, n := lower.PiecesOf(o.local), 0
	for _, ok := p.Next(); ok; _, ok = p.Next() {
		n++
	}
	return n
}

func (o *Work) gather(p []byte) error {
	for i := range o.operands {
		x := &o.operands[i]
		if err := x.Gather(p[:x.Len]); err != nil {
			return err
		}
		p = p[x.Len:]
	}
	return nil
}

// make fills wrs with the next work requests. It returns their number, and the number of SGEs
// used. sges must have room for the most SGEs that one work request may have.
func (o *Work) make(c *Conn, wrs []ibvfd.SendWR, sges []ibvfd.SGE) (n, used int) {
	if o.letter.kind != 0 && (o.kind == operation.Send || o.noting || o.length == 0) {
		return o.makeLetter(c, wrs, sges)
	}
	switch o.kind {
	case operation.Send:
		used = o.message(sges)
		wrs[0] = ibvfd.SendWR{Op: ibvfd.OpSend, SGE: sges[:used:used]}
		if o.flags&operation.FlagRemoteCQData != 0 {
			wrs[0].Op, wrs[0].Imm = ibvfd.OpSendImm, o.data
		}
		if o.inline(c) {
			wrs[0].Flags |= ibvfd.SendInline
		}
		n, o.made = 1, true
	case operation.FetchAdd, operation.CompareSwap:
		used = o.message(sges)
		r := lower.PiecesOf(o.remote)
		to, _ := r.Next()
		wrs[0] = ibvfd.SendWR{Op: ibvfd.OpFetchAdd, SGE: sges[:used:used], RemoteAddr: to.Addr, RKey: to.Key, CompareAdd: o.add, Swap: o.swap}
		if o.kind == operation.CompareSwap {
			wrs[0].Op = ibvfd.OpCompareSwap
		}
		n, o.made = 1, true
	default:
		n, used = o.transfer(c, wrs, sges)
	}
	return n, used
}

// inline reports whether the CPU can put the message into the work request.
func (o *Work) inline(c *Conn) bool {
	if o.length > int64(c.a.Inline) || o.pack != nil {
		return false
	}
	for i := range o.operands {
		if !o.operands[i].Host() {
			return false
		}
	}
	return true
}

// message makes the SGEs of a message; begin has checked that they fit.
func (o *Work) message(sges []ibvfd.SGE) (used int) {
	p := lower.PiecesOf(o.local)
	for g, ok := p.Next(); ok; g, ok = p.Next() {
		sges[used] = ibvfd.SGE{Addr: g.Addr, Length: uint32(g.Length), LKey: g.Key}
		used++
	}
	return used
}

// transfer makes work requests of a read or a write.
func (o *Work) transfer(c *Conn, wrs []ibvfd.SendWR, sges []ibvfd.SGE) (n, used int) {
	if o.flushing {
		// Read one byte back into memory that is not used otherwise.
		sink := c.e.slab.Sink()
		sges[0] = ibvfd.SGE{Addr: sink.Addr, Length: 1, LKey: sink.Key}
		wrs[0] = ibvfd.SendWR{Op: ibvfd.OpRead, SGE: sges[:1:1], RemoteAddr: o.last.Addr, RKey: o.last.Key}
		o.moved()
		return 1, 1
	}
	if o.length == 0 {
		// For 0 bytes the peer's NIC checks neither address nor key.
		wrs[0] = ibvfd.SendWR{Op: ibvfd.OpWrite}
		if o.kind == operation.Read {
			wrs[0].Op = ibvfd.OpRead
		}
		n = 1
	} else {
		n = o.low.Next(wrs, sges)
	}
	for _, wr := range wrs[:n] {
		used += len(wr.SGE)
	}
	if !o.low.Done() {
		return n, used
	}
	end := &wrs[n-1]
	o.last = lower.Piece{Addr: end.RemoteAddr, Key: end.RKey}
	if o.flags&operation.FlagRemoteCQData != 0 {
		end.Op, end.Imm = ibvfd.OpWriteImm, o.data
	}
	if o.kind == operation.Write && o.flags&operation.FlagDeliveryComplete != 0 && o.length > 0 {
		o.flushing = true
	} else {
		o.moved()
	}
	return n, used
}

// moved is called when all work requests for the bytes are made.
func (o *Work) moved() {
	if o.letter.kind != 0 {
		o.noting = true
	} else {
		o.made = true
	}
}

// slowEnd reports whether received bytes must be copied to other memory, or memory must be
// freed, before the program gets the completion.
func (o *Work) slowEnd() bool {
	if o.pack != nil {
		return true
	}
	switch o.kind {
	case operation.Write, operation.Send, operation.RemoteWrite:
		return false
	}
	for i := range o.operands {
		if o.operands[i].Staged() {
			return true
		}
	}
	return false
}

// arrive copies these bytes to their place, and frees the memory. It takes long.
func (o *Work) arrive(e *Endpoint) error {
	n := o.length
	if o.pack != nil {
		defer func() {
			o.pack.Unuse()
			o.pack = nil
		}()
		if o.kind != operation.Recv {
			return nil
		}
		p := o.pack.HostBytes()[:n]
		e.nic.CountStaged(n)
		for i := range o.operands {
			x := &o.operands[i]
			k := min(x.Len, int64(len(p)))
			if err := x.Scatter(p[:k]); err != nil {
				return err
			}
			p = p[k:]
		}
		return nil
	}
	for i := range o.operands {
		x := &o.operands[i]
		k := min(x.Len, n)
		if err := x.Arrived(k); err != nil {
			return err
		}
		n -= k
	}
	return nil
}
