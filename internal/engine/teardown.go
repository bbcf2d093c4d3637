// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"time"

	"github.com/gpurdma/gpurdma/internal/errs"
	"github.com/gpurdma/gpurdma/internal/exchange"
	"github.com/gpurdma/gpurdma/internal/workqueue"
)

// lost waits for the end, and returns the reason.
func (c *Conn) lost(ctx context.Context) error {
	select {
	case <-c.ended:
	case <-ctx.Done():
		return errs.Ended(ctx)
	}
	return c.Works.Gone()
}

// answerWait bounds how long a connection that the peer has ended waits for the answers of the
// peer's NIC. It waits only while operations are under way; the full time passes only if the
// peer has ended the connection for a reason of its own.
const (
	answerWait = 2 * time.Second
	answerLook = time.Millisecond
)

// drainBeforeAbort takes the completions of operations under way. A peer ends the connection when
// its NIC has refused an operation. The NIC's answer may arrive later than the peer's message
// over the exchange, and a flush before it would hide which operation was refused. Once the
// peer's queue pairs are destroyed, only answers that are on their way can arrive.
func (c *Conn) drainBeforeAbort() {
	over := time.Now().Add(answerWait)
	for gone := false; time.Now().Before(over); time.Sleep(answerLook) {
		c.Works.Poll()
		c.mu.Lock()
		if c.peerGone && !gone {
			gone, over = true, time.Now().Add(workqueue.FlushWait)
		}
		c.mu.Unlock()
		if c.Works.Over() || c.Works.State().Outstanding == 0 {
			return
		}
	}
}

// teardown is the slow part of a connection's end, which begins when Works is aborted. It closes
// c.ended: all operations under way have completed then, with the cause or with the NIC's
// status, and the keys that the peer was given are withdrawn. The peer's offers that the program
// has not taken are dropped.
func (c *Conn) teardown() {
	defer c.e.tasks.Done()
	c.relinking.Lock() // nobody makes another link any more
	defer c.relinking.Unlock()
	cause, _ := c.Works.Cause()
	bye := farewell(cause)
	c.mu.Lock()
	c.offered.drop()
	tcp, uninvited, reading, l, session := c.tcp, c.uninvited, c.reading, c.listener, c.session
	c.mu.Unlock()
	if l != nil {
		c.e.mu.Lock()
		l.conns--
		c.e.mu.Unlock()
	}
	if uninvited || c.own { // the program does not know the peer, or knows its Conn
		c.e.mu.Lock()
		c.e.table.forget(c.peer)
		c.e.mu.Unlock()
	}
	said := make(chan struct{})
	switch {
	case reading: // the peer gets the bye at once, while the link ends
		c.e.tasks.Go(func() {
			c.say(tcp, exchange.MsgBye, bye)
			close(said)
		})
	case tcp != nil:
		// The peer sees the end. TLS sends a close message, which may take time.
		c.e.tasks.Go(func() { _ = tcp.Close() })
	}
	if reading {
		c.Works.AwaitReason(c.readDone)
	}
	c.Works.EndLink()
	c.withdraw()
	free := c.Works.Finish()
	c.e.mu.Lock()
	delete(c.e.live, c)
	if c.e.sessions[session] == c {
		delete(c.e.sessions, session)
	}
	c.Works.AddCounts(&c.e.ended) // they do not change any more
	c.e.mu.Unlock()
	c.mu.Lock()
	onEnd := c.onEnd
	c.finished = true
	c.mu.Unlock()
	if onEnd != nil {
		onEnd()
	}
	if reading {
		c.e.tasks.Go(func() {
			<-said
			c.part(tcp, free)
		})
	} else {
		close(c.readDone)
	}
	close(c.ended)
	c.offered.tell()
}

// withdraw ends the keys that the peer was given. No keys are added any more.
func (c *Conn) withdraw() {
	c.mu.Lock()
	shares := c.shares
	c.shares = nil
	c.mu.Unlock()
	for s := range shares {
		_ = c.e.nic.End(s.keys.Withdraw)
	}
}
