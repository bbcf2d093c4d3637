// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/placement"
	"github.com/gpurdma/gpurdma/trace/internal/abi"
	"github.com/gpurdma/gpurdma/trace/internal/loader"
)

// Registrations that end in other ways than by their owner's orderly call.
func TestVMLifetimes(t *testing.T) {
	tr := shared(t)
	d := openDevice(t)

	t.Run("descriptor closed after registration", func(t *testing.T) {
		b := alloc(t, "drm:vgem", 1<<20)
		mr := d.register(t, b)
		ino := inode(b)
		if err := b.CloseFDs(); err != nil {
			t.Fatal(err)
		}
		r := await(t, tr, "registered", onBuffer(ino, Registered)).Record
		if p, err := tr.Prove(within(t), placement.Key{LKey: mr.LKey, Inode: ino}); err != nil || p.Memory != placement.SystemMemory {
			t.Errorf("%v, %v", p, err)
		}
		if err := d.DestroyMR(mr.Handle); err != nil {
			t.Fatal(err)
		}
		e := await(t, tr, "released", onBuffer(ino, Released)).Record
		if e.ID != r.ID || e.Ended != "deregistered" {
			t.Errorf("%+v", e)
		}
	})
	t.Run("process killed", func(t *testing.T) {
		cmd, _, out := runChild(t, childWaits)
		var ino uint64
		if _, err := fmt.Fscanf(out, "registered %d\n", &ino); err != nil {
			t.Fatalf("the child did not register: %v", err)
		}
		r := await(t, tr, "registered by a child", onBuffer(ino, Registered)).Record
		if r.PID != cmd.Process.Pid {
			t.Errorf("pid %d, started %d", r.PID, cmd.Process.Pid)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		e := await(t, tr, "released", onBuffer(ino, Released)).Record
		if e.ID != r.ID || e.Ended != "process exit" {
			t.Errorf("ended by %q: %+v", e.Ended, e)
		}
	})
	t.Run("descriptor passed to another process", func(t *testing.T) {
		b := alloc(t, "drm:vgem", 1<<20)
		cmd, stdin := handTo(t, childHanded, b)
		r := await(t, tr, "registered by a child", onBuffer(inode(b), Registered)).Record
		if r.PID != cmd.Process.Pid || r.FD != 3 || r.Placement.Memory != placement.SystemMemory {
			t.Errorf("%+v", r)
		}
		stdin.Close()
		if e := await(t, tr, "released", onBuffer(inode(b), Released)).Record; e.ID != r.ID || e.Ended != endedByExit {
			t.Errorf("ended by %q: %+v", e.Ended, e)
		}
	})
	t.Run("first thread gone before the others", func(t *testing.T) {
		b := alloc(t, "drm:vgem", 1<<20)
		cmd, stdin := handTo(t, childHeaded, b)
		for _, when := range []string{"before", "after"} {
			if r := await(t, tr, "registered "+when, onBuffer(inode(b), Registered)).Record; r.PID != cmd.Process.Pid {
				t.Errorf("%s: %+v", when, r)
			}
		}
		stdin.Close()
		for range 2 {
			await(t, tr, "released", onBuffer(inode(b), Released))
		}
	})
	t.Run("device inherited by a child that outlives its parent", func(t *testing.T) {
		cmd, stdin, out := runChild(t, childForks)
		var ino uint64
		if _, err := fmt.Fscanf(out, "registered %d\n", &ino); err != nil {
			t.Fatalf("the child did not register: %v", err)
		}
		r := await(t, tr, "registered", onBuffer(ino, Registered)).Record
		if state, err := cmd.Process.Wait(); err != nil || !state.Success() {
			t.Errorf("%v, %v", state, err)
		}
		if p, err := tr.Prove(within(t), placement.Key{Inode: ino}); err != nil || p.Memory != placement.SystemMemory {
			t.Errorf("after the end of the process that registered: %v, %v", p, err)
		}
		stdin.Close()
		if e := await(t, tr, "released", onBuffer(ino, Released)).Record; e.ID != r.ID || e.Ended != endedByExit {
			t.Errorf("ended by %q: %+v", e.Ended, e)
		}
	})
	t.Run("one buffer, two MRs", func(t *testing.T) {
		b := alloc(t, "drm:vgem", 1<<20)
		first, second := d.register(t, b), d.register(t, b)
		r1 := await(t, tr, "first", onBuffer(inode(b), Registered)).Record
		r2 := await(t, tr, "second", onBuffer(inode(b), Registered)).Record
		if r1.ID == r2.ID || r1.MR == nil || r2.MR == nil || r1.MR.LKey != first.LKey || r2.MR.LKey != second.LKey {
			t.Fatalf("%+v, %+v", r1, r2)
		}
		if err := d.DestroyMR(first.Handle); err != nil {
			t.Fatal(err)
		}
		if e := await(t, tr, "released", onBuffer(inode(b), Released)).Record; e.ID != r1.ID {
			t.Errorf("record %d ended, want %d", e.ID, r1.ID)
		}
		if p, err := tr.Prove(within(t), placement.Key{Inode: inode(b)}); err != nil || p.Memory != placement.SystemMemory {
			t.Errorf("the second one: %v, %v", p, err)
		}
		if err := d.DestroyMR(second.Handle); err != nil {
			t.Fatal(err)
		}
		await(t, tr, "released", onBuffer(inode(b), Released))
	})
	if live := tr.Records(); len(live) != 0 {
		t.Errorf("still live: %v", live)
	}
	if l := tr.Loss(); l.Any() {
		t.Error(l)
	}
}

// As fast as the kernel makes them, with the default buffers; and nothing grows.
func TestVMTenThousand(t *testing.T) { asFastAsTheKernel(t, 10_000) }

// Minutes of an emulated processor, so on the kernel that has the fewest tests.
//
//testbed:kernel 6.1
func TestVMHundredThousand(t *testing.T) { asFastAsTheKernel(t, 100_000) }

func asFastAsTheKernel(t *testing.T, n int) {
	tr := shared(t)
	before := testenv.GoMemory()
	d, b := openDevice(t), alloc(t, "drm:vgem", 64<<10)
	ctx, cancel := context.WithCancel(context.Background())
	counted := make(chan map[EventKind]int)
	go func() {
		got := map[EventKind]int{}
		for e := range tr.Events(ctx) {
			got[e.Kind]++
		}
		counted <- got
	}()
	var failed error
	for range n {
		mr, err := d.try(b, 0, 64<<10)
		if err == nil {
			err = d.DestroyMR(mr.Handle)
		}
		if err != nil {
			failed = err
			break
		}
	}
	got := map[EventKind]int{}
	rest := all(t, tr) // the events that the loop has not taken
	cancel()
	for k, v := range <-counted {
		got[k] += v
	}
	for _, e := range append(rest, all(t, tr)...) {
		got[e.Kind]++
	}
	if failed != nil {
		t.Fatal(failed)
	}
	if got[Registered] != n || got[Released] != n {
		t.Errorf("%v of %d", got, n)
	}
	if l := tr.Loss(); l.Any() || l.Orphaned > 0 {
		t.Errorf("%v, %d orphaned", l, l.Orphaned)
	}
	if live := tr.Records(); len(live) != 0 {
		t.Errorf("%d records live", len(live))
	}
	for _, name := range []string{"scopes", "attaches", "mrs", "deregs"} {
		if left := entries(t, tr, name); left != 0 {
			t.Errorf("map %s still has %d entries", name, left)
		}
	}
	if left := entries(t, tr, "bufs"); left > 1 { // the one that lives
		t.Errorf("map bufs still has %d entries", left)
	}
	grown := testenv.GoMemory() - before
	t.Logf("%d registrations, the heap grew by %d KiB; maps use %d KiB, the process %d KiB", n, grown>>10, mapMemory(t, tr)>>10, resident(t)>>10)
	if grown > 8<<20 {
		t.Errorf("the heap grew by %d bytes with %d registrations", grown, n)
	}
}

// mapMemory is what the kernel says the maps take.
func mapMemory(t testing.TB, tr *Tracer) (bytes uint64) {
	t.Helper()
	for _, name := range loader.SharedMaps {
		info, err := tr.loader.Map(name).Info()
		if err != nil {
			t.Fatal(err)
		}
		if n, ok := info.Memlock(); ok {
			bytes += n
		}
	}
	return bytes
}

// resident is this process's memory in RAM.
func resident(t testing.TB) uint64 {
	t.Helper()
	var pages uint64
	text, err := os.ReadFile("/proc/self/statm")
	if err == nil {
		_, err = fmt.Sscanf(string(text), "%d %d", new(uint64), &pages)
	}
	if err != nil {
		t.Fatal(err)
	}
	return pages * uint64(os.Getpagesize())
}

func entries(t testing.TB, tr *Tracer, name string) (n int) {
	t.Helper()
	if name == "scopes" || name == "deregs" { // each is some thread's, or free
		var owners abi.Owners
		what := map[string]uint32{"scopes": abi.OwnsScope, "deregs": abi.OwnsDereg}[name]
		if err := tr.loader.Map("owners").Lookup(what, &owners); err != nil {
			t.Fatal(err)
		}
		taken := 0
		for _, thread := range owners.Thread {
			if thread != 0 {
				n++
			}
		}
		for _, k := range owners.Taken {
			taken += int(k)
		}
		if n == 0 && taken != 0 { // with calls under way they need not agree
			t.Errorf("no slot is taken, and %d are counted", taken)
		}
		return n
	}
	var key []byte
	var value []byte
	it := tr.loader.Map(name).Iterate()
	for it.Next(&key, &value) {
		n++
	}
	if err := it.Err(); err != nil {
		t.Fatal(err)
	}
	return n
}

// A reader that is stalled loses events: counted, and never a guess.
func TestVMLoss(t *testing.T) {
	c := mine()
	c.RingSize = 4 * os.Getpagesize()
	tr := open(t, c)
	d, b := openDevice(t), alloc(t, "drm:vgem", 1<<20)
	before := d.register(t, b)
	await(t, tr, "registered", onBuffer(inode(b), Registered))
	tr.mu.Lock() // the reader waits for this
	for range 100 {
		mr, err := d.try(b, 0, 1<<20)
		if err != nil {
			t.Error(err)
			break
		}
		if err := d.DestroyMR(mr.Handle); err != nil {
			t.Error(err)
			break
		}
	}
	tr.mu.Unlock()
	got := map[EventKind]int{}
	for _, e := range all(t, tr) {
		got[e.Kind]++
	}
	l := tr.Loss()
	t.Log(got, l)
	// The ring was full for all kinds alike, and what did not fit is counted exactly.
	for _, kind := range []string{"records", "detaches", "deregistrations"} {
		if l.Events[kind] == 0 {
			t.Errorf("a stalled reader lost no %s: %v", kind, l)
		}
	}
	if n := got[Registered] + int(l.Events["records"]); n != 100 || !l.Any() {
		t.Errorf("%d registrations seen or lost of 100: %v, %v", n, got, l)
	}
	p, err := tr.Prove(within(t), placement.Key{LKey: before.LKey})
	if err != nil || p.Memory != placement.Unknown {
		t.Errorf("a record that lived through the loss: %v, %v", p, err)
	}
	mustHave(t, p.Reason, "lost")
	after := d.register(t, b)
	if p, err := tr.Prove(within(t), placement.Key{LKey: after.LKey}); err != nil || p.Memory != placement.SystemMemory {
		t.Errorf("a record younger than the loss: %v, %v", p, err)
	}
}

// What existed before tracing began is found, followed and said to be old.
func TestVMInventory(t *testing.T) {
	testenv.VM(t)
	d := openDevice(t)
	b, hidden := alloc(t, "drm:vgem", 1<<20), alloc(t, "drm:vgem", 2<<20)
	mr := d.register(t, b)
	d.register(t, hidden)
	secret := inode(hidden)
	if err := hidden.Close(); err != nil { // the MR keeps the dma-buf
		t.Fatal(err)
	}
	tr := open(t, Config{PIDs: []int{os.Getpid()}})
	found := map[uint64]Record{}
	for _, e := range all(t, tr) {
		if e.Kind == Existing {
			found[e.Record.Buffer.Inode] = e.Record
			t.Log(e.Record.String(), e.Record.Importer)
		}
	}
	r, ok := found[inode(b)]
	if !ok || !r.Existed || r.Call != Found {
		t.Fatalf("not found: %+v; not readable: %v", r, tr.Unreadable())
	}
	if testenv.AtLeast(t, "7.0") {
		if r.Placement.Memory != placement.Unknown {
			t.Errorf("%v: this kernel does not keep the mapping", r.Placement)
		}
	} else if r.Placement.Memory != placement.SystemMemory {
		t.Errorf("%v: the attachment keeps its table", r.Placement)
	}
	r, ok = found[secret]
	if !ok {
		t.Errorf("a buffer without descriptors was not found; not readable: %v", tr.Unreadable())
	} else if !testenv.AtLeast(t, "6.16") && (r.Placement.Memory != placement.Unknown || len(r.Incomplete) == 0) {
		t.Errorf("a buffer known from debugfs only: %v, %v", r.Placement, r.Incomplete)
	}
	// Which MR it is the kernel does not say; it is among those of its device.
	for what, r := range map[string]Record{"with": found[inode(b)], "without": found[secret]} {
		if text := fmt.Sprint(r.Incomplete); !strings.Contains(text, fmt.Sprintf("lkey %#x", mr.LKey)) {
			t.Errorf("%s descriptors, incomplete: %s", what, text)
		}
	}
	if err := d.DestroyMR(mr.Handle); err != nil {
		t.Fatal(err)
	}
	// Its end is that of an MR which is not known, and no revocation.
	rest := all(t, tr)
	if len(rest) != 1 || rest[0].Kind != Released || rest[0].Record.Buffer.Inode != inode(b) || rest[0].Record.Ended != "deregistered" {
		t.Errorf("its end: %+v", rest)
	}
}

// The same registrations by kprobes, as for modules without BTF, attached
// after the tracer was opened, as for modules that are loaded later.
func TestVMLateWithoutBTF(t *testing.T) {
	c := mine()
	c.tests.RDMALater, c.tests.RDMAWithoutBTF = true, true
	tr := open(t, c)
	if tr.RDMA() {
		t.Error("RDMA is attached already")
	}
	tr.attachLate()
	if !tr.RDMA() {
		t.Fatalf("RDMA is not attached: %v", tr.Unreadable())
	}
	kprobes := 0
	for _, h := range tr.Hooks() {
		if h.How == "kprobe" || h.How == "kretprobe" {
			kprobes++
		}
		if h.Module == "ib_uverbs" && (h.How == "fentry" || h.How == "fexit") {
			t.Errorf("%+v", h)
		}
	}
	if kprobes < 8 {
		t.Errorf("%d kprobes", kprobes)
	}
	d, b := openDevice(t), alloc(t, "drm:vgem", 1<<20)
	mr := d.register(t, b)
	r := await(t, tr, "registered", onBuffer(inode(b), Registered)).Record
	if r.MR == nil || r.MR.LKey != mr.LKey || r.RDMADevice != "rxe0" || r.Length != 1<<20 || r.Placement.Memory != placement.SystemMemory {
		t.Errorf("%+v", r)
	}
	if err := d.DestroyMR(mr.Handle); err != nil {
		t.Fatal(err)
	}
	if e := await(t, tr, "released", onBuffer(inode(b), Released)).Record; e.Ended != "deregistered" {
		t.Errorf("%+v", e)
	}
	if _, err := d.try(b, 0, 2<<20); err == nil {
		t.Fatal("the kernel took a range beyond the end")
	}
	e := await(t, tr, "refused", func(e Event) bool { return e.Kind == Refused })
	f := e.Record.Explain()
	// Without BTF the arguments are those of ib_umem_dmabuf_get, which the
	// rxe of 6.1 does without.
	want := StageRange
	if !testenv.AtLeast(t, "6.12") {
		want = StageDriver
	}
	if f.Stage != want || f.Errno != unix.EINVAL {
		t.Errorf("%+v", f)
	}
}
