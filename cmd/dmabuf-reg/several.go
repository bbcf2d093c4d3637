// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/internal/engine"
	"github.com/gpurdma/gpurdma/internal/rails"
)

// mostSilence bounds how long a connection over several NICs waits for another link when it has none.
const mostSilence = 10 * time.Second

// connect connects to a server. Of several NICs all have a rail when it returns, or those that can
// be made in time.
func (s *station) connect(ctx context.Context, addr string) (link, error) {
	if s.set == nil {
		peer, err := s.ep.Connect(ctx, addr)
		if err != nil {
			return nil, err
		}
		return s.linkTo(peer), nil
	}
	c, err := s.set.Dial(ctx, s.set.NICs[0], addr, s.opt, rails.Options{})
	if err != nil {
		return nil, err
	}
	l, err := s.over(c)
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, min(s.timeout, railsWait))
	defer cancel()
	if why := l.allUp(limited); why != nil {
		select {
		case <-c.Done():
			return nil, errors.Join(why, l.close())
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), l.close())
		default:
		}
		s.tell("a rail is missing, and is made later if that is possible: %v", why)
	}
	return l, nil
}

// railsWait is how long a client waits for all rails.
const railsWait = 5 * time.Second

// allUp waits until all rails have a link. It returns why one has none when the context ends.
func (r *overRails) allUp(ctx context.Context) error {
	for {
		up, why := r.up()
		if up {
			return nil
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-r.c.Done():
			return r.c.First.Works.End.Gone()
		case <-ctx.Done():
			return why
		}
	}
}

// over makes a link of a connection of several NICs.
func (s *station) over(c *rails.Conn) (*overRails, error) {
	if c.One() != nil {
		return nil, errors.Join(&dmabuf.Error{
			Op: "connect", Device: s.NIC, Detail: "the other side has one rail only", Remedy: "give both sides one NIC, or both several", Err: engine.ErrMalformed,
		}, c.Close())
	}
	down := map[string]bool{} // by NIC
	return linkOver(c, func(r rails.State) {
		if text := railChange(r, down); text != "" {
			s.tell("%s", text)
		}
	}), nil
}

// railChange says that a rail has lost its link, or has another one, "" for any other change. down are the
// NICs with a rail of which it was said that it has none.
func railChange(r rails.State, down map[string]bool) string {
	nic := r.Path.NIC
	switch {
	case !r.Up && r.Err == nil:
		down[nic] = true
		return "the rail of " + nic + " has no link: its port is down"
	case !r.Up:
		down[nic] = true
		return fmt.Sprintf("the rail of %s has no link: %v", nic, r.Err)
	case down[nic]:
		down[nic] = false
		return "the rail of " + nic + " has a link again: " + r.Path.String()
	}
	return ""
}

// listen makes the station accept connections.
func (s *station) listen(addr string) (net.Addr, error) {
	if s.set == nil {
		return s.ep.Listen(addr)
	}
	var err error
	if s.ln, err = s.set.Listen(s.set.NICs[0], addr, s.opt, maxClients, rails.Options{}); err != nil {
		return nil, err
	}
	return s.ln.Addr(), nil
}

// accept waits for a client.
func (s *station) accept(ctx context.Context) (link, error) {
	if s.set == nil {
		peer, err := s.ep.Accept(ctx)
		if err != nil {
			return nil, err
		}
		return s.linkTo(peer), nil
	}
	for {
		c, err := s.ln.Accept(ctx)
		if err != nil {
			return nil, err
		}
		l, err := s.over(c)
		if err == nil {
			return l, nil
		}
		s.tell("a client was rejected: %v", err)
	}
}
