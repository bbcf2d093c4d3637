// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// Server makes connections with the callers of a listener.
type Server struct {
	Pending *Pending
	Timeout time.Duration // of a whole handshake

	// Handshake makes a connection with a caller, on a goroutine of its own, and calls
	// Caller.Connected before it returns nil. If it returns an error, Server closes the caller's
	// connection.
	Handshake func(ctx context.Context, c *Caller) error
	// OnReject, if not nil, is called for every caller that is not connected, on the caller's
	// goroutine. While [Ending] calls of it last, no caller is accepted.
	OnReject func(from net.Addr, why error)
}

// acceptAgain is the time that Serve waits after Accept has failed; descriptors may have run out.
const acceptAgain = 50 * time.Millisecond

// Serve accepts until ctx ends or the listener is closed, and returns when all of its callers
// have ended.
func (s *Server) Serve(ctx context.Context, l net.Listener) {
	queued := queueOf(l)
	var tasks sync.WaitGroup
	defer tasks.Wait()
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(acceptAgain):
			}
			continue
		}
		from := conn.RemoteAddr()
		life, c, err := s.Pending.admit(ctx, conn, s.Timeout, queued)
		if err != nil {
			if s.OnReject != nil && ctx.Err() == nil {
				s.Pending.ending <- struct{}{}
				tasks.Go(func() {
					defer func() { <-s.Pending.ending }()
					s.OnReject(from, err)
				})
			}
			continue
		}
		tasks.Go(func() {
			defer c.Leave()
			err := s.Handshake(life, c)
			if err == nil {
				return
			}
			_ = c.Close()
			if why := c.giveUp(); why != nil {
				err = why // the error of the handshake is only that the connection is closed
			}
			if s.OnReject != nil && ctx.Err() == nil {
				s.OnReject(from, err)
			}
		})
	}
}
