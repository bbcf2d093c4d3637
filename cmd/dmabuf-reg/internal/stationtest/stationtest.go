// SPDX-License-Identifier: Apache-2.0

package stationtest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/peer"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/serve"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/station"
	"github.com/gpurdma/gpurdma/internal/engine"
	"github.com/gpurdma/gpurdma/internal/memnic"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// Said is what several goroutines say.
type Said struct {
	mu  sync.Mutex
	buf strings.Builder
}

// Write implements io.Writer.
func (s *Said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(p)
}

// Tell says one thing, in a line.
func (s *Said) Tell(format string, args ...any) { fmt.Fprintf(s, format+"\n", args...) }

// String is all that was said.
func (s *Said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

// Open makes a station of host memory with NICs, and closes it when the test ends.
func Open(t *testing.T, opt engine.EndpointOptions, nics ...*memory.NIC) *station.Station {
	t.Helper()
	f := &station.Flags{Size: 256 << 10, Timeout: testenv.Limit(time.Minute), Plaintext: true, Policy: station.Policy(memory.PreferDirect)}
	s, err := f.OnNICs(t.Context(), nics, opt)
	if err != nil {
		t.Fatal(err)
	}
	s.Tell = t.Logf
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Serve serves the buffer of a station with NICs at an address until the test ends.
func Serve(t *testing.T, addr string, nics ...*memory.NIC) (*station.Station, *Said) {
	t.Helper()
	said := new(Said)
	s := serve.New(said.Tell)
	there := Open(t, s.Options(), nics...)
	if _, err := there.Listen(addr); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var task sync.WaitGroup
	task.Go(func() { _ = s.Serve(ctx, there) })
	t.Cleanup(func() {
		cancel()
		task.Wait()
	})
	return there, said
}

// NICs makes NICs on a network in memory.
func NICs(net *memnic.Network, names ...string) (nics []*memory.NIC, devices []*memnic.Device) {
	for _, name := range names {
		dev := net.Device(name, memnic.Limits{})
		nics, devices = append(nics, memory.NewNIC(dev, memory.NICOptions{})), append(devices, dev)
	}
	return nics, devices
}

// Pair is a server, and a client of it.
type Pair struct {
	Server  *station.Station
	Said    *Said // by the server
	Client  *peer.Client
	Devices []*memnic.Device // of the client
}

// Dial makes a pair on a network in memory.
func Dial(t *testing.T, theirs, ours []string) (p Pair) {
	t.Helper()
	net := memnic.New(memnic.Exchanges())
	nics, _ := NICs(net, theirs...)
	p.Server, p.Said = Serve(t, "a:1", nics...)
	nics, p.Devices = NICs(net, ours...)
	var err error
	if p.Client, err = peer.Dial(t.Context(), Open(t, engine.EndpointOptions{}, nics...), "a:1"); err != nil {
		t.Fatal(err)
	}
	return p
}

// Metrics are a station's metrics in Prometheus' text format.
func Metrics(t *testing.T, s *station.Station) string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(s.Metrics()); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}
