// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/internal/handshake"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// slack is the factor by which steps may take longer than they should.
const slack = 3

// accepting accepts every peer that connects, and removes it.
func accepting(t *testing.T, e *Endpoint) (accepted *atomic.Int32) {
	accepted = new(atomic.Int32)
	var tasks sync.WaitGroup
	tasks.Go(func() {
		for {
			p, err := e.Accept(e.life)
			if err != nil {
				return
			}
			accepted.Add(1)
			_ = p
		}
	})
	t.Cleanup(func() {
		_ = e.Close()
		tasks.Wait()
	})
	return accepted
}

// A caller with a round trip of 100 ms connects within 3 s, each time, while 2,000 callers a
// second from 16 addresses send nothing, or half of a handshake message, or all of it and then
// nothing.
func TestDistantCaller(t *testing.T) {
	testenv.Exhaustive(t)
	const within, way, times, perSecond = 3 * time.Second, 50 * time.Millisecond, 10, 2000
	good := newAuthority(t)
	for _, tt := range []struct {
		says string
		opt  EndpointOptions
	}{{saysPlain, EndpointOptions{}}, {saysTLS, EndpointOptions{TLS: good.config(t, good)}}, {saysNothing, EndpointOptions{TLS: good.config(t, good)}}} {
		name := tt.says
		if tt.opt.TLS != nil {
			name += " to TLS"
		}
		t.Run(name, func(t *testing.T) {
			s := inMemory(t)
			var told, odd atomic.Int32
			opt := tt.opt
			opt.OnReject = func(_ PeerInfo, why error) {
				told.Add(1)
				if !errors.Is(why, handshake.ErrReplaced) && !errors.Is(why, handshake.ErrSlow) {
					odd.Add(1)
				}
			}
			server := s.endpoint(t, opt)
			addr := must(server.Listen("127.0.0.1:0"))(t).String()
			accepted := accepting(t, server)
			far := distant(t, addr, way)
			const clients = 3 // descriptors, and as many of the proxy
			watchBounds(t, name, pendingHandshakes+handshake.Ending+10*clients)
			start, used := time.Now(), testenv.ProcessTime(t)
			callHostile(t, addr, tt.says, perSecond, 1<<30)
			time.Sleep(time.Second / 2) // all places are taken, by addresses that the endpoint does not know yet
			var took []time.Duration
			for i := range times {
				opt := tt.opt
				opt.ConnectTimeout = testenv.Limit(slack * within)
				client := s.endpoint(t, opt)
				start := time.Now()
				if _, err := client.Connect(limited(t), far); err != nil {
					t.Errorf("caller %d after %v: %v", i, time.Since(start), err)
				}
				took = append(took, time.Since(start).Round(time.Millisecond))
				for end := time.Now().Add(bound); accepted.Load() <= int32(i) && time.Now().Before(end) && !t.Failed(); {
					time.Sleep(time.Millisecond)
				}
				hangUp(t, client)
			}
			peak, err := testenv.PeakMemory(os.Getpid())
			if err != nil {
				t.Error(err)
			}
			t.Logf("took %v; peak memory %d MiB; %d hostile callers turned out in %v, processor %v; %d for another reason", took, peak>>20, told.Load(), time.Since(start).Round(time.Millisecond), testenv.ProcessTime(t)-used, odd.Load())
			if n := accepted.Load(); n != times {
				t.Errorf("%d accepted", n)
			}
		})
	}
}

// Good callers, all at once and from one address, connect at the first try, besides 10,000
// from other addresses that say nothing.
func TestManyCallersAtOnce(t *testing.T) {
	testenv.Exhaustive(t)
	good := newAuthority(t)
	for _, many := range []int{240, 1000} {
		t.Run(fmt.Sprint(many), func(t *testing.T) {
			s := inMemory(t)
			var told, out atomic.Int32
			server := s.endpoint(t, EndpointOptions{TLS: good.config(t, good), MaxPeers: many, OnReject: func(from PeerInfo, why error) {
				told.Add(1)
				if from.Addr.(*net.TCPAddr).IP.Equal(net.IPv4(127, 0, 0, 1)) {
					out.Add(1)
					t.Logf("a good caller was turned out: %v", why)
				}
			}})
			addr := must(server.Listen("127.0.0.1:0"))(t).String()
			accepted := accepting(t, server)
			cfg := good.config(t, good)
			var clients []*Endpoint
			for range many {
				clients = append(clients, s.endpoint(t, EndpointOptions{TLS: cfg, ConnectTimeout: testenv.Limit(slack * 10 * time.Second)}))
			}
			callHostile(t, addr, saysNothing, 10_000, 10_000)
			time.Sleep(time.Second / 2) // silent callers come before, meanwhile and after
			took := make([]time.Duration, many)
			var tasks sync.WaitGroup
			start := time.Now()
			for i, c := range clients {
				tasks.Go(func() {
					if _, err := c.Connect(limited(t), addr); err != nil {
						t.Errorf("caller %d after %v: %v", i, time.Since(start), err)
					}
					took[i] = time.Since(start)
				})
			}
			tasks.Wait()
			slices.Sort(took)
			t.Logf("%d: the first after %v, half after %v, the last after %v; %d silent ones turned out", many, took[0], took[many/2], took[many-1], told.Load())
			for end := time.Now().Add(bound); accepted.Load() < int32(many) && time.Now().Before(end) && !t.Failed(); {
				time.Sleep(time.Millisecond)
			}
			if n := accepted.Load(); n != int32(many) || out.Load() > 0 {
				t.Errorf("%d accepted, %d turned out", n, out.Load())
			}
		})
	}
}
