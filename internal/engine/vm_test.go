// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package engine

import (
	"fmt"
	"testing"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/rdmanl"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// testNIC is the testbed's software NIC.
const testNIC = "rxe0"

// onNIC is the setting with a real kernel: every exporter that it has, host memory, and memory
// that could be registered but is staged. A test must leave no descriptor, RDMA object or
// dma-buf.
func onNIC(t testing.TB) setting {
	testenv.VM(t)
	noGrowth(t, testNIC)
	return allKinds(t, testNIC)
}

func allKinds(t testing.TB, nic string) setting {
	s := hostOnly(nic)
	for _, x := range testenv.Exporters() {
		if x.Expected(t) {
			x.Need(t)
			s.kinds = append(s.kinds, exported(x.Spec, x.Spec, memory.PreferDirect))
		}
	}
	s.kinds = append(s.kinds, exported("staged", "drm:vgem", memory.StagedOnly))
	return s
}

func hostOnly(nic string) setting {
	return setting{
		open: func(t testing.TB, opt memory.NICOptions) *memory.NIC {
			n := must(memory.OpenNIC(nic, opt))(t)
			closing(t, n)
			return n
		},
		kinds: []kind{hostKind},
	}
}

// few returns the setting with one kind of each sort.
func (s setting) few() setting {
	s.kinds = []kind{hostKind, exported("drm:vgem", "drm:vgem", memory.PreferDirect), s.kinds[len(s.kinds)-1]}
	return s
}

func exported(name, spec string, p memory.Policy) kind {
	return kind{name, p == memory.StagedOnly, p == memory.DirectOnly, func(t testing.TB, n *memory.NIC, size int64) *memory.Buffer {
		t.Helper()
		a := must(gpualloc.Open(spec, gpualloc.Env{}))(t)
		closing(t, a)
		b := must(n.Allocate(t.Context(), a, size, memory.BufferOptions{Policy: p}))(t)
		closingBuffer(t, b)
		if path := b.Path(); (path.Direct == memory.Staged) != (p == memory.StagedOnly) || path.Reason != nil {
			t.Fatalf("%s: %+v", name, path)
		}
		if at, ok := b.GPU(); ok && a.Describe().Kind == gpualloc.KindSystem {
			t.Errorf("%s: the host's memory is on %v", name, at)
		}
		return b
	}}
}

// usage counts resources that a test must free.
type usage struct {
	fds     int
	rdma    string
	dmabufs int
}

func currentUsage(t testing.TB, nic string) usage {
	t.Helper()
	c := must(rdmanl.Dial())(t)
	defer c.Close()
	s := must(c.Summary(nic))(t)
	bufs := must(dmabuf.KernelBufs(""))(t)
	return usage{testenv.Descriptors(t), fmt.Sprint(s), len(bufs)}
}

func noGrowth(t testing.TB, nic string) {
	t.Helper()
	testenv.NoGrowth(t, func(t testing.TB) usage { return currentUsage(t, nic) })
}

func TestVMOperations(t *testing.T) { testOperations(t, onNIC(t)) }
func TestVMRandomOperations(t *testing.T) {
	testRandomOperations(t, onNIC(t).few(), testenv.Count(300))
}
func TestVMMessagesOfLayouts(t *testing.T) {
	s := onNIC(t).few()
	s.kinds = append(s.kinds, exported("only", "drm:vgem", memory.DirectOnly))
	testMessagesOfLayouts(t, s)
}
func TestVMRemoteRefusals(t *testing.T)    { testRemoteRefusals(t, onNIC(t).few()) }
func TestVMReceiverNotReady(t *testing.T)  { testReceiverNotReady(t, onNIC(t)) }
func TestVMMessageTooLong(t *testing.T)    { testMessageTooLong(t, onNIC(t)) }
func TestVMForgedToken(t *testing.T)       { testForgedToken(t, onNIC(t)) }
func TestVMPeerDisappears(t *testing.T)    { testPeerDisappears(t, onNIC(t).few()) }
func TestVMFences(t *testing.T)            { testFences(t, onNIC(t).few(), testenv.Count(20)) }
func TestVMQueues(t *testing.T)            { testQueues(t, onNIC(t)) }
func TestVMSelective(t *testing.T)         { testSelectiveCompletion(t, onNIC(t)) }
func TestVMSilentBatch(t *testing.T)       { testSilentBatch(t, onNIC(t)) }
func TestVMConnectionless(t *testing.T)    { testConnectionless(t, onNIC(t)) }
func TestVMCloseUnderTraffic(t *testing.T) { testCloseUnderTraffic(t, onNIC(t).few()) }
func TestVMUnshare(t *testing.T)           { testUnshare(t, onNIC(t)) }
func TestVMConcurrentUse(t *testing.T)     { testConcurrentUse(t, onNIC(t), testenv.Count(100)) }
func TestVMCancelled(t *testing.T)         { testCancelled(t, onNIC(t)) }
func TestVMSlices(t *testing.T)            { testSlices(t, onNIC(t)) }
func TestVMReferences(t *testing.T)        { testReferences(t, onNIC(t)) }
func TestVMPinnedMemory(t *testing.T)      { testPinnedMemoryIsBounded(t, onNIC(t)) }
func TestVMWaitSleeps(t *testing.T)        { testWaitSleeps(t, onNIC(t)) }
func TestVMWaitOfMany(t *testing.T)        { testWaitOfMany(t, onNIC(t), testenv.Count(60)) }

// Neither an operation nor waiting for it allocates, with or without sleep.
func TestVMWaitDoesNotAllocate(t *testing.T) {
	w := onNIC(t).world(t, EndpointOptions{})
	mine, theirs := hostKind.make(t, w.a.nic, 64), hostKind.make(t, w.b.nic, 64)
	from, to := mine.All(), w.share(theirs.All(), allAccess).All()
	ctx, done := limited(t), make([]operation.Completion, 1)
	write := func() {
		w.ok(w.a.Write(from, w.ab, to, nil))
		for range 2 { // the second run must allocate nothing
			w.a.Sleep(ctx)
			if n, err := w.a.Poll(done); err != nil || done[0].Err != nil {
				t.Fatal(err, done[0].Err)
			} else if n == 1 {
				return
			}
		}
		if n, err := w.a.Wait(ctx, done); n != 1 || err != nil || done[0].Err != nil {
			t.Fatal(n, err, done[0].Err)
		}
	}
	if n := testing.AllocsPerRun(100, write); n != 0 {
		t.Errorf("%v allocations for a write and its completion", n)
	}
}
