// SPDX-License-Identifier: Apache-2.0

package fi

import (
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/rma"
)

// MsgRMA is a read or a write with all its parameters (struct fi_msg_rma).
type MsgRMA struct {
	IOV     []IOV    // local memory, one part after the other
	Addr    Addr     // the peer
	RMAIOV  []RMAIOV // the peer's memory, as many bytes, one part after the other
	Context any      // returned with the completion
	Data    uint64   // for the peer, with RemoteCQData: 32 bits
}

// Read posts a read of the peer's memory into local memory (fi_read). The completion has the
// context. The program must not use the local memory before the completion.
func (e *Endpoint) Read(into IOV, src Addr, from RMAIOV, context any) error {
	p, err := e.peer(src)
	if err != nil {
		return err
	}
	return coded(e.ep.Read(into.engine(), p, from.engine(), context))
}

// Readv reads one range of the peer's memory into several parts of local memory (fi_readv).
func (e *Endpoint) Readv(into []IOV, src Addr, from RMAIOV, context any) error {
	l := e.take()
	defer e.put(l)
	l.local, l.remote = appendIOV(l.local, into), append(l.remote, from.engine())
	return e.read(l, src, 0, context)
}

// ReadMsg is Readv with flags (fi_readmsg): Completion, Fence, More, and the levels of
// completion, which are all the same for a read.
func (e *Endpoint) ReadMsg(m MsgRMA, flags Flags) error {
	l := e.take()
	defer e.put(l)
	l.local, l.remote = appendIOV(l.local, m.IOV), appendRMAIOV(l.remote, m.RMAIOV)
	return e.read(l, m.Addr, flags, m.Context)
}

func (e *Endpoint) read(l *lists, src Addr, flags Flags, context any) error {
	m, f, err := e.msg(l, src, flags, 0, context)
	if err != nil {
		return err
	}
	return coded(e.ep.ReadMsg(m, f))
}

// Write posts a write of local memory to the peer's memory (fi_write). The completion has the
// context. The program must not change the local memory before the completion.
func (e *Endpoint) Write(from IOV, dest Addr, to RMAIOV, context any) error {
	p, err := e.peer(dest)
	if err != nil {
		return err
	}
	return coded(e.ep.Write(from.engine(), p, to.engine(), context))
}

// Writev writes several parts of local memory to one range of the peer's memory (fi_writev).
func (e *Endpoint) Writev(from []IOV, dest Addr, to RMAIOV, context any) error {
	l := e.take()
	defer e.put(l)
	l.local, l.remote = appendIOV(l.local, from), append(l.remote, to.engine())
	return e.write(l, dest, 0, 0, context)
}

// WriteMsg is Writev with flags (fi_writemsg): all flags of operations but CommitComplete.
func (e *Endpoint) WriteMsg(m MsgRMA, flags Flags) error {
	l := e.take()
	defer e.put(l)
	l.local, l.remote = appendIOV(l.local, m.IOV), appendRMAIOV(l.remote, m.RMAIOV)
	return e.write(l, m.Addr, flags, m.Data, m.Context)
}

// WriteData is Write with 32 bits of data for the peer (fi_writedata). When the bytes have
// been written, a receive of the peer completes with the data. More than 32 bits are EINVAL.
func (e *Endpoint) WriteData(from IOV, data uint64, dest Addr, to RMAIOV, context any) error {
	l := e.take()
	defer e.put(l)
	l.local, l.remote = append(l.local, from.engine()), append(l.remote, to.engine())
	return e.write(l, dest, RemoteCQData, data, context)
}

func (e *Endpoint) write(l *lists, dest Addr, flags Flags, data uint64, context any) error {
	m, f, err := e.msg(l, dest, flags, data, context)
	if err != nil {
		return err
	}
	return coded(e.ep.WriteMsg(m, f))
}

// InjectWrite writes p to the peer's memory, and makes no completion unless it fails
// (fi_inject_write). The program may change p when the call has returned. p may be in any
// memory, and has at most EndpointOptions.InjectSize bytes; otherwise InjectWrite returns
// [EMSGSIZE].
func (e *Endpoint) InjectWrite(p []byte, dest Addr, to RMAIOV) error {
	peer, err := e.peer(dest)
	if err != nil {
		return err
	}
	return coded(e.ep.InjectWrite(p, peer, to.engine()))
}

// InjectWriteData is InjectWrite with data for the peer (fi_inject_writedata).
func (e *Endpoint) InjectWriteData(p []byte, data uint64, dest Addr, to RMAIOV) error {
	peer, err := e.peer(dest)
	if err != nil {
		return err
	}
	return coded(e.ep.InjectWriteData(p, data, peer, to.engine()))
}

// lists are an operation's memory in the engine's types. They are reused.
type lists struct {
	local  []memory.Span
	remote []memory.RemoteSpan
}

// maxLists is the number of unused lists that an endpoint keeps.
const maxLists = 16

func (e *Endpoint) take() *lists {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := len(e.lists)
	if n == 0 {
		return new(lists)
	}
	l := e.lists[n-1]
	e.lists = e.lists[:n-1]
	return l
}

func (e *Endpoint) put(l *lists) {
	clear(l.local)
	clear(l.remote)
	l.local, l.remote = l.local[:0], l.remote[:0]
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.lists) < maxLists {
		e.lists = append(e.lists, l)
	}
}

func appendIOV(to []memory.Span, list []IOV) []memory.Span {
	for i := range list {
		to = append(to, list[i].engine())
	}
	return to
}

func appendRMAIOV(to []memory.RemoteSpan, list []RMAIOV) []memory.RemoteSpan {
	for i := range list {
		to = append(to, list[i].engine())
	}
	return to
}

// msg returns an operation in the engine's types.
func (e *Endpoint) msg(l *lists, to Addr, flags Flags, data uint64, context any) (m rma.Msg, f operation.Flags, err error) {
	if f, err = flags.engine(); err != nil {
		return m, 0, err
	}
	p, err := e.peer(to)
	if err != nil {
		return m, 0, err
	}
	return rma.Msg{Local: l.local, Peer: p, Remote: l.remote, Data: data, Context: context}, f, nil
}
