// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"context"
	"fmt"
	"reflect"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd/uverbs"
)

// A child's share of the volume: MRs on buffers of its own, which it has when it is
// killed.
const crowdBuffers, crowdMRs = 40, 3

// crowdOf registers them, with the descriptors of every second buffer closed.
func crowdOf(d device) error {
	a, err := gpualloc.Open("drm:vgem", gpualloc.Env{})
	if err != nil {
		return err
	}
	for i := range crowdBuffers {
		b, err := a.Alloc(context.Background(), 64<<10, gpualloc.Options{})
		if err != nil {
			return err
		}
		for range crowdMRs {
			if _, err := d.try(b, 0, 64<<10); err != nil {
				return err
			}
		}
		if i%2 == 0 {
			if err := b.CloseFDs(); err != nil {
				return err
			}
		}
	}
	fmt.Println("registered", crowdBuffers*crowdMRs)
	return nil
}

// Many registrations on buffers that come and go, so that the kernel uses addresses
// again, among refusals and with processes that are killed: each has its begin and its
// end, and nothing is left of any, in the kernel or here.
func TestVMVolume(t *testing.T) {
	const buffers, mrs, children = 400, 3, 3
	tr := shared(t)
	d := openDevice(t)
	a, err := gpualloc.Open("drm:vgem", gpualloc.Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	want, got := map[EventKind]int{}, map[EventKind]int{}
	ended := map[string]int{}
	begun := map[uint64]uint64{} // buffers' inodes, by record
	take := func() {
		t.Helper()
		for _, e := range all(t, tr) {
			got[e.Kind]++
			switch r := e.Record; e.Kind {
			case Registered:
				if begun[r.ID] != 0 {
					t.Errorf("two records are number %d", r.ID)
				}
				begun[r.ID] = r.Buffer.Inode
			case Released:
				ended[r.Ended]++
				if begun[r.ID] != r.Buffer.Inode {
					t.Errorf("record %d began on dma-buf %d and ended on %d", r.ID, begun[r.ID], r.Buffer.Inode)
				}
				delete(begun, r.ID)
			}
		}
	}
	for i := range buffers {
		b, err := a.Alloc(context.Background(), 64<<10, gpualloc.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var handles []uint32
		for range mrs {
			handles = append(handles, d.register(t, b).Handle)
			want[Registered]++
		}
		if _, err := d.try(b, 64<<10, 4096); err != unix.EINVAL {
			t.Errorf("beyond the end: %v", err)
		}
		want[Refused]++
		if i%2 == 0 { // the MRs keep the buffer
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := d.RegDMABufMR(uverbs.DMABufMR{PD: d.pd, FD: 1 << 20, Access: accessAll, Length: 4096}); err != unix.EBADF {
				t.Errorf("a descriptor that is not open: %v", err)
			}
			want[Refused]++
		}
		for n := range handles { // in another order each time
			if err := d.DestroyMR(handles[(n+i)%mrs]); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if i%50 == 0 {
			take()
		}
	}
	how := map[string]int{"deregistered": want[Registered]}
	for range children {
		cmd, _, out := runChild(t, childCrowd)
		n := 0
		if _, err := fmt.Fscanf(out, "registered %d\n", &n); err != nil || n != crowdBuffers*crowdMRs {
			t.Fatalf("the child registered %d: %v", n, err)
		}
		want[Registered] += n
		how[endedByExit] += n
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		cmd.Wait() //nolint:errcheck // it was killed
	}
	want[Released] = want[Registered]
	// The kernel lets go of a process's files a moment after its end.
	maps := []string{"scopes", "attaches", "bufs", "mrs", "deregs"}
	left := func() (n int) {
		for _, name := range maps {
			n += entries(t, tr, name)
		}
		return n
	}
	for ctx := within(t); left() > 0 && ctx.Err() == nil; {
		time.Sleep(10 * time.Millisecond)
	}
	take()
	for _, name := range maps {
		if n := entries(t, tr, name); n != 0 {
			t.Errorf("map %s has %d entries", name, n)
		}
	}
	for _, kind := range []EventKind{Registered, Refused, Released} {
		if got[kind] != want[kind] {
			t.Errorf("%s: %d, want %d", kind, got[kind], want[kind])
		}
	}
	if !reflect.DeepEqual(ended, how) {
		t.Errorf("ended by %v, want %v", ended, how)
	}
	if l := tr.Loss(); l.Any() || l.Orphaned != 0 {
		t.Errorf("%v, %d orphaned", l, l.Orphaned)
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if j := tr.join; len(j.live) != 0 || j.order.Len() != 0 || len(j.onBuf) != 0 || len(j.early) != 0 || len(j.moved) != 0 || len(begun) != 0 {
		t.Errorf("%d records live, %d in order, on %d buffers; events wait for %d; %d moves; %d have no end",
			len(j.live), j.order.Len(), len(j.onBuf), len(j.early), len(j.moved), len(begun))
	}
	t.Logf("%v; ended: %v", got, ended)
}
