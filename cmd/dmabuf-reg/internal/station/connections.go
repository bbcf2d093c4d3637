// SPDX-License-Identifier: Apache-2.0

package station

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/link"
	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/engine"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/rails"
)

// mostSilence bounds how long a connection over several NICs waits for another link when it has none.
const mostSilence = 10 * time.Second

// Connect connects to a server. Of several NICs all have a rail when it returns, or those that can
// be made in time.
func (s *Station) Connect(ctx context.Context, addr string) (link.Link, error) {
	if s.set == nil {
		peer, err := s.ep.Connect(ctx, addr)
		if err != nil {
			return nil, err
		}
		return link.One(s.ep, peer), nil
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
	if why := l.AllUp(limited); why != nil {
		select {
		case <-c.Done():
			return nil, errors.Join(why, l.Close())
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), l.Close())
		default:
		}
		s.Tell("a rail is missing, and is made later if that is possible: %v", why)
	}
	return l, nil
}

// railsWait is how long a client waits for all rails.
const railsWait = 5 * time.Second

// over makes a link of a connection of several NICs.
func (s *Station) over(c *rails.Conn) (*link.OverRails, error) {
	if c.One() != nil {
		return nil, errors.Join(&failure.Error{
			Op: "connect", Device: s.NIC, Detail: "the other side has one rail only", Remedy: "give both sides one NIC, or both several", Err: engine.ErrMalformed,
		}, c.Close())
	}
	down := map[string]bool{} // by NIC
	return link.Over(c, func(r rails.State) {
		if text := railChange(r, down); text != "" {
			s.Tell("%s", text)
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

// Listen makes the station accept connections.
func (s *Station) Listen(addr string) (net.Addr, error) {
	if s.set == nil {
		return s.ep.Listen(addr)
	}
	var err error
	if s.ln, err = s.set.Listen(s.set.NICs[0], addr, s.opt, MaxClients, rails.Options{}); err != nil {
		return nil, err
	}
	return s.ln.Addr(), nil
}

// Accept waits for a client.
func (s *Station) Accept(ctx context.Context) (link.Link, error) {
	if s.set == nil {
		peer, err := s.ep.Accept(ctx)
		if err != nil {
			return nil, err
		}
		return link.One(s.ep, peer), nil
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
		s.Tell("a client was rejected: %v", err)
	}
}

// Several reports whether connections have a rail for each of several NICs.
func (s *Station) Several() bool { return s.set != nil }

// Completions waits for completions of all connections of the only NIC.
func (s *Station) Completions(ctx context.Context, list []operation.Completion) (int, error) {
	return s.ep.Wait(ctx, list)
}

// nicsGreeting is what a side with several NICs says of itself when it connects. One with a single
// NIC says nothing.
const nicsGreeting = "nics="

func greeting(nics int) []byte {
	if nics == 1 {
		return nil
	}
	return fmt.Append(nil, nicsGreeting, nics)
}

// admit rejects a caller with one NIC where this side has several, and the reverse: they do not send
// messages in the same way.
func (s *Station) admit(_ context.Context, caller engine.PeerInfo) error {
	theirs := 1
	if text, ok := strings.CutPrefix(string(caller.Hello), nicsGreeting); ok {
		var err error
		if theirs, err = strconv.Atoi(text); err != nil || theirs < 2 {
			return engine.Reject(fmt.Sprintf("the client's greeting is malformed: %.40q", caller.Hello))
		}
	}
	if ours := len(s.nics); (ours > 1) != (theirs > 1) {
		return engine.Reject(fmt.Sprintf("serve has --nic %s, and the client %d: give both sides one NIC, or both several", s.NIC, theirs))
	}
	return nil
}
