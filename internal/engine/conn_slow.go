// SPDX-License-Identifier: Apache-2.0

package engine

// slowWork is a part of an operation that takes long: copying between staged memory and its
// source, or registering memory into which a message is packed.
type slowWork struct {
	op *Work
	do func(*Work, *Endpoint) error
}

// later starts slow work in a goroutine, which runs it without the connection's mutex; the
// caller holds the mutex. Until the work is done, the operation and those behind it wait.
func (c *Conn) later(o *Work, do func(*Work, *Endpoint) error) {
	o.busy = true
	c.slow.Push(slowWork{o, do})
	if !c.atWork {
		c.atWork = true
		go c.work()
	}
}

// work does the queued work, and ends. The connection's teardown waits for it.
func (c *Conn) work() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.slow.Len() > 0 {
		w := c.slow.Pop()
		c.mu.Unlock()
		err := w.do(w.op, c.e)
		c.mu.Lock()
		w.op.busy = false
		if w.op.err == nil {
			w.op.err = err
		}
		c.deliver()
		c.kickRecv()
		c.kick()
	}
	c.atWork = false
	c.idle.Broadcast()
}

// rest waits until no slow work is under way. The caller holds the connection's mutex.
func (c *Conn) rest() {
	for c.atWork || c.waits > 0 {
		c.idle.Wait()
	}
}
