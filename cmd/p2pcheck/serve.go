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
	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/p2p/formats"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// metrics answers requests for the metrics of a machine. It reads the machine again if its last answer is
// too old.
type metrics struct {
	a     *app
	every time.Duration

	mu     sync.Mutex
	last   time.Time
	text   string
	labels string // for node-feature-discovery
}

func (a *app) serve() *cobra.Command {
	var listen, nfd string
	var every time.Duration
	c := &cobra.Command{
		Use:   "serve",
		Short: "Serve metrics for Prometheus at /metrics",
		Long: `serve answers requests at /metrics with the output of --format prometheus. It reads
the machine again for a request, at most once in --every. /healthz answers without
reading the machine. With --nfd it also writes the output of --format nfd to a file
once in --every; the labels expire after three times --every, so that they go away
when serve ends. An error that stays, as an unknown check in --skip or a label file
that cannot be written, ends serve at its start with status 2. A device that is
missing may come later: serve goes on, and the metrics report it.
SIGTERM ends it with status 0, SIGINT with 130.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			a.reached = true
			ctx, cancel := cli.Context()
			defer cancel()
			err := a.listen(ctx, listen, every, nfd)
			// SIGTERM is how a service is stopped, and no failure of it.
			if cli.Signal(ctx) == unix.SIGINT {
				err = cli.ErrInterrupted
			}
			return a.end("serve", nil, err)
		},
	}
	c.Flags().StringVar(&listen, "listen", "127.0.0.1:9838", "address and port")
	c.Flags().DurationVar(&every, "every", 30*time.Second, "how old an answer may be: 1s or more, 0 to read the machine for each request")
	c.Flags().StringVar(&a.proofs, "proofs", "", proofsHelp)
	c.Flags().StringVar(&nfd, "nfd", "", "file for node-feature-discovery's labels, in its features.d")
	return c
}

// leastEvery keeps serve from reading the machine all the time.
const leastEvery = time.Second

func (a *app) listen(ctx context.Context, address string, every time.Duration, nfd string) error {
	if every < leastEvery && every != 0 {
		return &cli.UsageError{Err: fmt.Errorf("--every %v: it is %v or more, or 0 to read the machine for each request", every, leastEvery)}
	}
	if a.snapshotFile == standard {
		return &cli.UsageError{Err: errors.New("--snapshot -: serve reads the snapshot again and again, and the standard input can be read once: name a file")}
	}
	if nfd != "" && every == 0 {
		return &cli.UsageError{Err: errors.New("--nfd needs an --every above 0")}
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	m := &metrics{a: a, every: every}
	if _, _, err := m.current(); err != nil {
		var usage *cli.UsageError
		if errors.As(err, &usage) {
			return errors.Join(err, l.Close())
		}
		// The error may go away later: the metrics report it, too.
		cli.PrintErrors(a.stderr, program, err)
	}
	if nfd != "" {
		// Labels that cannot be written would go unnoticed later: serve fails now.
		switch err := m.writeLabels(nfd); {
		case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT): // there may be room later
			cli.PrintErrors(a.stderr, program, err)
		case err != nil:
			return errors.Join(&cli.UsageError{Err: err}, l.Close())
		}
	}
	fmt.Fprintf(a.stderr, "%s: metrics at http://%s/metrics\n", program, l.Addr())
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", m)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	// The server closes connections of clients that send nothing, or too slowly.
	s := &http.Server{Handler: mux, ReadTimeout: 10 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute}
	var labels sync.WaitGroup
	defer labels.Wait()
	if nfd != "" {
		var stop context.CancelFunc
		ctx, stop = context.WithCancel(ctx)
		defer stop()
		labels.Go(func() { m.label(ctx, nfd) })
	}
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		soon, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		err := s.Shutdown(soon)
		if errors.Is(err, context.DeadlineExceeded) {
			err = s.Close() // clients that still read have had their time
		}
		stopped <- err
	}()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-stopped
}

// label writes the labels again and again.
func (m *metrics) label(ctx context.Context, file string) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(m.every):
		}
		if err := m.writeLabels(file); err != nil {
			cli.PrintErrors(m.a.stderr, program, err)
		}
	}
}

// writeLabels writes the labels, with the time at which node-feature-discovery drops them.
func (m *metrics) writeLabels(file string) error {
	_, labels, _ := m.current()
	until := time.Now().Add(3 * m.every).UTC().Format(time.RFC3339)
	return writeWhole("the labels", "--nfd", file, []byte("# +expiry-time="+until+"\n"+labels), othersRead)
}

// ServeHTTP is for http.Handler.
func (m *metrics) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	text, _, _ := m.current()
	_, _ = w.Write([]byte(text)) // an error means that the client is gone
}

// current reads the machine again, unless that was done within the interval. Only the call that reads
// it returns the error.
func (m *metrics) current() (text, labels string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.text != "" && time.Since(m.last) < m.every {
		return m.text, m.labels, nil
	}
	// A copy of the app: reading a snapshot changes it.
	a := *m.a
	found, err := a.look(a.check)
	status := cli.Status(err)
	var r *result.Run
	if whole, ok := found.(checkOutput); ok {
		r, status = (*result.Run)(&whole), result.Worse(status, whole.status())
	}
	var asText, asLabels strings.Builder
	run := formats.Input{Found: r, Status: status, Errors: problems(err)}
	formats.Prometheus(&asText, run)
	formats.NFD(&asLabels, run)
	m.last, m.text, m.labels = time.Now(), a.unmasked(asText.String()), asLabels.String()
	return m.text, m.labels, err
}
