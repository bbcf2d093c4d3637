// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// Any number of goroutines may use a connection, for everything at once.
func testGoroutines(t *testing.T, s *setting) {
	p := s.pairWith(t, gpurdma.Config{Depth: 32}, gpurdma.Config{Depth: 32})
	seed := testenv.Seeded(t).Uint64()
	const each = 3000
	var mine, theirs []*gpurdma.Buffer
	for _, k := range s.kinds {
		mine, theirs = append(mine, k.alloc(t, p.a, 8*each)), append(theirs, k.alloc(t, p.b, 8*each))
	}
	n := testenv.Count(20)
	e := errs{t: t}
	counter := p.export(host(t, p.b, 8).All(), all)
	e.do(8*len(s.kinds), func(i int) error {
		k, at := i%len(s.kinds), int64(i/len(s.kinds))*each
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		name := fmt.Sprint(i)
		if err := p.server.Export(name, theirs[k].Range(at, each), all); err != nil {
			return err
		}
		remote, err := p.client.Import(limited(t), name)
		if err != nil {
			return err
		}
		want := make([]byte, each)
		for range n {
			for i := range want {
				want[i] = byte(r.Uint32())
			}
			if _, err := mine[k].WriteAt(want, at); err != nil {
				return err
			}
			if err := p.client.Write(limited(t), remote, mine[k].Range(at, each), gpurdma.Delivered()); err != nil {
				return err
			}
			if _, err := mine[k].WriteAt(make([]byte, each), at); err != nil {
				return err
			}
			b := p.client.Batch()
			b.Read(mine[k].Range(at, 1000), remote.Range(0, 1000))
			b.Read(mine[k].Range(at+1000, each-1000), remote.Range(1000, each-1000))
			if err := b.Do(limited(t)); err != nil {
				return err
			}
			got := make([]byte, each)
			if _, err := mine[k].ReadAt(got, at); err != nil {
				return err
			}
			if !bytes.Equal(got, want) {
				return fmt.Errorf("%s: other bytes came back", s.kinds[k].name)
			}
			if _, err := p.client.FetchAdd(limited(t), counter, 1); err != nil {
				return err
			}
			if err := p.server.Send(limited(t), []byte(name)); err != nil {
				return err
			}
			if _, err := p.client.Receive(limited(t)); err != nil {
				return err
			}
			_, _ = p.client.Stats(), p.a.Stats()
		}
		return p.server.Unexport(name)
	})
	e.wg.Wait()
	if sum := must(p.client.FetchAdd(limited(t), counter, 0))(t); sum != uint64(8*len(s.kinds)*n) {
		t.Errorf("sum %d", sum)
	}
	p.alive()
}

// Many connections come and go between two machines, in both directions.
func testManyConnections(t *testing.T, s *setting) {
	p := s.pair(t)
	mine, theirs := host(t, p.a, 8), host(t, p.b, 64)
	put(t, mine, []byte("12345678"))
	n := testenv.Count(4)
	e := errs{t: t}
	e.do(1, func(int) error { // the server
		for range 8 * n {
			c, err := p.ln.Accept(limited(t))
			if err != nil {
				return err
			}
			e.do(1, func(int) error {
				if err := c.Export("memory", theirs.All(), all); err != nil {
					return err
				}
				if _, err := c.ReceiveNotification(limited(t)); err != nil {
					return fmt.Errorf("a notification: %w", err)
				}
				return c.Close()
			})
		}
		return nil
	})
	e.do(8, func(i int) error {
		for range n {
			c, err := p.a.Dial(limited(t), p.ln.Addr().String(), gpurdma.Config{})
			if err != nil {
				return err
			}
			r, err := c.Import(limited(t), "memory")
			if err != nil {
				return err
			}
			if err := c.Write(limited(t), r.Range(int64(8*i), 8), mine.All(), gpurdma.Notify(nil)); err != nil {
				return err
			}
			<-c.Done()
			if err := c.Close(); err != nil {
				return err
			}
		}
		return nil
	})
	e.wg.Wait()
	same(t, "by all connections", theirs, bytes.Repeat([]byte("12345678"), 8))
	p.alive()
}
