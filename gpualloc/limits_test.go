// SPDX-License-Identifier: Apache-2.0

package gpualloc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/gpurdma/gpurdma/drm"
	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// tree unpacks a txtar archive, as testenv.Files writes files.
func tree(t *testing.T, archive string) string {
	t.Helper()
	files := map[string]string{}
	for _, f := range txtar.Parse([]byte(archive)).Files {
		files[f.Name] = string(f.Data)
	}
	return testenv.Files(t, files)
}

// env splits one archive into sys, proc and dev.
func env(t *testing.T, archive string) Env {
	t.Helper()
	dir := tree(t, archive)
	return Env{Sys: filepath.Join(dir, "sys"), Proc: filepath.Join(dir, "proc"), Dev: filepath.Join(dir, "dev")}
}

// 1 GiB available; a cgroup v2 of 512 MiB, of which 100 are in use and 50 of
// those are idle page cache, below one of 300 MiB, below one without limit.
const procV2 = `
-- proc/meminfo --
MemAvailable:    1048576 kB
-- proc/self/limits --
Max open files            16                 16               files
-- proc/self/fd/0 --
-- proc/self/fd/1 --
-- proc/self/fd/2 --
-- proc/self/cgroup --
0::/a/b/c
-- proc/self/mountinfo --
36 23 0:33 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw
-- sys/fs/cgroup/a/memory.max --
max
-- sys/fs/cgroup/a/memory.current --
1
-- sys/fs/cgroup/a/b/memory.max --
314572800
-- sys/fs/cgroup/a/b/memory.current --
0
-- sys/fs/cgroup/a/b/c/memory.max --
536870912
-- sys/fs/cgroup/a/b/c/memory.current --
104857600
-- sys/fs/cgroup/a/b/c/memory.stat --
anon 1
inactive_file 52428800
`

const procV1 = `
-- proc/meminfo --
MemAvailable:    1048576 kB
-- proc/self/cgroup --
4:cpu:/
3:memory:/docker/x
0::/
-- proc/self/mountinfo --
36 23 0:33 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
37 23 0:34 /docker/x /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
-- sys/fs/cgroup/memory/memory.limit_in_bytes --
209715200
-- sys/fs/cgroup/memory/memory.usage_in_bytes --
104857600
-- sys/fs/cgroup/memory/memory.stat --
total_inactive_file 0
`

func TestMemoryLimits(t *testing.T) {
	for name, c := range map[string]struct {
		files string
		want  []string // name's end and MiB
	}{
		"v2":                 {procV2, []string{"MemAvailable 1024", "a/b/c/memory.max 462", "a/b/memory.max 300"}},
		"v1":                 {procV1, []string{"MemAvailable 1024", "memory/memory.limit_in_bytes 100"}},
		"v1 without a limit": {strings.ReplaceAll(procV1, "\n209715200", "\n9223372036854771712"), []string{"MemAvailable 1024"}},
		"more used than allowed": {strings.ReplaceAll(procV2, "\n104857600", "\n999999999"),
			[]string{"MemAvailable 1024", "a/b/c/memory.max 0", "a/b/memory.max 300"}},
		"mounted elsewhere": {strings.ReplaceAll(procV2, "/sys/fs/cgroup rw -", "/mnt rw -"), []string{"MemAvailable 1024"}},
		"another namespace": {strings.ReplaceAll(procV2, "0:33 / ", "0:33 /elsewhere "), []string{"MemAvailable 1024"}},
		"nothing readable":  {"", nil},
	} {
		var got []string
		for _, l := range MemoryLimits(env(t, c.files)) {
			where := l.Name
			if _, rest, ok := strings.Cut(where, "/fs/cgroup/"); ok {
				where = rest
			}
			got = append(got, fmt.Sprintf("%s %d", where, l.Bytes>>20))
			if l.Raise == "" || l.Where == "" || l.Scope != scopeTotal {
				t.Errorf("%s: %+v says too little", name, l)
			}
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// fakeExporter fails, or answers what it is told.
type fakeExporter struct {
	err    error
	calls  int
	closed int
}

func (*fakeExporter) granule() int64          { return 1 << 12 }
func (*fakeExporter) fds() (peak, stay int64) { return 3, 1 }
func (f *fakeExporter) close() error          { f.closed++; return nil }
func (f *fakeExporter) export(context.Context, int64, string) (Segment, func() error, error) {
	f.calls++
	return Segment{}, nil, f.err
}

var errFake = errors.New("the exporter refuses")

func TestLimitsComeFirst(t *testing.T) {
	const mib = 1 << 20
	desc := Description{Spec: "fake", Device: "/dev/fake", Kind: KindSystem, Limits: []Limit{
		{Name: "fake.limit", Bytes: 64 * mib, Scope: scopeSegment, Raise: "raise fake.limit"},
	}}
	for _, c := range []struct {
		name  string
		size  int64
		opt   Options
		want  error // errFake: it reached the exporter
		words string
	}{
		{"fits", mib, Options{}, errFake, ""},
		{"at the exporter's limit", 64 * mib, Options{}, errFake, ""},
		{"over it", 64*mib + 1, Options{}, failure.ErrLimit, "fake.limit allows 64 MiB: over the limit (ENOMEM); raise fake.limit"},
		{"over it, forced", 64*mib + 1, Options{Force: true}, errFake, ""},
		{"split", 128 * mib, Options{SegmentSize: 64 * mib}, errFake, "segment 1 of 2"},
		{"at the cgroup's limit", 300 * mib, Options{SegmentSize: 64 * mib}, errFake, ""},
		{"over it", 300*mib + 1, Options{SegmentSize: 64 * mib}, failure.ErrLimit, "a/b/memory.max"},
		{"over it, forced", 300*mib + 1, Options{SegmentSize: 64 * mib, Force: true}, errFake, ""},
		{"over memory", 1025 * mib, Options{SegmentSize: 128 * mib}, failure.ErrLimit, "64 MiB"},
		{"as many descriptors as there are", 11 * mib, Options{SegmentSize: mib}, errFake, "segment 1 of 11"},
		{"one too many", 12 * mib, Options{SegmentSize: mib}, failure.ErrLimit, "12 segments need 14 file descriptors, and 3 of 16 are taken: over the limit (ENOMEM); raise RLIMIT_NOFILE"},
		{"one too many, forced", 12 * mib, Options{SegmentSize: mib, Force: true}, failure.ErrLimit, "RLIMIT_NOFILE"},
	} {
		exp := &fakeExporter{err: errFake}
		a := newAllocator(env(t, procV2), desc, exp)
		_, err := a.Alloc(t.Context(), c.size, c.opt)
		if !errors.Is(err, c.want) || err != nil && !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %v; want %v with %q", c.name, err, c.want, c.words)
		}
		if reached := exp.calls > 0; reached != errors.Is(c.want, errFake) {
			t.Errorf("%s: %d calls of the exporter", c.name, exp.calls)
		}
	}
	vram := desc
	vram.Kind = KindVRAM
	a := newAllocator(env(t, procV2), vram, &fakeExporter{err: errFake})
	if _, err := a.Alloc(t.Context(), 600*mib, Options{SegmentSize: 64 * mib}); !errors.Is(err, errFake) {
		t.Errorf("the machine's memory limits VRAM: %v", err)
	}
}

// The remedy of what bounds a segment is one for a command's user, too.
func TestVRAMLimitRaise(t *testing.T) {
	region := drm.Region{Size: 64 << 20, Visible: 32 << 20}
	if l := vramLimit(Description{}, memory{vram: []drm.Region{region}}); !strings.Contains(l.Raise, "resizable BAR") || !strings.Contains(l.Raise, "ask for at most 33554432 bytes") {
		t.Errorf("a small BAR: %+v", l)
	}
	region.Size = region.Visible
	if l := vramLimit(Description{}, memory{vram: []drm.Region{region}}); !strings.HasPrefix(l.Raise, "ask for at most 33554432 bytes") {
		t.Errorf("all of it visible: %+v", l)
	}
}

func TestPlan(t *testing.T) {
	a := newAllocator(Env{}, Description{Device: "/dev/fake"}, &fakeExporter{})
	for _, c := range []struct {
		size, segment int64
		want          []int64
	}{
		{1, 0, []int64{4096}},
		{4096, 0, []int64{4096}},
		{4097, 0, []int64{8192}},
		{3 << 12, 1, []int64{4096, 4096, 4096}},
		{3<<12 - 1, 2 << 12, []int64{8192, 4096}},
		{10, 1 << 40, []int64{4096}},
		{8192, 4097, []int64{8192}},
	} {
		p, err := a.plan(c.size, Options{SegmentSize: c.segment})
		var got []int64
		for i := range p.count {
			got = append(got, p.segment(i))
		}
		if d := cmp.Diff(c.want, got); d != "" || err != nil {
			t.Errorf("%d by %d: %v %s", c.size, c.segment, err, d)
		}
	}
	for _, c := range []struct {
		size int64
		opt  Options
		want error
	}{
		{0, Options{}, failure.ErrRange},
		{-1, Options{}, failure.ErrRange},
		{1<<63 - 1, Options{}, failure.ErrRange},
		{1, Options{SegmentSize: -1}, failure.ErrRange},
		{1, Options{Name: strings.Repeat("x", 32)}, failure.ErrRange},
		{1, Options{Name: "a\x00b"}, failure.ErrRange},
		{1 << 50, Options{SegmentSize: 1}, failure.ErrLimit},
	} {
		if p, err := a.plan(c.size, c.opt); !errors.Is(err, c.want) {
			t.Errorf("%d, %+v: %v, %v; want %v", c.size, c.opt, p, err, c.want)
		}
	}
}

func TestAllocatorCloses(t *testing.T) {
	exp := &fakeExporter{err: errFake}
	a := newAllocator(Env{}, Description{}, exp)
	if err := errors.Join(a.Close(), a.Close()); err != nil || exp.closed != 1 {
		t.Errorf("closed %d times, %v", exp.closed, err)
	}
	if _, err := a.Alloc(t.Context(), 1, Options{}); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Alloc after Close: %v", err)
	}
}

// Small allocations in a row look at the limits once, large ones every time.
func TestBudget(t *testing.T) {
	var b budget
	gives := func(mem, fds int64) bool {
		_, ok := b.draw(mem, fds)
		return ok
	}
	if gives(0, 0) || gives(1, 1) {
		t.Error("an empty budget gives")
	}
	b.grant(16*budgetMemShare, 4*budgetFDShare)
	for range 4 {
		if !gives(4, 1) {
			t.Fatal("the budget is used up too early")
		}
	}
	if gives(1, 0) || gives(0, 1) {
		t.Error("the budget never ends")
	}
	b.grant(1600, 1600)
	b.until = b.until.Add(-2 * budgetTime)
	if gives(1, 1) {
		t.Error("an old budget gives")
	}
}

// A closed buffer gives back its drawing, which can be drawn again. The sum of all
// drawings after a look is at most what the look has left, as closed memory may live
// on. A drawing does not go back to a later grant.
func TestBudgetGivenBack(t *testing.T) {
	const mem, fds = 16, 4
	var b budget
	b.giveBack(drawing{})
	b.grant(mem*budgetMemShare, fds*budgetFDShare)
	for i := range budgetMemShare {
		d, ok := b.draw(mem, fds)
		if !ok {
			t.Fatalf("drawing %d is refused", i)
		}
		if _, ok := b.draw(1, 0); ok {
			t.Error("more than the grant is out")
		}
		b.giveBack(d)
	}
	if _, ok := b.draw(1, 1); ok || b.mem != mem || b.fds != fds {
		t.Errorf("one look lets more be drawn than it has left; %d bytes and %d descriptors", b.mem, b.fds)
	}
	b.grant(mem*budgetMemShare, fds*budgetFDShare)
	old, ok := b.draw(mem, fds)
	b.grant(mem*budgetMemShare, fds*budgetFDShare)
	b.giveBack(old)
	if !ok || b.mem != mem || b.fds != fds {
		t.Errorf("an old drawing goes to a new grant: %d bytes and %d descriptors", b.mem, b.fds)
	}
}

func TestBudgetAtOnce(t *testing.T) {
	const mem, fds = 16, 8
	var b budget
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := range 2000 {
				d, ok := b.draw(int64(1+n%4), 1)
				if !ok || n%100 == i {
					b.grant(mem*budgetMemShare, fds*budgetFDShare)
				}
				b.mu.Lock()
				if b.mem < 0 || b.mem > mem || b.fds < 0 || b.fds > fds || b.total < 0 {
					t.Errorf("%d bytes, %d descriptors, %d bytes in all", b.mem, b.fds, b.total)
				}
				b.mu.Unlock()
				b.giveBack(d)
			}
		})
	}
	wg.Wait()
	if b.mem > mem || b.fds > fds {
		t.Errorf("%d bytes and %d descriptors after all", b.mem, b.fds)
	}
}

// smallExporter counts the looks at its limit of 32 MiB.
type smallExporter struct {
	fakeExporter
	looks int
}

func (e *smallExporter) limits() []Limit {
	e.looks++
	return []Limit{{Name: "little", Bytes: 32 << 20, Scope: scopeTotal}}
}

// Where there is little memory, allocations that fail, and buffers that are
// closed, leave the budget to the next one; one that cannot be freed does not.
func TestBudgetOfClosedBuffers(t *testing.T) {
	const mib = 1 << 20
	e := env(t, strings.ReplaceAll(procV2, "Max open files            16                 16  ", "Max open files            1024               1024"))
	newSmall := func() (*allocator, *smallExporter) {
		exp := &smallExporter{fakeExporter: fakeExporter{err: errFake}}
		a := newAllocator(e, Description{Kind: KindVRAM}, exp)
		if _, err := a.Alloc(t.Context(), mib, Options{}); !errors.Is(err, errFake) || exp.looks != 1 {
			t.Fatalf("%v after %d looks", err, exp.looks)
		}
		a.budget.until = time.Now().Add(time.Hour)
		return a, exp
	}
	a, exp := newSmall()
	for range 8 {
		if _, err := a.Alloc(t.Context(), mib, Options{}); !errors.Is(err, errFake) {
			t.Fatal(err)
		}
	}
	if exp.looks != 1 {
		t.Errorf("%d looks for allocations that fail", exp.looks)
	}
	for name, c := range map[string]struct {
		free  error
		looks int
	}{"freed": {nil, 1}, "not freed": {errFake, 2}} {
		a, exp := newSmall()
		p, err := a.plan(mib, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			d, err := a.checkLimits(p, false)
			if err != nil {
				t.Fatal(err)
			}
			b := &Buffer{desc: &a.desc, pieces: pieces{budget: &a.budget, drawn: d}}
			b.frees = append(b.frees, func() error { return c.free })
			if err := errors.Join(b.Close(), b.Close()); !errors.Is(err, c.free) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if exp.looks != c.looks {
			t.Errorf("%s: %d looks, want %d", name, exp.looks, c.looks)
		}
	}
}
