// SPDX-License-Identifier: Apache-2.0

package fd

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func open(t *testing.T) *FD {
	t.Helper()
	f, err := Open("/dev/null", unix.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestCloseTwice(t *testing.T) {
	f := open(t)
	for range 2 {
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Do(func(int) error { t.Error("fn called after Close"); return nil }); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Do after Close: %v, want os.ErrClosed", err)
	}
	if _, err := f.Dup(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Dup after Close: %v, want os.ErrClosed", err)
	}
	if _, err := f.Disown(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Disown after Close: %v, want os.ErrClosed", err)
	}
}

func TestBadDescriptor(t *testing.T) {
	for _, raw := range []int{-1, 1 << 20} {
		if _, err := New(raw); !errors.Is(err, unix.EBADF) {
			t.Errorf("New(%d): %v, want EBADF", raw, err)
		}
		if _, err := Dup(raw); !errors.Is(err, unix.EBADF) {
			t.Errorf("Dup(%d): %v, want EBADF", raw, err)
		}
	}
	if _, err := Open("/nonexistent", unix.O_RDONLY); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Open: %v, want ErrNotExist", err)
	}
}

func TestCloseOnExec(t *testing.T) {
	f := open(t)
	d, err := f.Dup()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, x := range []*FD{f, d} {
		err := x.Do(func(raw int) error {
			flags, err := unix.FcntlInt(uintptr(raw), unix.F_GETFD, 0)
			if flags&unix.FD_CLOEXEC == 0 {
				t.Errorf("%v would leak into child processes", x)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Close must not pull the descriptor from under a running operation: the
// number could be reused and the operation would hit another file.
func TestCloseWaitsForUse(t *testing.T) {
	f := open(t)
	started, finish := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = f.Do(func(raw int) error {
			close(started)
			<-finish
			if _, err := unix.FcntlInt(uintptr(raw), unix.F_GETFD, 0); err != nil {
				t.Errorf("descriptor was closed under Do: %v", err)
			}
			return nil
		})
	})
	<-started
	closed := make(chan struct{})
	wg.Go(func() { f.Close(); close(closed) })
	select {
	case <-closed:
		t.Error("Close returned while Do was running")
	case <-time.After(20 * time.Millisecond):
	}
	close(finish)
	wg.Wait()
}

func TestLeakIsReported(t *testing.T) {
	Track()
	defer tracking.on.Store(false)
	func() {
		if _, err := Open("/dev/null", unix.O_RDONLY); err != nil {
			t.Fatal(err)
		}
	}()
	for range 100 {
		runtime.GC()
		if l := Leaks(); len(l) == 1 && strings.Contains(l[0], "TestLeakIsReported") {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Errorf("Leaks() = %q, want the stack of this test", Leaks())
}
