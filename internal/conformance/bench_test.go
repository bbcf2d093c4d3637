// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"crypto/tls"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/fabrictest"
	"github.com/gpurdma/gpurdma/internal/memstream"
)

// BenchmarkConnectTLS compares the processor time of a connection by TLS, made and closed, with
// that of TLS alone over the same streams in memory, with the same certificates. They take turns.
func BenchmarkConnectTLS(b *testing.B) {
	ca := newAuthority(b)
	at := net.IPv4(127, 0, 0, 1)
	server, client := ca.config(b, "server", at, ca), ca.config(b, "client", at, ca)
	server.ClientAuth, client.ServerName = tls.RequireAndVerifyClientCert, "127.0.0.1"
	server.MinVersion, client.MinVersion = tls.VersionTLS13, tls.VersionTLS13
	server.SessionTicketsDisabled = true

	streams := memstream.New(memstream.Options{})
	ln := must(streams.Listen("127.0.0.1:1", nil))(b)
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			t := tls.Server(c, server)
			if t.Handshake() == nil {
				_, _ = t.Write([]byte{1})
			}
			_ = t.Close()
		}
	}()
	alone := func() {
		c := tls.Client(must(streams.Dial(b.Context(), "127.0.0.1:1", nil, "127.0.0.2"))(b), client)
		_, _ = c.Read(make([]byte, 1))
		_ = c.Close()
	}

	n := fabrictest.NewNetwork(fabrictest.Options{})
	here, there := must(n.Open())(b), must(n.Open())(b)
	defer here.Close()
	defer there.Close()
	own := must(there.Listen("127.0.0.1:1", gpurdma.Config{TLS: server}))(b)
	whole := func() {
		c := must(here.Dial(b.Context(), "127.0.0.1:1", gpurdma.Config{TLS: client}))(b)
		s := must(own.Accept(b.Context()))(b)
		_, _ = c.Close(), s.Close()
	}

	var times [2]time.Duration
	alone()
	whole()
	for b.Loop() {
		for i, connect := range []func(){alone, whole} {
			began := processorTime()
			connect()
			times[i] += processorTime() - began
		}
	}
	b.ReportMetric(float64(times[0].Microseconds())/float64(b.N), "us/tls")
	b.ReportMetric(float64(times[1].Microseconds())/float64(b.N), "us/connection")
	b.ReportMetric(float64(times[0])/float64(times[1]), "tls/connection")
}

// processorTime is the time that the process has used of the processors.
func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
