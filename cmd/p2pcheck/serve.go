// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
)

// metrics answers requests for the metrics of a machine, which it looks at anew
// unless it has just done so.
type metrics struct {
	a     *app
	every time.Duration

	mu   sync.Mutex
	last time.Time
	text string
}

func (a *app) serve() *cobra.Command {
	var listen string
	var every time.Duration
	c := &cobra.Command{
		Use:   "serve",
		Short: "Serve metrics for Prometheus at /metrics",
		Long:  `serve answers requests at /metrics with what --format prometheus prints, and looks at the machine again for each, at most once in --every. It ends with SIGINT or SIGTERM.`,
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			a.reached = true
			ctx, cancel := cli.Context()
			defer cancel()
			err := a.listen(ctx, listen, every)
			if errors.Is(context.Cause(ctx), cli.ErrInterrupted) {
				err = cli.ErrInterrupted
			}
			return a.end("serve", nil, err)
		},
	}
	c.Flags().StringVar(&listen, "listen", "127.0.0.1:9838", "address and port")
	c.Flags().DurationVar(&every, "every", 30*time.Second, "how old an answer may be")
	return c
}

func (a *app) listen(ctx context.Context, address string, every time.Duration) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	fmt.Fprintf(a.stderr, "%s: metrics at http://%s/metrics\n", program, l.Addr())
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", &metrics{a: a, every: every})
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, WriteTimeout: time.Minute}
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		soon, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		stopped <- s.Shutdown(soon)
	}()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-stopped
}

// ServeHTTP is for http.Handler.
func (m *metrics) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write([]byte(m.current())) // who asked is gone
}

func (m *metrics) current() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.text != "" && time.Since(m.last) < m.every {
		return m.text
	}
	// A copy: to look at a snapshot changes the app.
	a := *m.a
	found, err := a.look(a.check)
	status := cli.Status(err)
	var r *checkResult
	if whole, ok := found.(checkResult); ok {
		r, status = &whole, worse(status, whole.status())
	}
	var b strings.Builder
	prometheus(&b, r, status, err)
	m.last, m.text = time.Now(), b.String()
	return m.text
}
