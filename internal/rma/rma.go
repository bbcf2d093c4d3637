// SPDX-License-Identifier: Apache-2.0

package rma

import (
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/workqueue"
)

// Endpoint makes works and posts them to peers.
type Endpoint interface {
	NewWork(kind operation.Kind, flags operation.Flags, context any) (*workqueue.Work, error)
	Drop(o *workqueue.Work)
	// Submit takes a work over. If it returns an error, it has dropped the work, which makes no
	// completion.
	Submit(to operation.Peer, o *workqueue.Work) error
}

// Calls are the calls of an Endpoint. They may be used from several goroutines at once, as the
// Endpoint may.
type Calls struct{ e Endpoint }

// On returns the calls of an endpoint.
func On(e Endpoint) Calls { return Calls{e} }

// Msg is an operation with all its parameters (struct fi_msg_rma).
type Msg struct {
	Local   []memory.Span       // memory to read from or write to, one span after the other
	Peer    operation.Peer      // the other side
	Remote  []memory.RemoteSpan // the peer's memory, as many bytes, one span after the other
	Data    uint64              // for the peer, with FlagRemoteCQData: 32 bits
	Context any                 // returned in the Completion
}

// Read reads the peer's memory (fi_read).
func (c Calls) Read(into memory.Span, peer operation.Peer, from memory.RemoteSpan, context any) error {
	return c.transfer(operation.Read, &into, peer, &from, context)
}

// Write writes to the peer's memory (fi_write).
func (c Calls) Write(from memory.Span, peer operation.Peer, to memory.RemoteSpan, context any) error {
	return c.transfer(operation.Write, &from, peer, &to, context)
}

// transfer is a read or a write of one span.
func (c Calls) transfer(kind operation.Kind, local *memory.Span, peer operation.Peer, remote *memory.RemoteSpan, context any) error {
	o, err := c.e.NewWork(kind, 0, context)
	if err != nil {
		return err
	}
	if err = o.AddLocal(local); err == nil {
		err = o.AddRemote(remote)
	}
	return c.post(peer, o, err)
}

// ReadV reads one range of the peer's memory into several spans (fi_readv).
func (c Calls) ReadV(into []memory.Span, peer operation.Peer, from memory.RemoteSpan, context any) error {
	return c.ReadMsg(Msg{Local: into, Peer: peer, Remote: []memory.RemoteSpan{from}, Context: context}, 0)
}

// ReadMsg reads with flags (fi_readmsg).
func (c Calls) ReadMsg(m Msg, flags operation.Flags) error {
	o, err := c.e.NewWork(operation.Read, flags, m.Context)
	if err != nil {
		return err
	}
	if err = addLocal(o, m.Local); err == nil {
		err = addRemote(o, m.Remote)
	}
	return c.post(m.Peer, o, err)
}

// WriteV writes several spans to one range of the peer's memory (fi_writev).
func (c Calls) WriteV(from []memory.Span, peer operation.Peer, to memory.RemoteSpan, context any) error {
	return c.WriteMsg(Msg{Local: from, Peer: peer, Remote: []memory.RemoteSpan{to}, Context: context}, 0)
}

// WriteMsg writes with flags (fi_writemsg).
func (c Calls) WriteMsg(m Msg, flags operation.Flags) error {
	o, err := c.e.NewWork(operation.Write, flags, m.Context)
	if err != nil {
		return err
	}
	if err = o.SetData(m.Data); err == nil {
		err = addOrInject(o, m.Local)
	}
	if err == nil {
		err = addRemote(o, m.Remote)
	}
	return c.post(m.Peer, o, err)
}

// WriteData is Write with 32 bits of data for the peer, which complete a receive there when
// the bytes have been written (fi_writedata). Data without bytes is possible: both spans are
// zero then.
func (c Calls) WriteData(from memory.Span, data uint64, peer operation.Peer, to memory.RemoteSpan, context any) error {
	return c.WriteMsg(Msg{Local: []memory.Span{from}, Peer: peer, Remote: []memory.RemoteSpan{to}, Data: data, Context: context}, operation.FlagRemoteCQData)
}

// InjectWrite writes p, which may be changed when the call returns, and makes no completion
// unless it fails (fi_inject_write). p may be in any memory, and may have at most
// EndpointOptions.InjectSize bytes.
func (c Calls) InjectWrite(p []byte, peer operation.Peer, to memory.RemoteSpan) error {
	return c.injectWrite(p, 0, peer, &to, operation.FlagInject)
}

// InjectWriteData is InjectWrite with data for the peer (fi_inject_writedata).
func (c Calls) InjectWriteData(p []byte, data uint64, peer operation.Peer, to memory.RemoteSpan) error {
	return c.injectWrite(p, data, peer, &to, operation.FlagInject|operation.FlagRemoteCQData)
}

func (c Calls) injectWrite(p []byte, data uint64, peer operation.Peer, to *memory.RemoteSpan, flags operation.Flags) error {
	o, err := c.e.NewWork(operation.Write, flags, nil)
	if err != nil {
		return err
	}
	o.Silence()
	if err = o.SetData(data); err == nil {
		err = o.AddBytes(p)
	}
	if err == nil {
		err = o.AddRemote(to)
	}
	return c.post(peer, o, err)
}

// addLocal adds local memory.
func addLocal(o *workqueue.Work, spans []memory.Span) error {
	for i := range spans {
		if err := o.AddLocal(&spans[i]); err != nil {
			return err
		}
	}
	return nil
}

// addOrInject adds local memory, or copies its bytes with FlagInject.
func addOrInject(o *workqueue.Work, spans []memory.Span) error {
	if err := addLocal(o, spans); err != nil || o.Flags&operation.FlagInject == 0 {
		return err
	}
	return o.Inject()
}

// addRemote adds the peer's memory.
func addRemote(o *workqueue.Work, spans []memory.RemoteSpan) error {
	for i := range spans {
		if err := o.AddRemote(&spans[i]); err != nil {
			return err
		}
	}
	return nil
}

// post submits a work, or drops it if err is not nil.
func (c Calls) post(to operation.Peer, o *workqueue.Work, err error) error {
	if err != nil {
		c.e.Drop(o)
		return err
	}
	return c.e.Submit(to, o)
}
