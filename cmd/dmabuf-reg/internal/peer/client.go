// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"syscall"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/app"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/link"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/station"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/talk"
	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/bytesize"
	"github.com/gpurdma/gpurdma/internal/engine"
	"github.com/gpurdma/gpurdma/internal/operation"
)

// Client is a line to a server.
type Client struct {
	*Line
	Server Server
	Way    link.Way
	AtOnce int    // messages that the server receives at a time
	Addr   string // of the server
	id     uint32 // of the last request
}

// Dial connects, and gets the server's buffer. The caller hangs up.
func Dial(ctx context.Context, s *station.Station, addr string) (_ *Client, err error) {
	over, err := s.Connect(ctx, addr)
	if err != nil {
		return nil, unconnected(addr, err)
	}
	l, err := NewLine(s, over)
	if err != nil {
		return nil, errors.Join(err, over.Close())
	}
	l.Pull = Pull(over.Take)
	c := &Client{Line: l, Addr: addr}
	if c.Way, err = link.FirstWay(over); err != nil {
		return nil, errors.Join(err, l.HangUp())
	}
	if err := s.Within(ctx, "say hello to "+addr, c.hello); err != nil {
		return nil, errors.Join(err, l.HangUp())
	}
	return c, nil
}

// Pull takes completions one at a time.
func Pull(take func(context.Context, []operation.Completion) (int, error)) func(ctx context.Context) (operation.Completion, error) {
	list, have := make([]operation.Completion, 64), 0
	at := 0
	return func(ctx context.Context) (operation.Completion, error) {
		if at == have {
			n, err := take(ctx, list)
			if err != nil {
				return operation.Completion{}, err
			}
			at, have = 0, n
		}
		at++
		return list[at-1], nil
	}
}

// unconnected says what to do about a connection that was not made.
func unconnected(addr string, err error) error {
	remedy := ""
	switch {
	case errors.Is(err, engine.ErrUnsafe):
		return station.Unprotected(addr, err)
	case errors.Is(err, syscall.ECONNREFUSED):
		remedy = "no program listens there: start `dmabuf-reg serve --listen " + addr + "` on that host"
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		remedy = "this host has no way to that address: see `ip route get` of it, and that both are up"
	case errors.As(err, new(*net.DNSError)):
		remedy = "that name cannot be looked up here: write the host's address, or see /etc/hosts and /etc/resolv.conf"
	case errors.Is(err, context.DeadlineExceeded):
		remedy = "the host does not answer: see the address and firewalls, or give a longer --timeout"
	case errors.Is(err, engine.ErrRejected):
		remedy = "the other side gives that reason; its stderr may say more"
	case errors.As(err, new(*tls.CertificateVerificationError)):
		remedy = "--tls-ca must hold what signed the other side's certificate, which must name the address"
	case refusedByPeer(err):
		remedy = "the other side does not accept this one's certificate: its --tls-ca must hold what signed --tls-cert, which must be valid now and for clients (extendedKeyUsage clientAuth)"
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, engine.ErrMalformed):
		remedy = "see that it is a `dmabuf-reg serve` of the same version, that both sides or neither are given TLS, and what it says on stderr"
	default:
		return err
	}
	// The library's own error would say the same twice.
	var inner *failure.Error
	if errors.As(err, &inner) && inner.Op == "connect" {
		err = inner.Err
	}
	return &failure.Error{Op: "connect", Device: addr, Remedy: remedy, Err: err}
}

// refusedByPeer reports whether the other side ended a TLS handshake by an alert.
func refusedByPeer(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error"
}

// Ask sends a request and waits for the answer. For messages that the server sends before
// its answer, receives must be posted.
func (c *Client) Ask(ctx context.Context, q talk.Request) (a talk.Answer, err error) {
	c.id++
	q.ID = c.id
	if err := c.Listen(); err != nil {
		return a, err
	}
	if err := c.Say(ctx, q.Append(nil)); err != nil {
		return a, err
	}
	data, err := c.Hear(ctx)
	if err != nil {
		return a, err
	}
	refused := func(detail, remedy string, err error) error {
		return &failure.Error{Op: q.Kind.String(), Device: c.Addr, Detail: detail, Remedy: remedy, Err: err}
	}
	switch err := a.Decode(data); {
	case errors.Is(err, talk.ErrVersion):
		return a, refused("", "run the same release of "+app.Program+" on both hosts", err)
	case err != nil:
		return a, err
	case a.ID != q.ID:
		return a, refused(fmt.Sprintf("an answer to request %d, not %d", a.ID, q.ID), "", talk.ErrMalformed)
	case a.Status == talk.Differs:
		return a, refused(a.Text[0], "run the same release of "+app.Program+" on both hosts", talk.ErrVersion)
	case a.Status == talk.Busy:
		return a, refused("another client has the server's buffer", "wait until it is done, or start another serve", errBusy)
	case a.Status == talk.Failed:
		return a, refused("the server says: "+a.Text[0], "", ErrServer)
	}
	return a, nil
}

var (
	errBusy   = errors.New("busy")
	ErrServer = errors.New("it failed on the server's side")
)

// hello gets the server's buffer, and learns what it is.
func (c *Client) hello(ctx context.Context) error {
	a, err := c.Ask(ctx, talk.Request{Kind: talk.Hello})
	if err != nil {
		return err
	}
	c.Server = Server{Spec: a.Text[0], NIC: a.Text[1], Path: a.Text[2], Why: a.Text[3], Size: int64(a.Value)}
	c.AtOnce = int(min(a.Extra, station.MaxAtOnce))
	c.Remote, err = c.Link.Offered(ctx)
	if err == nil && (c.Remote.Len != c.Server.Size || c.Server.Size <= 0 || c.AtOnce < 1) {
		err = fmt.Errorf("%w: a buffer of %d bytes whose descriptor has %d", talk.ErrMalformed, c.Server.Size, c.Remote.Len)
	}
	return err
}

// Bye tells the server that this is no broken connection.
func (c *Client) Bye(ctx context.Context) error {
	return c.Within(ctx, "say goodbye to "+c.Addr, func(ctx context.Context) error {
		_, err := c.Ask(ctx, talk.Request{Kind: talk.Bye})
		return err
	})
}

// fits refuses sizes that either buffer is too small for.
func (c *Client) fits(sizes []int64) error {
	room := min(c.Buf.Size(), c.Server.Size)
	if worst := slices.Max(sizes); worst > room {
		return &cli.UsageError{Err: fmt.Errorf("%s in one operation do not fit: the buffer here has %s, the server's %s; give the smaller a larger --size",
			bytesize.Format(worst), bytesize.Format(c.Buf.Size()), bytesize.Format(c.Server.Size))}
	}
	return nil
}

// Call connects to a server, has do work with buffers that hold the sizes, and
// hangs up. do says goodbye, unless the connection broke. tell says on stderr what happens to rails.
func Call(ctx context.Context, f *station.Flags, addr string, sizes []int64, tell func(format string, args ...any), do func(c *Client) error) (err error) {
	st, err := f.Open(ctx, engine.EndpointOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	st.Tell = tell
	c, err := Dial(ctx, st, addr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.HangUp()) }()
	if err := c.fits(sizes); err != nil {
		return errors.Join(err, c.Bye(ctx))
	}
	return do(c)
}

// Offer gives the server access to this side's buffer.
func (c *Client) Offer(ctx context.Context) error {
	if err := c.Share(ctx); err != nil {
		return err
	}
	_, err := c.Ask(ctx, talk.Request{Kind: talk.Offered})
	return err
}
