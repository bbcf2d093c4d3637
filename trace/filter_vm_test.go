// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd/uverbs"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/trace/internal/abi"
)

// setFlags changes the filters that are in force.
func setFlags(t testing.TB, tr *Tracer, flags uint32) {
	t.Helper()
	var c abi.Config
	if err := tr.loader.Map("config").Lookup(uint32(0), c.Bytes()); err != nil {
		t.Fatal(err)
	}
	c.Flags = flags
	if err := tr.loader.SetConfig(c); err != nil {
		t.Fatal(err)
	}
}

// The cgroup of a configuration is a directory, below which processes may move.
func TestVMCgroup(t *testing.T) {
	testenv.VM(t)
	const root = "/sys/fs/cgroup"
	group := filepath.Join(root, "gpurdma-trace-config")
	below := filepath.Join(group, "below")
	if err := os.MkdirAll(below, 0o755); err != nil {
		t.Fatal(err)
	}
	move := func(to string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(to, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		move(root)
		if err := errors.Join(os.Remove(below), os.Remove(group)); err != nil {
			t.Error(err)
		}
	})
	tr := open(t, Config{Cgroup: group, NoInventory: true})
	d := openDevice(t)
	for _, at := range []struct {
		dir  string
		want int
	}{{root, 0}, {group, 1}, {below, 1}, {root, 0}} {
		move(at.dir)
		mr := d.register(t, alloc(t, "drm:vgem", 1<<20))
		if err := d.DestroyMR(mr.Handle); err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, e := range all(t, tr) {
			if e.Kind == Registered {
				n++
			}
		}
		if n != at.want {
			t.Errorf("in %s: %d registrations, want %d", at.dir, n, at.want)
		}
	}
}

// The tracer reports nothing of a registration that a filter leaves out, and all of one that it
// lets through.
func TestVMFilters(t *testing.T) {
	tr := shared(t)
	d := openDevice(t)
	one, two := alloc(t, "drm:vgem", 1<<20), alloc(t, "drm:vgem", 1<<20)
	defer setFlags(t, tr, abi.ConfigPIDs)
	// seen registers a buffer and counts what was reported of its life.
	seen := func(b *gpualloc.Buffer) map[EventKind]int {
		t.Helper()
		mr := d.register(t, b)
		if err := d.DestroyMR(mr.Handle); err != nil {
			t.Fatal(err)
		}
		got := map[EventKind]int{}
		for _, e := range all(t, tr) {
			got[e.Kind]++
		}
		return got
	}
	check := func(what string, got map[EventKind]int, want int) {
		t.Helper()
		if got[Registered] != want || got[Released] != want || len(got) > 2*want {
			t.Errorf("%s: %v, want %d registration", what, got, want)
		}
	}
	put := func(name string, key, value any) {
		t.Helper()
		if err := tr.loader.Map(name).Put(key, value); err != nil {
			t.Fatal(err)
		}
	}
	check("this process", seen(one), 1)

	pids := tr.loader.Map("pids")
	if err := pids.Delete(uint64(os.Getpid())); err != nil {
		t.Fatal(err)
	}
	// A new buffer, because all importers of a followed buffer are reported.
	check("another process", seen(alloc(t, "drm:vgem", 1<<20)), 0)
	put("pids", uint64(os.Getpid()), uint8(1))

	// A process that the filter leaves out registers a buffer that is followed. Its attachment
	// is reported as Outside, and its end as no revocation.
	mine := d.register(t, two)
	all(t, tr)
	if err := pids.Delete(uint64(os.Getpid())); err != nil {
		t.Fatal(err)
	}
	outside := d.register(t, two)
	if err := d.DestroyMR(outside.Handle); err != nil {
		t.Fatal(err)
	}
	put("pids", uint64(os.Getpid()), uint8(1))
	var kinds []EventKind
	for _, e := range all(t, tr) {
		kinds = append(kinds, e.Kind)
		if !e.Record.Outside || e.Kind == Released && e.Record.Ended != "deregistered" {
			t.Errorf("by a process that is left out: %s: %+v", e.Kind, e.Record)
		}
	}
	if want := []EventKind{Attached, Mapped, Released}; !slices.Equal(kinds, want) {
		t.Errorf("by a process that is left out: %v, want %v", kinds, want)
	}
	if err := d.DestroyMR(mine.Handle); err != nil {
		t.Fatal(err)
	}
	if r := all(t, tr); len(r) != 1 || r[0].Kind != Released || r[0].Record.Outside {
		t.Errorf("the end of the one that is followed: %+v", r)
	}

	put("inodes", inode(one), uint8(1))
	setFlags(t, tr, abi.ConfigInodes)
	check("the buffer", seen(one), 1)
	check("another buffer", seen(two), 0)
	// Refused before there is an attachment.
	if _, err := d.try(two, 0, 2<<20); err == nil {
		t.Error("a range beyond the buffer was registered")
	}
	if _, err := d.RegDMABufMR(uverbs.DMABufMR{PD: d.pd, FD: -1, Access: accessAll, Length: 1}); err == nil {
		t.Error("descriptor -1 was registered")
	}
	if r := all(t, tr); len(r) != 0 {
		t.Errorf("refusals of other buffers: %+v", r)
	}
	if _, err := d.try(one, 0, 2<<20); err == nil {
		t.Error("a range beyond the buffer was registered")
	}
	if r := all(t, tr); len(r) != 1 || r[0].Kind != Refused {
		t.Errorf("a refusal of the buffer: %+v", r)
	}

	const root = "/sys/fs/cgroup"
	group := filepath.Join(root, "gpurdma-trace-test")
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(group)
	dir, err := os.Open(group)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	put("cgroups", uint32(0), uint32(dir.Fd()))
	setFlags(t, tr, abi.ConfigCgroup)
	check("another cgroup", seen(alloc(t, "drm:vgem", 1<<20)), 0)
	move := func(to string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(to, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0); err != nil {
			t.Fatal(err)
		}
	}
	move(group)
	check("the cgroup", seen(one), 1)
	move(root)
	for _, name := range []string{"attaches", "mrs", "scopes"} {
		if n := entries(t, tr, name); n != 0 {
			t.Errorf("map %s has %d entries", name, n)
		}
	}
}
