// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/internal/mesh/control"
)

// Visit is a measurement in which a NIC is called.
type Visit struct {
	nic   *NIC
	token control.Token
	plan  control.Plan
	conn  chan *gpurdma.Conn

	rejected chan *control.Fault // why a caller did not get a connection
}

// Expect lets a caller with a token in, once. The NIC is used until Serve has returned.
func (n *NIC) Expect(ctx context.Context, token control.Token, p control.Plan) (*Visit, error) {
	if err := n.use(ctx); err != nil {
		return nil, err
	}
	v := &Visit{nic: n, token: token, plan: p, conn: make(chan *gpurdma.Conn, 1), rejected: make(chan *control.Fault, 1)}
	n.mu.Lock()
	n.expected[token] = v
	n.mu.Unlock()
	return v, nil
}

// rejectionTime bounds the wait for the reason of a rejection.
const rejectionTime = 200 * time.Millisecond

// Serve answers the caller until it has ended the connection, or ctx ends. It must be called once.
func (v *Visit) Serve(ctx context.Context) *control.Outcome {
	defer v.nic.free()
	c, f := v.wait(ctx)
	if f != nil {
		return &control.Outcome{Fault: f}
	}
	done := make(chan *control.Outcome, 1)
	go func() { done <- v.answer(ctx, c) }()
	var o *control.Outcome
	select {
	case o = <-done:
	case <-ctx.Done():
		o = &control.Outcome{Fault: faultOf("answer the caller", ctx.Err())}
	}
	o.Over = control.Text(c.String())
	_ = c.Close() // the caller measures; how its connection ends here says nothing
	return o
}

// wait waits for the caller. When it returns a fault no caller comes any more.
func (v *Visit) wait(ctx context.Context) (*gpurdma.Conn, *control.Fault) {
	select {
	case c := <-v.conn:
		return c, nil
	case <-ctx.Done():
	}
	var f *control.Fault
	select { // a caller learns that it is rejected before this side's program does
	case c := <-v.conn:
		return c, nil
	case f = <-v.rejected:
	case <-time.After(rejectionTime):
		f = faultOf("wait for the caller", ctx.Err())
	}
	v.nic.mu.Lock()
	_, open := v.nic.expected[v.token]
	delete(v.nic.expected, v.token)
	v.nic.mu.Unlock()
	if !open { // accept has it, or gives it now
		return <-v.conn, nil
	}
	return nil, f
}

// A note follows a write that is to be verified: the number of bytes, at the beginning of the memory.
const noteSize = 8

// answer lends the memory, and verifies what the caller writes, until it hangs up.
func (v *Visit) answer(ctx context.Context, c *gpurdma.Conn) *control.Outcome {
	o := new(control.Outcome)
	buf := v.nic.buf
	if err := c.Export(exported, buf.All(), gpurdma.ReadWrite); err != nil {
		o.Fault = faultOf("lend the memory", err)
		return o
	}
	for ctx.Err() == nil {
		note, err := c.ReceiveNotification(ctx)
		if err != nil {
			// The caller has ended it. It knows whether that was too early.
			return o
		}
		verdict := v.verify(note)
		if verdict != nil {
			o.Fault = verdict
		} else {
			o.Reached = true
		}
		if err := c.Send(ctx, encode(verdict)); err != nil {
			o.Fault = faultOf("answer the caller", err)
			return o
		}
	}
	return o
}

// verify compares the bytes that a note is of with the pattern of the measurement.
func (v *Visit) verify(note []byte) *control.Fault {
	const step = "verify the bytes of a WRITE"
	if len(note) != noteSize {
		return &control.Fault{Cause: control.Other, Step: step, Text: fmt.Sprintf("a note of %d bytes, not %d", len(note), noteSize)}
	}
	n := int64(binary.BigEndian.Uint64(note))
	if n < 1 || n > min(v.nic.buf.Size(), verifyMost) {
		return &control.Fault{Cause: control.Other, Step: step, Text: fmt.Sprintf("a note of %d bytes of the memory, which has %d", n, v.nic.buf.Size())}
	}
	return compare(v.nic.buf, pattern(v.token, n), step)
}
