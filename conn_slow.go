// SPDX-License-Identifier: Apache-2.0

package gpurdma

// slowWork is what takes long for an operation: to copy between staged memory and its source, or
// to register memory into which a message is packed.
type slowWork struct {
	op *op
	do func(*op, *Endpoint) error
}

// later has a goroutine do slow work, without the connection's mutex, which is held now. Until it is
// done the operation goes nowhere, and neither does what is behind it.
func (c *conn) later(o *op, do func(*op, *Endpoint) error) {
	o.busy = true
	c.slow.push(slowWork{o, do})
	if !c.atWork {
		c.atWork = true
		go c.work()
	}
}

// work does what there is, and ends. The connection's end waits for it.
func (c *conn) work() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.slow.len() > 0 {
		w := c.slow.pop()
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

// rest waits until no slow work is under way. The connection's mutex is held.
func (c *conn) rest() {
	for c.atWork {
		c.idle.Wait()
	}
}
