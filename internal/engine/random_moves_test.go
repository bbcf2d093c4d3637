// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"encoding/binary"

	"github.com/gpurdma/gpurdma/internal/layouttest"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/rma"
)

// moves are the operations of a contest, each dealt as often as the others. They return false
// if the memory that they need does not become free soon.
var moves = [...]struct {
	name string
	do   func(c *contest, by int) bool
}{
	{"read", (*contest).read},
	{"write", func(c *contest, by int) bool { return c.write(by, c.length(0), 0) }},
	{"write with data", func(c *contest, by int) bool { return c.write(by, c.length(0), operation.FlagRemoteCQData) }},
	{"inject of a buffer", func(c *contest, by int) bool { return c.write(by, c.length(mostInjected), operation.FlagInject) }},
	{"inject", func(c *contest, by int) bool { return c.inject(by, 0) }},
	{"inject with data", func(c *contest, by int) bool { return c.inject(by, operation.FlagRemoteCQData) }},
	{"send", func(c *contest, by int) bool { return c.send(by, c.length(0), 0) }},
	{"send with data", func(c *contest, by int) bool { return c.send(by, c.length(0), operation.FlagRemoteCQData) }},
	{"send injected", func(c *contest, by int) bool { return c.send(by, c.length(mostInjected), operation.FlagInject) }},
	{"fetch and add", func(c *contest, by int) bool { return c.atomic(by, operation.FetchAdd) }},
	{"compare and swap", func(c *contest, by int) bool { return c.atomic(by, operation.CompareSwap) }},
	{"the CPU", (*contest).cpu},
}

// allMoves are the names of all moves; no other check finds that a move is missing above.
var allMoves = [...]string{
	"read", "write", "write with data", "inject of a buffer", "inject", "inject with data",
	"send", "send with data", "send injected", "fetch and add", "compare and swap", "the CPU",
}

// mostInjected is more than goes into a work request.
const mostInjected = 128

// length returns the length of an operation: mostly short, and sometimes 0.
func (c *contest) length(most int) int {
	if most == 0 {
		if most = 200; c.r.IntN(8) == 0 {
			most = int(c.shape.Room)
		}
	}
	return c.r.IntN(most + 1)
}

// flags returns some flags without visible effect, and a fence if one is needed.
func (c *contest) flags(fence bool) (f operation.Flags) {
	if c.r.IntN(8) == 0 || fence {
		f |= operation.FlagFence
	}
	if c.r.IntN(4) == 0 {
		f |= operation.FlagMore
	}
	return f
}

func (c *contest) read(by int) bool {
	n := c.length(0)
	into, from := c.choose(n, true), c.choose(n, false)
	f := &flight{by: by, op: operation.Read, want: operation.Completion{Len: int64(n)}}
	f.writes[by], f.reads[1-by] = c.set(into), c.set(from)
	fence, ok := c.free(f)
	if !ok {
		return false
	}
	local, flags := c.spans(by, into), c.flags(fence)
	remote, _ := c.remote(by, from)
	c.post(f, "%d bytes into %v from %v, %v", n, into, from, flags)
	c.put(by, into.at, c.get(1-by, from.at))
	s := c.side[by]
	switch {
	case flags == 0 && len(local) == 1 && len(remote) == 1:
		c.ok(s.e.Read(local[0], s.peer, remote[0], f.number))
	case flags == 0 && len(remote) == 1:
		c.ok(s.e.ReadV(local, s.peer, remote[0], f.number))
	default:
		c.ok(s.e.ReadMsg(rma.Msg{Local: local, Peer: s.peer, Remote: remote, Context: f.number}, flags))
	}
	return true
}

func (c *contest) write(by, n int, flags operation.Flags) bool {
	from, to := c.choose(n, false), c.choose(n, true)
	f := &flight{by: by, op: operation.Write, want: operation.Completion{Len: int64(n)}}
	f.reads[by], f.writes[1-by] = c.set(from), c.set(to)
	var told *flight
	if flags&operation.FlagRemoteCQData != 0 {
		if told = c.receiver(1 - by); told == nil {
			return false
		}
	}
	fence, ok := c.free(f)
	if !ok {
		return false
	}
	local, data := c.spans(by, from), c.r.Uint32()
	remote, several := c.remote(by, to)
	if flags |= c.flags(fence); !several && c.r.IntN(3) == 0 {
		flags |= operation.FlagDeliveryComplete
	}
	if flags&operation.FlagInject != 0 {
		f.reads[by] = nil
	}
	c.post(f, "%d bytes from %v to %v, %v", n, from, to, flags)
	c.put(1-by, to.at, c.get(by, from.at))
	if told != nil {
		c.tell(told, f, operation.RemoteWrite, n, operation.FlagRemoteCQData, data)
	}
	s := c.side[by]
	switch {
	case flags == 0 && len(local) == 1 && len(remote) == 1:
		c.ok(s.e.Write(local[0], s.peer, remote[0], f.number))
	case flags == operation.FlagRemoteCQData && len(local) == 1 && len(remote) == 1:
		c.ok(s.e.WriteData(local[0], uint64(data), s.peer, remote[0], f.number))
	case flags == 0 && len(remote) == 1:
		c.ok(s.e.WriteV(local, s.peer, remote[0], f.number))
	default:
		m := rma.Msg{Local: local, Peer: s.peer, Remote: remote, Context: f.number}
		if told != nil {
			m.Data = uint64(data)
		}
		c.ok(s.e.WriteMsg(m, flags))
	}
	return true
}

// inject writes bytes of Go memory.
func (c *contest) inject(by int, flags operation.Flags) bool {
	n := c.length(mostInjected)
	p, to, data := c.random(n), c.choose(n, true), c.r.Uint32()
	for len(to.parts) > 1 { // InjectWrite takes one span
		to = c.choose(n, true)
	}
	f := &flight{by: by, op: operation.Write, silent: true}
	f.writes[1-by] = c.set(to)
	var told *flight
	if flags != 0 {
		if told = c.receiver(1 - by); told == nil {
			return false
		}
	}
	if !c.quiet(f) {
		return false
	}
	remote, _ := c.remote(by, to)
	remote = append(remote, memory.RemoteSpan{})
	c.post(f, "%d bytes to %v, injected", n, to)
	c.put(1-by, to.at, p)
	s := c.side[by]
	if told != nil {
		c.tell(told, f, operation.RemoteWrite, n, operation.FlagRemoteCQData, data)
		c.ok(s.e.InjectWriteData(p, uint64(data), s.peer, remote[0]))
	} else {
		c.ok(s.e.InjectWrite(p, s.peer, remote[0]))
	}
	clear(p) // inject has copied it
	return true
}

func (c *contest) send(by, n int, flags operation.Flags) bool {
	to := c.receiver(1 - by)
	if to == nil {
		return false
	}
	n = min(n, len(to.to.at))
	from, data := c.choose(n, false), c.r.Uint32()
	f := &flight{by: by, op: operation.Send, want: operation.Completion{Len: int64(n)}}
	f.reads[by] = c.set(from)
	fence, ok := c.free(f)
	if !ok {
		return false
	}
	told := flags & operation.FlagRemoteCQData
	if flags |= c.flags(fence); flags&operation.FlagInject != 0 {
		f.reads[by] = nil
	}
	if told == 0 {
		data = 0
	}
	local := c.spans(by, from)
	c.post(f, "%d bytes from %v to receive %d, %v", n, from, to.number, flags)
	c.put(1-by, to.to.at[:n], c.get(by, from.at))
	c.tell(to, f, operation.Recv, n, told, data)
	s := c.side[by]
	if flags == 0 && len(local) == 1 {
		c.ok(s.e.Send(local[0], s.peer, f.number))
	} else {
		c.ok(s.e.SendMsg(rma.Msg{Local: local, Peer: s.peer, Data: uint64(data), Context: f.number}, flags))
	}
	return true
}

// receiver returns the oldest receive of a side for which nothing was sent; it posts some if
// there is none.
func (c *contest) receiver(by int) *flight {
	s := c.side[by]
	for n := 1 + c.r.IntN(3); s.e != nil && n > 0 && len(s.ready) < 2; n-- {
		p := c.choose(c.length(0), true)
		f := &flight{by: by, op: operation.Recv, to: p}
		f.writes[by] = c.set(p)
		if _, ok := c.free(f); !ok {
			break
		}
		local := c.spans(by, p)
		c.post(f, "%d bytes into %v", len(p.at), p)
		if len(local) == 1 {
			c.ok(s.e.Recv(local[0], s.peer, f.number))
		} else {
			c.ok(s.e.RecvV(local, s.peer, f.number))
		}
	}
	if len(s.ready) == 0 {
		return nil
	}
	return s.ready[0]
}

// tell prepares a receive for the operation that will be sent to it.
func (c *contest) tell(to, from *flight, op operation.Kind, n int, flags operation.Flags, data uint32) {
	to.sender, to.parted = from.number, op == operation.RemoteWrite
	to.want = operation.Completion{Op: op, Len: int64(n), Flags: flags, Data: data}
	s := c.side[to.by]
	s.ready = s.ready[1:]
}

func (c *contest) atomic(by int, op operation.Kind) bool {
	into, at := c.run8(1), c.run8(8)
	f := &flight{by: by, op: op, want: operation.Completion{Len: 8}}
	f.writes[by] = c.set(into)
	f.reads[1-by], f.writes[1-by] = c.set(at), c.set(at)
	fence, ok := c.free(f)
	if !ok {
		return false
	}
	remote, _ := c.remote(by, at)
	local, flags := c.spans(by, into), c.flags(fence)
	old, x, y := binary.NativeEndian.Uint64(c.get(1-by, at.at)), c.r.Uint64(), c.r.Uint64()
	now := old + x
	if op == operation.CompareSwap {
		if now = y; c.r.IntN(3) > 0 {
			x = old
		} else if x != old {
			now = old
		}
	}
	c.post(f, "into %v of %v, %v", into, at, flags)
	c.put(by, into.at, binary.NativeEndian.AppendUint64(nil, old))
	c.put(1-by, at.at, binary.NativeEndian.AppendUint64(nil, now))
	s := c.side[by]
	m := rma.Msg{Local: local, Peer: s.peer, Remote: remote, Context: f.number}
	switch {
	case op == operation.FetchAdd && flags == 0:
		c.ok(s.e.FetchAdd(local[0], s.peer, remote[0], x, f.number))
	case op == operation.FetchAdd:
		c.ok(s.e.FetchAddMsg(m, x, flags))
	case flags == 0:
		c.ok(s.e.CompareSwap(local[0], s.peer, remote[0], x, y, f.number))
	default:
		c.ok(s.e.CompareSwapMsg(m, x, y, flags))
	}
	return true
}

// run8 returns a run of 8 aligned bytes.
func (c *contest) run8(align int64) spot {
	x := stretch{source: c.r.IntN(c.shape.Sources), off: align * c.r.Int64N((c.shape.Room-8)/align+1), n: 8, spanned: c.r.IntN(2) == 0}
	return spot{parts: []stretch{x}, at: c.appendPart(nil, layouttest.Model{{Source: x.source, Off: x.off, Len: 8}}, 0, 8)}
}

// cpu reads and writes through a layout by CPU.
func (c *contest) cpu(by int) bool {
	n := c.length(0)
	to := c.choose(n, true)
	if len(to.parts) != 1 || to.parts[0].layout == nil {
		return false
	}
	f := &flight{by: by}
	f.writes[by] = c.set(to)
	if !c.quiet(f) {
		return false
	}
	// each copies piece by piece.
	each := func(p []byte, do func(b *memory.Buffer, p []byte, off int64) (int, error)) error {
		for x := range to.parts[0].layout.Part(to.parts[0].off, int64(n)) {
			if _, err := do(c.side[by].mine[x.Source], p[:x.Len], x.Off); err != nil {
				return err
			}
			p = p[x.Len:]
		}
		return nil
	}
	p := make([]byte, n)
	if err := each(p, (*memory.Buffer).ReadAt); err != nil || !bytes.Equal(p, c.get(by, to.at)) {
		c.fatal("%s reads %d bytes of %v: %x, %v, want %x", sideNames[by], n, to, p, err, c.get(by, to.at))
	}
	p = c.random(n)
	if err := each(p, (*memory.Buffer).WriteAt); err != nil {
		c.fatal("%s writes %d bytes of %v: %v", sideNames[by], n, to, err)
	}
	c.put(by, to.at, p)
	c.note("%s's CPU writes %d bytes to %v", sideNames[by], n, to)
	return true
}

func (c *contest) random(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(c.r.Uint32())
	}
	return p
}
