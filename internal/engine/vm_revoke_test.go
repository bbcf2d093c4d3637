// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// These tests let a GPU's driver move or revoke memory under traffic, with each kind of NIC
// that docs/explanation/kernel-rxe.md has.

// besideGPU is the setting with a software GPU, and a NIC that imports memory in that way.
func besideGPU(t *testing.T, importer string) (setting, testenv.GPUPlace) {
	vram := testenv.GPUPlaces(t, "amdgpu")[0]
	testenv.SetImporter(t, testNIC, importer)
	noGrowth(t, testNIC)
	return hostOnly(testNIC), vram
}

func inode(b *memory.Buffer) string { return fmt.Sprint(b.Inodes()[0]) }

// traffic writes, reads back, compares and counts, until it is stopped or an operation fails.
type traffic struct {
	w      *world
	mine   *memory.Buffer
	rb     *memory.RemoteBuffer
	rounds atomic.Int64
	stop   atomic.Bool
	ended  chan struct{}
	err    error // after ended
}

// trafficSize is the part of each buffer that it uses: half of the buffer, and a counter.
const trafficSize, trafficPart = 64 << 10, 24 << 10

func (w *world) traffic(t *testing.T, mine *memory.Buffer, rb *memory.RemoteBuffer) *traffic {
	x := &traffic{w: w, mine: mine, rb: rb, ended: make(chan struct{})}
	r := testenv.Seeded(t)
	ctx := limited(t)
	go func() {
		defer close(x.ended)
		for x.err == nil && !x.stop.Load() {
			if x.err = x.round(ctx, r); x.err == nil {
				x.rounds.Add(1)
				x.err = ctx.Err()
			}
		}
	}()
	t.Cleanup(func() { x.stop.Store(true); <-x.ended })
	x.wait(t, 3)
	return x
}

// wait waits until there have been that many rounds.
func (x *traffic) wait(t *testing.T, rounds int64) {
	t.Helper()
	for end := time.Now().Add(bound); x.rounds.Load() < rounds; time.Sleep(time.Millisecond) {
		select {
		case <-x.ended:
			t.Fatalf("the traffic ended after %d rounds: %v", x.rounds.Load(), x.err)
		default:
		}
		if time.Now().After(end) {
			t.Fatalf("%d rounds of traffic, want %d", x.rounds.Load(), rounds)
		}
	}
}

// finish stops it; no operation may have failed.
func (x *traffic) finish(t *testing.T) {
	t.Helper()
	x.stop.Store(true)
	<-x.ended
	if x.err != nil {
		t.Errorf("after %d rounds: %v", x.rounds.Load(), x.err)
	}
}

// fails waits for an operation to fail, and returns its error.
func (x *traffic) fails(t *testing.T) error {
	t.Helper()
	<-x.ended // or at its limit, which is an error, too
	if x.err == nil || errors.Is(x.err, context.DeadlineExceeded) {
		t.Fatalf("the traffic goes on, or hangs: %v", x.err)
	}
	return x.err
}

func (x *traffic) round(ctx context.Context, r *rand.Rand) error {
	want, got := make([]byte, trafficPart), make([]byte, trafficPart)
	for i := range want {
		want[i] = byte(r.Uint32())
	}
	if _, err := x.mine.WriteAt(want, 0); err != nil {
		return err
	}
	part := func(off, n int64) memory.Span { return memory.Span{Buf: x.mine, Offset: off, Length: n} }
	const at, counter = 4099, 60 << 10
	e, peer := x.w.a, x.w.ab
	for _, post := range []func() error{
		func() error { return e.Write(part(0, trafficPart), peer, x.rb.Part(at, trafficPart), nil) },
		func() error { return e.Read(part(trafficPart, trafficPart), peer, x.rb.Part(at, trafficPart), nil) },
		func() error { return e.FetchAdd(part(counter, 8), peer, x.rb.Part(counter, 8), 1, nil) },
	} {
		if err := post(); err != nil {
			return err
		}
		var c [1]operation.Completion
		if _, err := e.Wait(ctx, c[:]); err != nil {
			return err
		}
		if c[0].Err != nil {
			return c[0].Err
		}
	}
	if _, err := x.mine.ReadAt(got, trafficPart); err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return errors.New("other bytes were read back")
	}
	if _, err := x.mine.ReadAt(got[:8], counter); err != nil {
		return err
	}
	if n := int64(binary.NativeEndian.Uint64(got)); n != x.rounds.Load() {
		return fmt.Errorf("counted %d in round %d", n, x.rounds.Load())
	}
	return nil
}

// A NIC that follows the buffer (mlx5): the buffer is moved again and again under traffic,
// which continues, and no byte is lost.
//
//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 7.2
func TestVMEvictedUnderTraffic(t *testing.T) {
	s, vram := besideGPU(t, "dynamic")
	gpu := ofGPU(vram)
	for name, kinds := range map[string][2]kind{
		"written": {hostKind, gpu}, "written from": {gpu, hostKind}, "both": {gpu, gpu},
	} {
		t.Run(name, func(t *testing.T) {
			w := s.world(t, EndpointOptions{})
			mine, theirs := kinds[0].make(t, w.a.nic, trafficSize), kinds[1].make(t, w.b.nic, trafficSize)
			zero := make([]byte, trafficSize)
			if _, err := theirs.WriteAt(zero, 0); err != nil {
				t.Fatal(err)
			}
			x := w.traffic(t, mine, w.share(theirs.All(), allAccess))
			moves := testenv.Count(20)
			for range moves {
				for _, b := range []*memory.Buffer{mine, theirs} {
					if _, ok := b.GPU(); ok {
						// Traffic has moved it back.
						if at := vram.GPU.Place(t, b.Inodes()[0]); at != "vram" {
							t.Errorf("it is in %q", at)
						}
						vram.GPU.Set(t, "evict", inode(b))
					}
				}
				x.wait(t, x.rounds.Load()+2)
			}
			x.finish(t)
			t.Logf("%d moves in %d rounds", moves, x.rounds.Load())
			// The last round, as the CPU sees it; other bytes are unchanged.
			here, there := content(t, mine), content(t, theirs)
			copy(zero[4099:], here[:trafficPart])
			binary.NativeEndian.PutUint64(zero[60<<10:], uint64(x.rounds.Load()))
			if !bytes.Equal(there, zero) {
				t.Error("other bytes are in the target")
			}
		})
	}
}

// A NIC that pins the buffer (bnxt_re, efa): the GPU's driver cannot move it, and traffic
// continues.
//
//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 7.2
func TestVMPinnedUnderTraffic(t *testing.T) {
	s, vram := besideGPU(t, "pinned")
	gpu := ofGPU(vram)
	w := s.world(t, EndpointOptions{})
	mine, theirs := gpu.make(t, w.a.nic, trafficSize), gpu.make(t, w.b.nic, trafficSize)
	if _, err := theirs.WriteAt(make([]byte, trafficSize), 0); err != nil {
		t.Fatal(err)
	}
	x := w.traffic(t, mine, w.share(theirs.All(), allAccess))
	for range testenv.Count(10) {
		for _, b := range []*memory.Buffer{mine, theirs} {
			for _, file := range []string{"evict", "revoke"} {
				if err := vram.GPU.TrySet(file, inode(b)); !errors.Is(err, unix.EBUSY) {
					t.Errorf("%s of memory that is pinned: %v, want EBUSY", file, err)
				}
			}
		}
		x.wait(t, x.rounds.Load()+1)
	}
	x.finish(t)
}

// A NIC that drops revoked memory (irdma): traffic to revoked memory of the peer ends with a
// remote access error, and no byte is written any more. Both connections are lost; the
// endpoints continue with a new connection and a new key, after the driver has given the
// memory back.
//
//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 7.2
func TestVMRevokedUnderTraffic(t *testing.T) {
	s, vram := besideGPU(t, "revocable")
	w := s.world(t, EndpointOptions{})
	mine := hostKind.make(t, w.a.nic, trafficSize)
	a := must(gpualloc.Open(vram.Spec, gpualloc.Env{}))(t)
	closing(t, a)
	mem := must(a.Alloc(t.Context(), trafficSize, gpualloc.Options{}))(t)
	closing(t, mem)
	theirs := must(w.b.nic.Register(mem, memory.BufferOptions{Policy: memory.DirectOnly}))(t)
	closingBuffer(t, theirs)
	for range testenv.Count(5) {
		if _, err := theirs.WriteAt(make([]byte, trafficSize), 0); err != nil {
			t.Fatal(err)
		}
		old := must(w.b.Share(0, theirs.All(), allAccess))(t) // lives on, whatever becomes of the connection
		w.ok(w.b.Recv(memory.Span{}, w.ba, "receive"))
		x := w.traffic(t, mine, old)
		vram.GPU.Set(t, "revoke", inode(theirs))
		want := random(t, testenv.Seeded(t), theirs, trafficSize)
		if err := x.fails(t); !errors.Is(err, &ibvfd.WCError{Status: ibvfd.WCRemAccessErr}) {
			t.Errorf("the traffic ended with %v, want a remote access error", err)
		}
		same(t, "after the revocation", theirs, want)
		w.lost(w.a, w.ab)
		if c := w.wait(w.b); c.Context != "receive" || !errors.Is(c.Err, ErrNotConnected) && !errors.Is(c.Err, &ibvfd.WCError{Status: ibvfd.WCWRFlushErr}) {
			t.Errorf("the other side: %+v", c)
		}
		w.lost(w.b, w.ba)

		// Revoked memory cannot be shared.
		w.connect()
		var reg *ibvfd.RegError
		if _, err := w.b.Share(w.ba, theirs.All(), allAccess); !errors.As(err, &reg) || !errors.Is(err, unix.ENODEV) {
			t.Errorf("a key to memory that was revoked: %v", err)
		}
		vram.GPU.Set(t, "unrevoke", inode(theirs))
		// The old registration stays unusable, here ...
		into := must(w.a.Share(w.ab, mine.All(), allAccess))(t)
		w.ok(w.a.Offer(limited(t), w.ab, into))
		into = must(w.b.Offered(limited(t), w.ba))(t)
		w.ok(w.b.Write(theirs.All(), w.ba, into.All(), "from what was revoked"))
		c := w.wait(w.b)
		if localFault(c.Err) == nil {
			t.Errorf("written from what was revoked: %+v", c)
		}
		w.lost(w.b, w.ba)
		w.lost(w.a, w.ab)
		// ... and by its key. A new key works.
		w.connect()
		w.ok(w.a.Write(mine.All(), w.ab, w.share(theirs.All(), allAccess).All(), "new key"))
		w.done(w.a, operation.Write, "new key")
		want = content(t, mine)
		same(t, "by a new key", theirs, want)
		random(t, testenv.Seeded(t), mine, trafficSize)
		w.ok(w.a.Write(mine.All(), w.ab, old.All(), "old key"))
		w.failed(w.a, "old key", ibvfd.WCRemAccessErr)
		w.lost(w.a, w.ab)
		w.lost(w.b, w.ba)
		same(t, "by the old key", theirs, want)
		w.ok(w.b.Unshare(old))

		// After a new registration the memory works, both ways.
		w.connect()
		w.ok(theirs.Close())
		theirs = must(w.b.nic.Register(mem, memory.BufferOptions{Policy: memory.DirectOnly}))(t)
		closingBuffer(t, theirs)
		if _, err := theirs.WriteAt(make([]byte, trafficSize), 0); err != nil {
			t.Fatal(err)
		}
		x = w.traffic(t, mine, w.share(theirs.All(), allAccess))
		x.finish(t)
		if !bytes.Equal(content(t, theirs)[4099:][:trafficPart], content(t, mine)[:trafficPart]) {
			t.Error("the last round is not there")
		}
		into = must(w.a.Share(w.ab, mine.All(), allAccess))(t)
		w.ok(w.a.Offer(limited(t), w.ab, into))
		into = must(w.b.Offered(limited(t), w.ba))(t)
		want = random(t, testenv.Seeded(t), theirs, trafficSize)
		w.ok(w.b.Write(theirs.All(), w.ba, into.All(), "again"))
		w.done(w.b, operation.Write, "again")
		same(t, "written from it", mine, want)
	}
}

// localFault returns the error of an operation whose own memory the NIC could not use, and nil
// for other errors; rxe sometimes flushes such an operation.
func localFault(err error) error {
	for _, s := range []ibvfd.WCStatus{ibvfd.WCLocProtErr, ibvfd.WCLocAccessErr, ibvfd.WCLocQPOpErr, ibvfd.WCWRFlushErr} {
		if errors.Is(err, &ibvfd.WCError{Status: s}) {
			return err
		}
	}
	return nil
}

// The same with the operations' own memory: they fail at this side, and the peer's memory does
// not change.
//
//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 7.2
func TestVMRevokedAtTheSource(t *testing.T) {
	s, vram := besideGPU(t, "revocable")
	gpu := ofGPU(vram)
	w := s.world(t, EndpointOptions{})
	theirs := hostKind.make(t, w.b.nic, trafficSize)
	for range testenv.Count(3) {
		mine := gpu.make(t, w.a.nic, trafficSize)
		if _, err := theirs.WriteAt(make([]byte, trafficSize), 0); err != nil {
			t.Fatal(err)
		}
		x := w.traffic(t, mine, w.share(theirs.All(), allAccess))
		vram.GPU.Set(t, "revoke", inode(mine))
		if err := x.fails(t); localFault(err) == nil {
			t.Errorf("the traffic ended with %v, want that its memory cannot be used", err)
		}
		w.lost(w.a, w.ab)
		w.lost(w.b, w.ba)
		w.ok(mine.Close())
		w.connect()
		w.traffic(t, gpu.make(t, w.a.nic, trafficSize), w.share(hostKind.make(t, w.b.nic, trafficSize).All(), allAccess)).finish(t)
	}
}
