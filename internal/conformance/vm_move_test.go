// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package conformance

import (
	"bytes"
	"os"
	"sync"
	"testing"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// A Buffer goes from system memory to a GPU's and to another GPU's, over NICs, while a peer reads it. No
// read fails, and each packet is of one of them.
//
//testbed:machine fabric+EPYC
//testbed:kernel 7.3 7.2
func TestVMInPlaceMove(t *testing.T) {
	testenv.VM(t)
	if os.Getenv("GPURDMA_REREG") != "1" {
		t.Skip("the RDMA core of this machine cannot re-register a dma-buf")
	}
	const size, packet = 1 << 18, 1024
	gpus := testenv.SoftGPUs(t, "personality=xe,amdgpu")
	noGoroutines(t)
	c := testenv.NewCables(t, 2)
	p := overCables(t, c, gpurdma.Config{PeerTimeout: bound})
	var sources []*gpualloc.Buffer
	for _, spec := range []string{"udmabuf", "drm:" + gpus[0].PCI + "/vram", "drm:" + gpus[1].PCI + "/vram"} {
		a := must(gpualloc.Open(spec, gpualloc.Env{}))(t)
		sources = append(sources, must(a.Alloc(limited(t), size, gpualloc.Options{}))(t))
		ok(t, a.Close())
	}
	fill := func(i int, with byte) {
		must(sources[i].WriteAt(bytes.Repeat([]byte{with}, size), 0))(t)
	}
	fill(0, 1)
	theirs := must(p.b.Register(limited(t), sources[0], gpurdma.DirectOnly()))(t)
	remote, mine := p.export(theirs.All(), all), host(t, p.a, size)
	stop := make(chan struct{})
	var peer sync.WaitGroup
	reads := 0
	peer.Go(func() {
		for ; ; reads++ {
			select {
			case <-stop:
				return
			default:
			}
			if err := p.client.Read(limited(t), mine.All(), remote); err != nil {
				t.Error(err)
				return
			}
			got := content(t, mine)
			for at := 0; at < size; at += packet {
				if x := got[at : at+packet]; x[0] == 0 || !bytes.Equal(x, bytes.Repeat(x[:1], packet)) {
					t.Errorf("read %d: the packet at %d has %#x and %#x", reads, at, x[0], x[packet-1])
					return
				}
			}
		}
	})
	moves := testenv.Soak(30, 1000)
	for i := 1; i <= moves && !t.Failed(); i++ {
		to := i % len(sources)
		fill(to, byte(1+i%100))
		ok(t, theirs.Move(limited(t), sources[to]))
		fill((i-1)%len(sources), 0)
	}
	close(stop)
	peer.Wait()
	t.Logf("%d moves under %d reads; now %v", moves, reads, theirs.Paths())
	want := bytes.Repeat([]byte("moved!!!"), size/8)
	put(t, mine, want)
	ok(t, p.client.Write(limited(t), remote, mine.All(), gpurdma.Delivered()))
	got := make([]byte, size)
	if must(sources[moves%len(sources)].ReadAt(got, 0))(t); !bytes.Equal(got, want) {
		t.Error("the memory does not have what was written")
	}
	for _, r := range p.client.Rails() {
		if r.Lost != 0 {
			t.Errorf("%v has lost its link", r)
		}
	}
	ok(t, p.client.Close())
	gone(t, p.server)
	ok(t, theirs.Close())
	for _, s := range sources {
		ok(t, s.Close())
	}
}
