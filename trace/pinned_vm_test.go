// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/placement"
)

// Memory that an importer has pinned does not move until the importer lets it go. Up
// to 6.12 the kernel itself pins what is mapped, without CONFIG_DMABUF_MOVE_NOTIFY.
//
//testbed:kernel 6.12
func TestVMPinned(t *testing.T) {
	testenv.VM(t)
	x, imp := testenv.TestExporter(t, "", 0), testenv.TestImporter(t)
	tr := open(t, mine())
	attach := func(t *testing.T, kind testenv.ImporterKind) (*os.File, *testenv.Attachment) {
		t.Helper()
		buf, err := x.Create(testenv.PlainList, truthSize)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { buf.Close() })
		all(t, tr)
		a, err := imp.Attach(testenv.SoftDevice, int(buf.Fd()), kind, false)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.Map(); err != nil {
			t.Fatal(err)
		}
		return buf, a
	}
	// step does something, and wants these events of it and then this verdict.
	step := func(t *testing.T, buf *os.File, what string, do func() error, verdict placement.Memory, want ...EventKind) *Record {
		t.Helper()
		if err := do(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		var kinds []EventKind
		var last *Record
		for _, e := range all(t, tr) {
			if e.Record.Buffer == nil || e.Record.Buffer.Inode != inodeOf(t, buf) {
				continue
			}
			kinds, last = append(kinds, e.Kind), &e.Record
		}
		if !slices.Equal(kinds, want) || last == nil || last.Placement.Memory != verdict {
			t.Fatalf("%s: events %v, want %v; %v, want %v", what, kinds, want, last, verdict)
		}
		return last
	}
	nothing := func() error { return nil }

	t.Run("pinned", func(t *testing.T) {
		buf, a := attach(t, testenv.PinnedImporter)
		step(t, buf, "mapped", nothing, placement.SystemMemory, Attached, Mapped)
		if r := only(t, tr, inodeOf(t, buf)); r == nil || !r.Pinned {
			t.Errorf("%+v", r)
		}
		if err := x.Move(buf); err != unix.EBUSY {
			t.Errorf("a pinned buffer moves: %v", err)
		}
		if r := step(t, buf, "detached", a.Detach, placement.NotMapped, Unmapped, Released); r.Pinned {
			t.Errorf("pinned at its end: %+v", r)
		}
	})
	if l := tr.Loss(); l.Any() || l.Orphaned != 0 {
		t.Errorf("%v, %d orphaned", l, l.Orphaned)
	}
}

// An exporter that attaches the importer to another buffer as well: the call is one
// attachment, and goes on after the inner one's return.
//
//testbed:kernel 6.12
func TestVMNestedAttach(t *testing.T) {
	testenv.VM(t)
	x, imp := testenv.TestExporter(t, "", 0), testenv.TestImporter(t)
	tr := open(t, mine())
	buf, err := x.Create(testenv.Nested, truthSize)
	if err != nil {
		t.Fatal(err)
	}
	defer buf.Close()
	for _, kind := range []testenv.ImporterKind{testenv.StaticImporter, testenv.DynamicImporter} {
		t.Run(fmt.Sprint(kind), func(t *testing.T) {
			a, err := imp.Attach(testenv.SoftDevice, int(buf.Fd()), kind, false)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := a.Map(); err != nil {
				t.Fatal(err)
			}
			if err := a.Detach(); err != nil {
				t.Fatal(err)
			}
			var kinds []EventKind
			for _, e := range all(t, tr) {
				kinds = append(kinds, e.Kind)
				r := e.Record
				if r.Buffer == nil || r.Buffer.Inode != inodeOf(t, buf) || r.Buffer.Size != truthSize || r.Failed() {
					t.Errorf("%s: %+v", e.Kind, r)
				}
				if e.Kind == Mapped && (r.Placement.Memory != placement.SystemMemory || placed(r.Placement) != truthSize) {
					t.Errorf("%v", &r)
				}
			}
			kinds = slices.DeleteFunc(kinds, func(k EventKind) bool { return k == Unmapped })
			if want := []EventKind{Attached, Mapped, Released}; !slices.Equal(kinds, want) {
				t.Errorf("%v, want %v", kinds, want)
			}
		})
	}
	for _, name := range []string{"scopes", "attaches"} {
		if n := entries(t, tr, name); n != 0 {
			t.Errorf("map %s has %d entries", name, n)
		}
	}
	if l := tr.Loss(); l.Any() {
		t.Error(l)
	}
}
