// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/app"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/link"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/peer"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/station"
	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/engine"
	"github.com/gpurdma/gpurdma/internal/human"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/throttle"
)

type params struct {
	station.Flags
	addr    string
	metrics string
	once    bool
}

// Result is what `serve` offers.
type Result struct {
	Listen string `json:"listen"` // the TCP address, with the port that was chosen
	// Protection is how the exchange of keys is protected: "TLS" (mutual), "loopback" (in the clear,
	// on this machine only), "none".
	Protection string `json:"protection"`
	// Metrics is the TCP address of --metrics, with the port that was chosen; "" without --metrics.
	Metrics string       `json:"metrics"`
	Local   station.Side `json:"local"` // this side
}

// Command is `serve`.
func Command(a *app.App) *cobra.Command {
	var f params
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Offer a buffer to `connect` and `bench` on another host",
		Long: `Allocate a buffer, register it with a NIC, and listen for ` + "`dmabuf-reg connect`" + `
or ` + "`dmabuf-reg bench`" + `, which move bytes in and out of it. One client at a time has
the buffer; it is served until it is done, until it says nothing for as long as
--timeout, or until its connection ends. Ctrl-C ends the server.

Keys are exchanged over TCP, or over a connection of rdma_cm's if the address
begins with rdma_cm://: by mutual TLS, or on loopback, or in the clear with
--plaintext.

With --nic NAME,NAME the buffer is registered with each NIC, and a connection has a
rail for each: clients must name several NICs, too.

With --metrics it answers requests for http://ADDR/metrics with the counters of
all clients' connections, in Prometheus' text format. They have no address of a
client; every program that reaches ADDR can read them.`,
		Example: `  dmabuf-reg serve --gpu drm:renderD128
  dmabuf-reg serve --listen 10.0.0.1:7471 --tls-cert a.pem --tls-key a.key --tls-ca ca.pem
  dmabuf-reg serve --policy staged --once
  dmabuf-reg serve --nic mlx5_0,mlx5_1 --listen :7471 --plaintext
  dmabuf-reg serve --metrics :9839`,
		Args: cli.NoArgs,
	}
	f.Add(cmd)
	f.AddPolicy(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.addr, "listen", station.DefaultListen, "address to listen on, TCP's HOST:PORT or rdma_cm://HOST:PORT; port 0 chooses one")
	flags.StringVar(&f.metrics, "metrics", "", "address at which metrics are served by HTTP, HOST:PORT; without HOST on this machine only, port 0 chooses one")
	flags.BoolVar(&f.once, "once", false, "end after the first client that had the buffer; the exit status says how it went")
	cmd.RunE = a.Action(func(ctx context.Context) (app.Result, error) {
		if err := station.CheckAddr(f.addr); err != nil {
			return nil, &cli.UsageError{Err: fmt.Errorf("--listen %w", err)}
		}
		if err := f.CheckSeveral(f.addr); err != nil {
			return nil, err
		}
		if f.metrics != "" {
			if err := station.CheckAddr(f.metrics); err != nil || strings.HasPrefix(f.metrics, station.OverCM) {
				return nil, &cli.UsageError{Err: fmt.Errorf("--metrics %w", cmp.Or(err, errNoTCP))}
			}
		}
		return doServe(ctx, a, f)
	})
	return cmd
}

// Server has the sessions of all clients.
type Server struct {
	station *station.Station
	tell    func(format string, args ...any) // says on stderr what a client did
	once    bool                             // it ends after the first client that had the buffer
	secure  bool                             // by TLS
	rejects throttle.Lines

	mu       sync.Mutex
	sessions map[*peer.Line]*Session
	owner    *Session // the session that has the buffer
	clients  int
	some     chan struct{} // there is a session again
	first    chan error    // how the first client that had the buffer ended
	tasks    sync.WaitGroup
}

// New makes a server. tell says on stderr what clients do.
func New(tell func(format string, args ...any)) *Server {
	return &Server{tell: tell, sessions: map[*peer.Line]*Session{}, some: make(chan struct{}, 1), first: make(chan error, 1)}
}

// Options are those of the endpoints of the server's station.
func (s *Server) Options() engine.EndpointOptions {
	return engine.EndpointOptions{
		MaxPeers: station.MaxClients, OnReject: func(caller engine.PeerInfo, why error) { s.rejected(caller.Addr, why) },
	}
}

func doServe(ctx context.Context, a *app.App, f params) (_ app.Result, err error) {
	s := New(a.Tell)
	s.once, s.secure = f.once, f.Cert != ""
	st, err := f.Open(ctx, s.Options())
	if err != nil {
		return nil, err
	}
	st.Tell = a.Tell
	defer func() { err = errors.Join(err, st.Close()) }()
	addr, err := st.Listen(f.addr)
	if err != nil {
		return nil, listening(f.addr, err)
	}
	r := &Result{Listen: addr.String(), Protection: f.Protection(addr), Local: st.Side}
	if f.metrics != "" {
		l, lerr := listenMetrics(ctx, f.metrics)
		if lerr != nil {
			return nil, lerr
		}
		r.Metrics = l.Addr().String()
		serving, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- serveMetrics(serving, st, l) }()
		defer func() {
			stop()
			err = errors.Join(err, <-ended)
		}()
	}
	if err := a.Early("serve", r); err != nil {
		return nil, err
	}
	return nil, s.Serve(ctx, st)
}

// errNoTCP is of an address of rdma_cm where HTTP is served.
var errNoTCP = errors.New("is served over TCP: write HOST:PORT")

func listening(addr string, err error) error {
	if errors.Is(err, engine.ErrUnsafe) {
		return station.Unprotected(addr, err)
	}
	var known *failure.Error
	if errors.As(err, &known) {
		return err
	}
	return &failure.Error{Op: "listen", Device: addr, Remedy: "choose another --listen HOST:PORT; port 0 chooses one that is free", Err: err}
}

// Text implements app.Result.
func (r *Result) Text(w io.Writer) error {
	human.Line(w, fmt.Sprintf("%s (%s)", r.Listen, protections[r.Protection]), "listen:  ", "         ")
	if r.Metrics != "" {
		fmt.Fprintf(w, "metrics: http://%s/metrics\n", r.Metrics)
	}
	return r.Local.Text(w)
}

var protections = map[string]string{
	"TLS": "mutual TLS", "loopback": "in the clear, on this machine only", "none": "IN THE CLEAR: every program that sees the keys can read and write the buffer",
}

// Serve accepts clients of a station that listens until ctx ends, or with --once one has been served.
func (s *Server) Serve(ctx context.Context, st *station.Station) error {
	s.station = st
	ctx, cancel := context.WithCancelCause(ctx)
	defer s.tasks.Wait()
	defer cancel(nil)
	s.tasks.Go(func() { s.accept(ctx) })
	if !s.station.Several() {
		s.tasks.Go(func() { s.dispatch(ctx) })
	}
	select {
	case err := <-s.first:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *Server) accept(ctx context.Context) {
	for {
		over, err := s.station.Accept(ctx)
		if err != nil {
			return
		}
		l, err := peer.NewLine(s.station, over)
		if err != nil {
			s.tell("a client was rejected: %v", err)
			_ = over.Close()
			continue
		}
		c := s.Begin(l)
		select {
		case s.some <- struct{}{}:
		default:
		}
		s.tasks.Go(func() { c.run(ctx) })
	}
}

// Begin begins the session of a client.
func (s *Server) Begin(l *peer.Line) *Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients++
	c := &Session{Server: s, Line: l, number: s.clients, events: make(chan operation.Completion, 4*station.MaxAtOnce)}
	if l.Pull = c.next; l.Several() { // its completions come by themselves
		l.Pull = peer.Pull(l.Link.Take)
	}
	s.sessions[l] = c
	return c
}

// rejected prints an address whose connection did not become a client's.
func (s *Server) rejected(from net.Addr, why error) {
	if errors.Is(why, io.EOF) && s.missesRail() {
		return // the client tries to make the rail again
	}
	more, ok := s.rejects.Next()
	if !ok {
		return
	}
	if errors.Is(why, engine.ErrMalformed) && !s.secure {
		why = fmt.Errorf("%w; it may have been given TLS, which this side was not", why)
	}
	s.tell("%v was rejected%s: %v", from, more, why)
}

// missesRail reports whether a client with several NICs has a rail that has no link.
func (s *Server) missesRail() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.sessions {
		if r, ok := l.Link.(*link.OverRails); ok {
			if all, _ := r.Up(); !all {
				return true
			}
		}
	}
	return false
}

// dispatch gives each session its completions, while there are any.
func (s *Server) dispatch(ctx context.Context) {
	list := make([]operation.Completion, 64)
	for ctx.Err() == nil {
		s.mu.Lock()
		idle := len(s.sessions) == 0
		s.mu.Unlock()
		if idle {
			select {
			case <-s.some:
			case <-ctx.Done():
				return
			}
		}
		n, err := s.waitAWhile(ctx, list)
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return
		}
		s.mu.Lock()
		for _, c := range list[:n] {
			if to := s.sessions[peer.LineOf(c)]; to != nil {
				to.give(c)
			}
		}
		s.mu.Unlock()
		clear(list[:n])
	}
}
