// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"math"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"golang.org/x/sys/unix"
)

// Msg is an operation with all its parameters (struct fi_msg_rma).
type Msg struct {
	Local   []memory.Span       // memory to read from or write to, one span after the other
	Peer    operation.Peer      // the other side
	Remote  []memory.RemoteSpan // the peer's memory, as many bytes, one span after the other
	Data    uint64              // for the peer, with FlagRemoteCQData: 32 bits
	Context any                 // returned in the Completion
}

// Read reads the peer's memory (fi_read).
func (e *Endpoint) Read(into memory.Span, peer operation.Peer, from memory.RemoteSpan, context any) error {
	o, err := e.start(operation.Read, 0, context)
	if err != nil {
		return err
	}
	if err = o.take(e, into); err == nil {
		err = o.takeRemote(ibvfd.AccessRemoteRead, from)
	}
	return e.post(peer, o, err)
}

// ReadV reads one range of the peer's memory into several spans (fi_readv).
func (e *Endpoint) ReadV(into []memory.Span, peer operation.Peer, from memory.RemoteSpan, context any) error {
	return e.ReadMsg(Msg{Local: into, Peer: peer, Remote: []memory.RemoteSpan{from}, Context: context}, 0)
}

// ReadMsg reads with flags (fi_readmsg).
func (e *Endpoint) ReadMsg(m Msg, flags operation.Flags) error {
	o, err := e.start(operation.Read, flags, m.Context)
	if err != nil {
		return err
	}
	if err = o.take(e, m.Local...); err == nil {
		err = o.takeRemote(ibvfd.AccessRemoteRead, m.Remote...)
	}
	return e.post(m.Peer, o, err)
}

// Write writes to the peer's memory (fi_write).
func (e *Endpoint) Write(from memory.Span, peer operation.Peer, to memory.RemoteSpan, context any) error {
	o, err := e.start(operation.Write, 0, context)
	if err != nil {
		return err
	}
	if err = o.take(e, from); err == nil {
		err = o.takeRemote(ibvfd.AccessRemoteWrite, to)
	}
	return e.post(peer, o, err)
}

// WriteV writes several spans to one range of the peer's memory (fi_writev).
func (e *Endpoint) WriteV(from []memory.Span, peer operation.Peer, to memory.RemoteSpan, context any) error {
	return e.WriteMsg(Msg{Local: from, Peer: peer, Remote: []memory.RemoteSpan{to}, Context: context}, 0)
}

// WriteMsg writes with flags (fi_writemsg).
func (e *Endpoint) WriteMsg(m Msg, flags operation.Flags) error {
	o, err := e.start(operation.Write, flags, m.Context)
	if err != nil {
		return err
	}
	if err = o.setData(m.Data); err == nil {
		err = o.takeOrInject(e, m.Local)
	}
	if err == nil {
		err = o.takeRemote(ibvfd.AccessRemoteWrite, m.Remote...)
	}
	return e.post(m.Peer, o, err)
}

// WriteData is Write with 32 bits of data for the peer, which complete a receive there when
// the bytes have been written (fi_writedata). Data without bytes is possible: both spans are
// zero then.
func (e *Endpoint) WriteData(from memory.Span, data uint64, peer operation.Peer, to memory.RemoteSpan, context any) error {
	return e.WriteMsg(Msg{Local: []memory.Span{from}, Peer: peer, Remote: []memory.RemoteSpan{to}, Data: data, Context: context}, operation.FlagRemoteCQData)
}

// InjectWrite writes p, which may be changed when the call returns, and makes no completion
// unless it fails (fi_inject_write). p may be in any memory, and may have at most
// EndpointOptions.InjectSize bytes.
func (e *Endpoint) InjectWrite(p []byte, peer operation.Peer, to memory.RemoteSpan) error {
	return e.injectWrite(p, 0, peer, to, operation.FlagInject)
}

// InjectWriteData is InjectWrite with data for the peer (fi_inject_writedata).
func (e *Endpoint) InjectWriteData(p []byte, data uint64, peer operation.Peer, to memory.RemoteSpan) error {
	return e.injectWrite(p, data, peer, to, operation.FlagInject|operation.FlagRemoteCQData)
}

func (e *Endpoint) injectWrite(p []byte, data uint64, peer operation.Peer, to memory.RemoteSpan, flags operation.Flags) error {
	o, err := e.start(operation.Write, flags, nil)
	if err != nil {
		return err
	}
	o.silent = true
	if err = o.setData(data); err == nil {
		err = o.inject(e, int64(len(p)), func(slot []byte) error { copy(slot, p); return nil })
	}
	if err == nil {
		err = o.takeRemote(ibvfd.AccessRemoteWrite, to)
	}
	return e.post(peer, o, err)
}

// setData sets the data for the peer.
func (o *Work) setData(data uint64) error {
	if o.flags&operation.FlagRemoteCQData == 0 {
		return nil
	}
	if data > math.MaxUint32 {
		return &dmabuf.Error{Op: o.kind.String(), Detail: fmt.Sprintf("data %#x", data), Remedy: "immediate data of a work request has 32 bits", Err: dmabuf.ErrRange}
	}
	o.data = uint32(data)
	return nil
}

// takeOrInject adds local memory, or copies its bytes into the slab with FlagInject.
func (o *Work) takeOrInject(e *Endpoint, spans []memory.Span) error {
	if err := o.take(e, spans...); err != nil || o.flags&operation.FlagInject == 0 {
		return err
	}
	if len(o.ready) > 0 {
		return &dmabuf.Error{
			Op: o.kind.String(), Detail: operation.FlagInject.String() + " of a buffer with SetReady", Err: unix.EOPNOTSUPP,
			Remedy: "post it without inject, which would read the bytes before they are ready",
		}
	}
	if err := o.inject(e, o.length, o.gather); err != nil {
		return err
	}
	for i := range o.operands {
		o.operands[i].Drop()
	}
	o.operands = o.operands[:0]
	return nil
}

// start makes an op; a call of post must follow.
func (e *Endpoint) start(kind operation.Kind, flags operation.Flags, context any) (*Work, error) {
	if err := flags.Check(kind); err != nil {
		return nil, err
	}
	return e.newWork(kind, flags, context), nil
}

// post submits the op, or recycles it if err is not nil.
func (e *Endpoint) post(to operation.Peer, o *Work, err error) error {
	if err == nil && o.flags&operation.FlagDeliveryComplete != 0 {
		err = e.slab.Need()
	}
	var c *Conn
	if err == nil {
		c, err = e.lockConn(to)
	}
	if err == nil && o.kind == operation.Recv && c.link != nil && o.pieces() > c.a.SGE && o.refusesPack() == nil {
		c.mu.Unlock() // the caller waits for the memory: the receive is to be posted when the call returns
		if err = o.packInto(e); err == nil {
			c, err = e.lockConn(to)
		}
	}
	if err != nil {
		e.recycle(o)
		return err
	}
	defer c.mu.Unlock()
	for _, rb := range o.bufs {
		if err := c.permits(rb); err != nil {
			e.recycle(o)
			return err
		}
	}
	return c.submit(o)
}
