// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/placement"
)

// A kretprobe follows a function in a bounded number of threads at once, and
// misses its return in the others. Each record that is lost this way is counted,
// and the verdicts of records that lived at that time are Unknown.
func TestVMKretprobesMissed(t *testing.T) {
	const threads, most, rounds = 64, 4, 20
	c := mine()
	c.tests.RDMAWithoutBTF = true
	tr := open(t, c)
	d := openDevice(t)
	// All threads wait for the lock of one buffer, in the middle of the call. To map the
	// buffer takes longer than the kernel lets one thread run without a break.
	lived, b := alloc(t, "drm:vgem", 1<<20), alloc(t, "drm:vgem", 64<<20)
	before := d.register(t, lived)
	defer d.DestroyMR(before.Handle)
	// By the buffer: without the modules' types not every kernel knows keys.
	key := placement.Key{Inode: inode(lived)}
	if p, err := tr.Prove(within(t), key); err != nil || p.Memory != placement.SystemMemory {
		t.Fatalf("%v, %v", p, err)
	}
	all(t, tr)

	once := func() {
		mr, err := d.try(b, 0, uint64(b.Size()))
		if err == nil {
			err = d.DestroyMR(mr.Handle)
		}
		if err != nil {
			t.Error(err)
		}
	}
	var alone sync.Mutex
	again := 0
	var wg, crowd sync.WaitGroup
	var turns [threads]chan struct{}
	for i := range turns {
		turns[i] = make(chan struct{}, 1)
		wg.Go(func() {
			// A locked thread ends with its goroutine: until then no other one has its number.
			runtime.LockOSThread()
			for range turns[i] {
				for range most {
					once()
				}
				crowd.Done()
			}
			// A missed exit leaves an entry behind. It is found at the thread's next call, or at
			// its end. The process's first thread ends only with the process.
			if i%2 == 0 && unix.Gettid() != unix.Getpid() {
				return
			}
			alone.Lock()
			defer alone.Unlock()
			again++
			once()
		})
	}
	// How many threads are in the middle of the call at once is up to the kernel's scheduler.
	n := 0
	for i := 0; i < rounds && entries(t, tr, "scopes") == 0; i++ {
		crowd.Add(threads)
		for _, turn := range turns {
			turn <- struct{}{}
		}
		crowd.Wait()
		n += threads * most
	}
	for _, turn := range turns {
		close(turn)
	}
	wg.Wait()
	for ctx := within(t); entries(t, tr, "scopes") > 0; { // the threads end a moment later
		if ctx.Err() != nil {
			t.Fatalf("%d calls are left behind", entries(t, tr, "scopes"))
		}
		time.Sleep(10 * time.Millisecond)
	}
	got := map[EventKind]int{}
	for _, e := range all(t, tr) {
		got[e.Kind]++
		// A registration without the event of its mapping looks as if it were not mapped.
		if m := e.Record.Placement.Memory; e.Kind == Registered && m != placement.SystemMemory && m != placement.Unknown {
			t.Errorf("%s: %v", e.Kind, &e.Record)
		}
	}
	l := tr.Loss()
	t.Logf("%v; %v", got, l)
	n += again
	if lost := int(l.Events["records"]); lost == 0 || got[Registered]+lost != n {
		t.Errorf("%d registrations seen and %d lost of %d", got[Registered], lost, n)
	}
	// The kernel tells since 6.6.
	if testenv.AtLeast(t, "6.6") && l.Missed["registrations"] == 0 {
		t.Errorf("skipped runs: %v", l.Missed)
	}
	if !l.Any() {
		t.Error("nothing lost")
	}
	p, err := tr.Prove(within(t), key)
	if err != nil || p.Memory != placement.Unknown {
		t.Errorf("a record that lived through the loss: %v, %v", p, err)
	}
	mustHave(t, p.Reason, "lost")
}
