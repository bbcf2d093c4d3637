// SPDX-License-Identifier: Apache-2.0

package guarded

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// mapping maps a file of one page over two pages: the second is not there.
func mapping(t *testing.T) (m []byte, page int) {
	t.Helper()
	page = os.Getpagesize()
	raw, err := unix.MemfdCreate("guarded", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(raw)
	if err := unix.Ftruncate(raw, int64(page)); err != nil {
		t.Fatal(err)
	}
	m, err = unix.Mmap(raw, 0, 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(m) })
	return m, page
}

func TestCopy(t *testing.T) {
	m, page := mapping(t)
	if err := Copy(m[:page], []byte("there")); err != nil || string(m[:5]) != "there" {
		t.Errorf("%q, %v", m[:5], err)
	}
	if err := Copy(nil, m); err != nil {
		t.Error(err)
	}
	for name, err := range map[string]error{
		"from": Copy(make([]byte, 2*page), m),
		"to":   Copy(m[page:], make([]byte, 1)),
	} {
		if !errors.Is(err, unix.EFAULT) {
			t.Errorf("copy %s a missing page: %v, want EFAULT", name, err)
		}
	}
}

// Only faults of the two stretches are an answer; others are a bug.
func TestFaultElsewhere(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a fault elsewhere was swallowed")
		}
	}()
	var nowhere *[8]byte
	_ = Copy(nowhere[:], make([]byte, 8))
}
