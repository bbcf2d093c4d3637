// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"
)

// Limits of what clients may cost.
const (
	// Connections is how many clients are served at the same time; others wait in the kernel's queue.
	Connections = 512
	// HeaderBytes is how long the head of a request may be. net/http adds 4 KiB of its own.
	HeaderBytes = 8 << 10

	headTime = 5 * time.Second  // for the head of a request
	lookTime = time.Minute      // for a look and its answer
	readTime = 10 * time.Second // for the client to read the answer
	idleTime = 30 * time.Second
	stopTime = 5 * time.Second // for clients that still read when the server ends
)

// Serve answers requests for /metrics, and /healthz without a look at the machine, until the context ends. It
// closes the listener.
func Serve(ctx context.Context, l net.Listener, looks *Shared) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		answer, err := looks.Answer(r.Context())
		if err != nil {
			return // the client is gone
		}
		// A client that does not read must not keep its place.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(readTime))
		answer.Metrics.ServeHTTP(w, r)
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	s := &http.Server{
		Handler: mux, MaxHeaderBytes: HeaderBytes, ReadHeaderTimeout: headTime, ReadTimeout: headTime,
		WriteTimeout: lookTime, IdleTimeout: idleTime,
	}
	stopped := make(chan error, 1)
	serving, end := context.WithCancel(ctx)
	go func() {
		<-serving.Done()
		soon, cancel := context.WithTimeout(context.Background(), stopTime)
		defer cancel()
		err := s.Shutdown(soon)
		if errors.Is(err, context.DeadlineExceeded) {
			err = s.Close()
		}
		stopped <- err
	}()
	err := s.Serve(netutil.LimitListener(l, Connections))
	end()
	if closing := <-stopped; errors.Is(err, http.ErrServerClosed) {
		err = closing
	}
	return err
}
