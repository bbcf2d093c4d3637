// SPDX-License-Identifier: Apache-2.0

package gpualloc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// A buffer that is closed gives back what it drew from the budget.
func TestVMBudget(t *testing.T) {
	eachSpec(t, func(t *testing.T, a Allocator) {
		budget := &a.(*allocator).budget
		first := alloc(t, a, 1, Options{}) // looks at the limits
		budget.until = time.Now().Add(time.Hour)
		mem, fds := budget.mem, budget.fds
		second := alloc(t, a, 1, Options{})
		if budget.mem >= mem || budget.fds >= fds {
			t.Errorf("drew %d bytes and %d descriptors", mem-budget.mem, fds-budget.fds)
		}
		if err := errors.Join(second.Close(), second.Close(), first.Close()); err != nil {
			t.Error(err)
		}
		if budget.mem != mem || budget.fds != fds || budget.grants != 1 {
			t.Errorf("%d bytes and %d descriptors before, %d and %d after, of grant %d", mem, fds, budget.mem, budget.fds, budget.grants)
		}
	})
}

func TestVMRefusals(t *testing.T) {
	eachSpec(t, func(t *testing.T, a Allocator) {
		fds, bufs := live(t)
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		for _, c := range []struct {
			name  string
			ctx   context.Context
			size  int64
			opt   Options
			want  error
			words string
		}{
			{"zero", t.Context(), 0, Options{}, failure.ErrRange, "at least one byte"},
			{"negative", t.Context(), -5, Options{}, failure.ErrRange, "size -5"},
			{"overflow", t.Context(), 1<<63 - 1, Options{}, failure.ErrRange, "rounded up"},
			{"beyond memory", t.Context(), 1 << 40, Options{}, failure.ErrLimit, "1 TiB"},
			{"beyond memory, split", t.Context(), 1 << 40, Options{SegmentSize: 1 << 26}, failure.ErrLimit, ""},
			{"name", t.Context(), 1, Options{Name: strings.Repeat("x", 32)}, failure.ErrRange, "31 bytes"},
			{"segment size", t.Context(), 1, Options{SegmentSize: -1}, failure.ErrRange, "segment size"},
			{"cancelled", cancelled, 1, Options{}, context.Canceled, ""},
			{"too many segments", t.Context(), 1 << 28, Options{SegmentSize: 1}, failure.ErrLimit, "RLIMIT_NOFILE"},
		} {
			b, err := a.Alloc(c.ctx, c.size, c.opt)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.words) {
				t.Errorf("%s: %v, %v; want %v with %q", c.name, b, err, c.want, c.words)
			}
		}
		if f, b := live(t); f != fds || b != bufs {
			t.Errorf("%d descriptors and %d dma-bufs before, %d and %d after", fds, bufs, f, b)
		}
	})
}

func TestVMUDMABufLimit(t *testing.T) {
	testenv.Need(t, "udmabuf", "6.12", testenv.Node("/dev/udmabuf"))
	if testenv.AtLeast(t, "7.3") { // whose default is as good as none
		const param = "/sys/module/udmabuf/parameters/size_limit_mb"
		before, err := os.ReadFile(param)
		if err == nil {
			err = os.WriteFile(param, []byte("64"), 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.WriteFile(param, before, 0); err != nil {
				t.Error(err)
			}
		})
	}
	a, err := Open("udmabuf", Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	limit := a.Describe().MaxSize
	if limit != 64<<20 {
		t.Fatalf("MaxSize %d, want the module's 64 MiB", limit)
	}
	for force, want := range map[bool]error{false: failure.ErrLimit, true: unix.EINVAL} { // forced, the kernel refuses
		_, err = a.Alloc(t.Context(), limit+1, Options{Force: force})
		if !errors.Is(err, want) || !strings.Contains(err.Error(), "size_limit_mb") {
			t.Errorf("one byte over the limit, force %v: %v", force, err)
		}
	}
	b, err := a.Alloc(t.Context(), limit+1, Options{SegmentSize: limit})
	if err != nil {
		t.Fatal(err)
	}
	if len(b.Segments()) != 2 {
		t.Errorf("%d segments, want 2", len(b.Segments()))
	}
	if _, err := b.WriteAt(make([]byte, 10), limit-5); err != nil {
		t.Error(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// The limit of a parent cgroup counts, and Force passes it.
func TestVMCgroupLimit(t *testing.T) {
	testenv.VM(t)
	const root = "/sys/fs/cgroup"
	if err := os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+memory"), 0); err != nil {
		t.Fatal(err)
	}
	outer := filepath.Join(root, "gpualloc-test")
	inner := filepath.Join(outer, "inner")
	for _, dir := range []string{outer, inner} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, dir := range []string{inner, outer} {
			if err := os.Remove(dir); err != nil {
				t.Error(err)
			}
		}
	})
	write := func(dir, file, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0); err != nil {
			t.Fatal(err)
		}
	}
	write(outer, "cgroup.subtree_control", "+memory")
	write(outer, "memory.max", strconv.Itoa(256<<20))
	write(inner, "cgroup.procs", strconv.Itoa(os.Getpid()))
	defer write(root, "cgroup.procs", strconv.Itoa(os.Getpid()))

	a, err := Open("drm:vgem", Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	_, err = a.Alloc(t.Context(), 300<<20, Options{})
	if !errors.Is(err, failure.ErrLimit) || !strings.Contains(err.Error(), "gpualloc-test/memory.max") || !strings.Contains(err.Error(), "256 MiB") {
		t.Errorf("300 MiB below a limit of 256: %v", err)
	}
	b, err := a.Alloc(t.Context(), 16<<20, Options{})
	if err != nil {
		t.Fatal(err)
	}
	b.Close()
	// vgem allocates pages when they are touched: forced, the export works.
	if b, err = a.Alloc(t.Context(), 300<<20, Options{Force: true}); err != nil {
		t.Fatal(err)
	}
	b.Close()
}

func TestVMNoPermission(t *testing.T) {
	testenv.VM(t)
	done := make(chan string)
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends here
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534); e != 0 {
			done <- e.Error()
			return
		}
		for _, d := range Discover(Env{}) {
			if d.Available {
				done <- fmt.Sprintf("nobody may use %s", d.Spec)
			}
		}
		_, err := Open("drm:renderD128", Env{})
		if !errors.Is(err, ErrUnavailable) || !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "run as root") {
			done <- fmt.Sprintf("drm:renderD128: %v", err)
		}
		_, err = Open("auto", Env{})
		if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "EACCES") {
			done <- fmt.Sprintf("auto: %v", err)
		}
	}()
	for why := range done {
		t.Error(why)
	}
}
