// SPDX-License-Identifier: Apache-2.0

package vendor

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/gpualloc/align"
)

func TestBAR(t *testing.T) {
	const resource = "0x00000000d0000000 0x00000000d0ffffff 0x0000000000040200\n" +
		"0x0000380000000000 0x000038000fffffff 0x000000000014220c\n" +
		"0x0000000000000000 0x0000000000000000 0x0000000000000000\n" +
		"nonsense\n"
	root := t.TempDir()
	dir := filepath.Join(root, "bus/pci/devices/0000:3b:00.0")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "resource"), []byte(resource), 0o600); err != nil {
		t.Fatal(err)
	}
	for n, want := range map[int]int64{0: 16 << 20, 1: 256 << 20, 2: 0, 3: 0, 99: 0} {
		got, file, ok := BAR(root, "0000:3b:00.0", n)
		if got != want || ok != (want != 0) || file != filepath.Join(dir, "resource") {
			t.Errorf("BAR %d: got %d in %s, %v, want %d", n, got, file, ok, want)
		}
	}
	if _, _, ok := BAR(root, "0000:3c:00.0", 0); ok {
		t.Error("a function that is not there has a BAR")
	}
}

func TestUndoRunsAllLastFirst(t *testing.T) {
	var order []int
	var u Undo
	failed := errors.New("second")
	for i := range 3 {
		u.Add(func() error {
			order = append(order, i)
			if i == 1 {
				return failed
			}
			return nil
		})
	}
	if err := u.Run(); !errors.Is(err, failed) {
		t.Errorf("got %v, want %v", err, failed)
	}
	if fmt.Sprint(order) != "[2 1 0]" {
		t.Errorf("ran %v", order)
	}
	if err := u.Run(); err != nil || len(order) != 3 {
		t.Errorf("ran again: %v, %v", order, err)
	}
}

func TestView(t *testing.T) {
	mem := make([]byte, 10)
	v := &View{
		On: "test", Size: 10,
		Read:  func(to []byte, off int64) error { copy(to, mem[off:]); return nil },
		Write: func(from []byte, off int64) error { copy(mem[off:], from); return nil },
	}
	if n, err := v.WriteAt([]byte("abc"), 7); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	p := make([]byte, 5)
	if n, err := v.ReadAt(p, 6); n != 4 || !errors.Is(err, io.EOF) || string(p[:4]) != "\x00abc" {
		t.Errorf("got %d, %v, %q", n, err, p)
	}
	if n, err := v.ReadAt(p, 10); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("at the end: got %d, %v", n, err)
	}
	for _, off := range []int64{-1, 11, 1 << 62} {
		if _, err := v.ReadAt(p, off); !errors.Is(err, failure.ErrRange) {
			t.Errorf("read at %d: got %v, want ErrRange", off, err)
		}
		if _, err := v.WriteAt(p, off); !errors.Is(err, failure.ErrRange) {
			t.Errorf("write at %d: got %v, want ErrRange", off, err)
		}
	}
	if n, err := v.WriteAt(p, 6); n != 0 || !errors.Is(err, failure.ErrRange) {
		t.Errorf("over the end: got %d, %v, want ErrRange and nothing written", n, err)
	}
}

func TestRoomForFDs(t *testing.T) {
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := RoomForFDs("test", 1); err != nil {
		t.Error(err)
	}
	err := RoomForFDs("test", int64(was.Cur)+1)
	if !errors.Is(err, failure.ErrLimit) {
		t.Errorf("got %v, want ErrLimit", err)
	}
}

func TestBeyond(t *testing.T) {
	l := gpualloc.Limit{Name: "BAR 1 of 0000:03:00.0", Bytes: 256 << 20}
	if err := Beyond("cuda:0", l.Bytes, l); err != nil {
		t.Error(err)
	}
	err := Beyond("cuda:0", l.Bytes+1, l)
	if !errors.Is(err, failure.ErrLimit) || !strings.Contains(err.Error(), "BAR 1 of 0000:03:00.0 has 256 MiB") || !strings.Contains(err.Error(), "a part at a time") {
		t.Error(err)
	}
}

// The export has more than the caller asked for: all of the allocations.
func TestWholeBeyond(t *testing.T) {
	l := gpualloc.Limit{Name: "the memory in BAR 0 of 0000:03:00.0", Bytes: 256 << 20}
	half := align.Range{Addr: 1 << 40, Length: 128 << 20}
	other := align.Range{Addr: half.Addr + half.Length, Length: 128 << 20}
	for _, fits := range [][]align.Range{{half}, {half, other}} {
		if err := WholeBeyond("rocm:0", fits, l); err != nil {
			t.Error(err)
		}
	}
	for _, c := range []struct {
		held  []align.Range
		words string
	}{
		{[]align.Range{{Addr: 1 << 40, Length: 8 << 30}}, "the whole allocation, 8 GiB, where the memory in BAR 0 of 0000:03:00.0 has 256 MiB"},
		{[]align.Range{half, other, {Addr: 1 << 41, Length: 4096}}, "3 whole allocations, 256.0 MiB, 268439552 bytes, where"},
		{[]align.Range{{Length: math.MaxInt64}, {Length: math.MaxUint64}, half}, "3 whole allocations, 8388608.0 TiB, 9223372036854775807 bytes"},
	} {
		err := WholeBeyond("rocm:0", c.held, l)
		if !errors.Is(err, failure.ErrLimit) || !strings.Contains(err.Error(), c.words) || !strings.Contains(err.Error(), "allocate less") {
			t.Error(err)
		}
	}
}
