// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/station"
	"github.com/gpurdma/gpurdma/cmd/internal/agent"
	"github.com/gpurdma/gpurdma/failure"
)

// metricsAt returns where metrics are served. Without a host it is on this machine only.
func metricsAt(addr string) string {
	if strings.HasPrefix(addr, ":") {
		return "127.0.0.1" + addr
	}
	return addr
}

// listenMetrics listens for HTTP requests for metrics.
func listenMetrics(ctx context.Context, addr string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", metricsAt(addr))
	if err != nil {
		return nil, &failure.Error{Op: "listen", Device: addr, Remedy: "choose another --metrics HOST:PORT; port 0 chooses one that is free", Err: err}
	}
	return l, nil
}

// serveMetrics answers requests at /metrics until ctx ends. It closes the listener.
func serveMetrics(ctx context.Context, s *station.Station, l net.Listener) error {
	registry := prometheus.NewRegistry()
	if err := registry.Register(s.Metrics()); err != nil {
		return errors.Join(err, l.Close())
	}
	return agent.Serve(ctx, l, agent.Share(func(context.Context) agent.Answer { return agent.Answer{Metrics: agent.NewPage(registry)} }, 0))
}
