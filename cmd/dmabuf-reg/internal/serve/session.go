// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/link"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/peer"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/station"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/talk"
	"github.com/gpurdma/gpurdma/internal/operation"
)

// waitAWhile waits for completions, but not for ever: there may be no session
// any more.
func (s *Server) waitAWhile(ctx context.Context, list []operation.Completion) (int, error) {
	limited, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return s.station.Completions(limited, list)
}

// Session is one client.
type Session struct {
	*Server
	Line   *peer.Line
	number int
	events chan operation.Completion

	requests int
	checked  int64 // bytes
	bye      bool
	busy     bool // another one had the buffer when it last asked for it
}

// give hands over a completion. There is room for more than there can be.
func (c *Session) give(done operation.Completion) {
	select {
	case c.events <- done:
	default:
	}
}

func (c *Session) next(ctx context.Context) (operation.Completion, error) {
	select {
	case done := <-c.events:
		return done, nil
	case <-ctx.Done():
		return operation.Completion{}, ctx.Err()
	}
}

// run serves the client to its end.
func (c *Session) run(ctx context.Context) {
	err := c.talk(ctx)
	had := c.leave()
	switch {
	case ctx.Err() != nil:
		err = nil
	case c.bye:
		c.tell("client %d is done: %d requests, %d bytes checked%s", c.number, c.requests, c.checked, link.RailsText(c.Line.Link))
		err = nil
	case c.busy:
		c.tell("client %d was refused: another client has the buffer", c.number)
	default:
		c.tell("the connection of client %d has ended after %d requests: %v", c.number, c.requests, err)
		err = fmt.Errorf("client %d did not come to its end: %w", c.number, err)
	}
	if had && c.once {
		select {
		case c.first <- err:
		default:
		}
	}
}

// leave ends the session, and reports whether it had the buffer. Another session gets the
// buffer only when no NIC accesses it any more.
func (c *Session) leave() bool {
	err := c.Line.HangUp()
	c.mu.Lock()
	delete(c.sessions, c.Line)
	had := c.owner == c
	if had {
		c.owner = nil
	}
	c.mu.Unlock()
	if err != nil {
		c.tell("client %d: %v", c.number, err)
	}
	return had
}

func (c *Session) talk(ctx context.Context) error {
	if err := c.Line.Listen(); err != nil {
		return err
	}
	for !c.bye {
		if err := c.Line.Within(ctx, "serve a client", c.exchange); err != nil {
			return err
		}
	}
	c.outlast(ctx)
	return nil
}

// byeWait bounds how long a client that has said goodbye may take to hang up.
const byeWait = 5 * time.Second

// outlast waits until a client that has said goodbye has hung up: its NIC may still
// wait for the acknowledgement of its last message, which only this side's queue pair
// sends.
func (c *Session) outlast(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, byeWait)
	defer cancel()
	_ = c.Line.Link.Gone(ctx)
}

// exchange answers one request.
func (c *Session) exchange(ctx context.Context) error {
	data, err := c.Line.Hear(ctx)
	if err != nil {
		return err
	}
	var q talk.Request
	a := talk.Answer{Status: talk.Done}
	err = q.Decode(data, c.Line.Buf.Size())
	a.ID = q.ID
	switch {
	case errors.Is(err, talk.ErrVersion):
		a.Status, a.Text[0] = talk.Differs, err.Error()
	case err != nil:
		return err // such a client gets no answer
	default:
		c.requests++
		if err := c.Handle(ctx, &q, &a); err != nil {
			if ctx.Err() != nil {
				return err
			}
			a = talk.Answer{ID: q.ID, Status: talk.Failed, Text: [4]string{err.Error()}}
		}
	}
	if c.bye = q.Kind == talk.Bye; !c.bye {
		if err := c.Line.Listen(); err != nil {
			return err
		}
	}
	return c.Line.Say(ctx, a.Append(nil))
}

// Handle carries out a request, and puts what came of it into the answer.
func (c *Session) Handle(ctx context.Context, q *talk.Request, a *talk.Answer) (err error) {
	l := c.Line
	switch q.Kind {
	case talk.Hello:
		return c.grant(ctx, a)
	case talk.Bye:
		if r, ok := l.Link.(*link.OverRails); ok {
			n := r.Counted()
			a.Value, a.Extra = uint64(n.Lost), uint64(n.Twice)
		}
		return nil
	}
	if !c.has() {
		return errors.New("say hello first")
	}
	pattern := talk.Pattern{Seed: q.Seed, Flip: q.Flip}
	switch q.Kind {
	case talk.Offered:
		l.Remote, err = l.Link.Offered(ctx)
		return err
	case talk.Fill:
		return pattern.FillAt(c.Line.Buf, q.Offset, q.Size)
	case talk.Check:
		if text := l.Misfits(); text != "" {
			return errors.New(text)
		}
		a.Finding, err = pattern.CheckAt(c.Line.Buf, q.Offset, q.Size)
		c.checked += q.Size
		return err
	case talk.Receive:
		if q.Count > station.MaxAtOnce {
			return fmt.Errorf("%d messages at once, of at most %d", q.Count, station.MaxAtOnce)
		}
		return l.Receive(q.Work)
	case talk.Run:
		return c.work(ctx, q, a)
	case talk.Word:
		if q.Set {
			if err := peer.WriteWord(c.Line.Buf, q.Offset, q.Value); err != nil {
				return err
			}
		}
		a.Extra, err = peer.ReadWord(c.Line.Buf, q.Offset)
		return err
	}
	return fmt.Errorf("%v is not answered", q.Kind)
}

// has reports whether the buffer is this client's.
func (c *Session) has() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.owner == c
}

// grant gives the buffer to the client, if no other session has it.
func (c *Session) grant(ctx context.Context, a *talk.Answer) error {
	c.mu.Lock()
	taken := c.owner != nil
	if !taken {
		c.owner = c
	}
	c.mu.Unlock()
	if c.busy = taken; taken {
		a.Status = talk.Busy
		return nil
	}
	a.Value, a.Extra = uint64(c.Line.Buf.Size()), station.MaxAtOnce
	a.Text = [4]string{c.Line.Memory.Spec, c.Line.NIC, c.Line.Path, c.Line.Why}
	list, err := c.Line.Link.Now()
	if err != nil {
		return err
	}
	var over []string
	for _, r := range list {
		if r.Path.Port == 0 {
			over = append(over, r.Path.NIC+", whose rail is not made yet")
			continue
		}
		over = append(over, r.Path.String())
	}
	c.tell("client %d has the buffer, over %s", c.number, strings.Join(over, "; over "))
	return c.Line.Share(ctx)
}

// work carries out operations towards the client's buffer.
func (c *Session) work(ctx context.Context, q *talk.Request, a *talk.Answer) (err error) {
	l := c.Line
	var took time.Duration
	switch {
	case q.Op == talk.Send: // needs none of its memory
		took, err = l.Run(ctx, q.Op, q.Work)
	case l.Remote.First == nil:
		return errors.New("offer a buffer first")
	case !q.Within(l.Remote.Len):
		return fmt.Errorf("the work is not within the %d bytes that were offered", l.Remote.Len)
	case q.Op == talk.Atomic:
		took, a.Extra, err = l.Atomics(ctx, q.Work, q.Value)
	default:
		took, err = l.Run(ctx, q.Op, q.Work)
	}
	a.Value = uint64(took.Nanoseconds())
	return err
}
