// SPDX-License-Identifier: Apache-2.0

package fi

// Message is a message with all its parameters (struct fi_msg).
type Message struct {
	IOV     []IOV  // local memory, one part after the other
	Addr    Addr   // the peer
	Context any    // returned with the completion
	Data    uint64 // for the peer, with RemoteCQData: 32 bits
}

// Send posts a message, which takes a receive of the peer (fi_send).
func (e *Endpoint) Send(from IOV, dest Addr, context any) error {
	l := e.take()
	defer e.put(l)
	l.local = append(l.local, from.engine())
	return e.send(l, dest, 0, 0, context)
}

// SendMsg is Send of several parts of local memory as one message, with flags (fi_sendmsg):
// all flags of operations but DeliveryComplete and CommitComplete.
func (e *Endpoint) SendMsg(m Message, flags Flags) error {
	l := e.take()
	defer e.put(l)
	l.local = appendIOV(l.local, m.IOV)
	return e.send(l, m.Addr, flags, m.Data, m.Context)
}

func (e *Endpoint) send(l *lists, dest Addr, flags Flags, data uint64, context any) error {
	m, f, err := e.msg(l, dest, flags, data, context)
	if err != nil {
		return err
	}
	return coded(e.ep.SendMsg(m, f))
}

// Recv posts a receive for a message of one peer (fi_recv). A message, or a write with data,
// takes the next receive; a write puts no bytes into its memory. A message that is longer than
// its receive ends the connection. With EndpointOptions.AutoReceive, Recv returns [EINVAL].
func (e *Endpoint) Recv(into IOV, src Addr, context any) error {
	l := e.take()
	defer e.put(l)
	l.local = append(l.local, into.engine())
	return e.recv(l, src, context)
}

// Recvv is Recv into several parts of local memory, one after the other (fi_recvv).
func (e *Endpoint) Recvv(into []IOV, src Addr, context any) error {
	l := e.take()
	defer e.put(l)
	l.local = appendIOV(l.local, into)
	return e.recv(l, src, context)
}

func (e *Endpoint) recv(l *lists, src Addr, context any) error {
	p, err := e.peer(src)
	if err != nil {
		return err
	}
	return coded(e.ep.RecvV(l.local, p, context))
}
