// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/trace/internal/symbols"
)

// A path that is no directory is refused at once, a FIFO without a writer too.
func TestOpenCgroup(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		_, err := openCgroup(fifo)
		got <- err
	}()
	select {
	case err := <-got:
		if !errors.Is(err, unix.ENOTDIR) || !strings.Contains(err.Error(), fifo) {
			t.Errorf("%v", err)
		}
	case <-time.After(5 * time.Second):
		t.Error("it waits for a writer")
	}
	dir, err := openCgroup(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir.Close()
}

// An exporter whose module has no type information is named once, not left out
// without a word.
func TestExporterWithoutTypes(t *testing.T) {
	l := New(Config{ExporterOps: 64}, nil)
	found := map[string]symbols.Symbol{
		"drm_gem_map_attach":   {Module: "drm", Code: true},
		"drm_gem_map_dma_buf":  {Module: "drm", Code: true},
		"nv_dma_buf_map":       {Module: "nvidia", Code: true},
		"nv_dma_buf_map_table": {Module: "nvidia"}, // data
	}
	for range 2 { // a module that comes later has all looked at again
		ops := l.newExporterOps(found, AllModules, func(string) (*btf.Spec, error) { return nil, fs.ErrNotExist })
		if len(ops) != 0 {
			t.Errorf("%+v", ops)
		}
		if len(l.hooks) != 2 {
			t.Fatalf("%+v", l.hooks)
		}
	}
	for i, want := range []Hook{{Function: "drm_gem_map_attach", Module: "drm"}, {Function: "nv_dma_buf_map", Module: "nvidia"}} {
		got := l.hooks[i]
		if got.Function != want.Function || got.Module != want.Module || got.What != WhatExporterOps || got.Absent == "" || !strings.Contains(got.Absent, fs.ErrNotExist.Error()) {
			t.Errorf("%+v", got)
		}
	}
}

// Readings of the symbols while modules come lack some, each others.
func TestSettled(t *testing.T) {
	one, two := symbols.Symbol{Addr: 1}, symbols.Symbol{Addr: 2}
	lists := []map[string]symbols.Symbol{{"a": one}, {"b": two}, {"a": one}, {"c": two}}
	reads := 0
	got, err := settled(func() (map[string]symbols.Symbol, error) {
		reads++
		return maps.Clone(lists[reads-1]), nil
	})
	if err != nil || reads != 3 || len(got) != 2 || got["a"] != one || got["b"] != two {
		t.Errorf("%v after %d readings, %v", got, reads, err)
	}
	reads = 0
	if _, err := settled(func() (map[string]symbols.Symbol, error) {
		if reads++; reads == 2 {
			return nil, io.ErrUnexpectedEOF
		}
		return map[string]symbols.Symbol{}, nil
	}); err != io.ErrUnexpectedEOF {
		t.Errorf("a reading that failed: %v", err)
	}
}

// Modules that went and came are attached to again, by kprobes: those were theirs.
func TestReloadedModules(t *testing.T) {
	sys := t.TempDir()
	bring := func(name string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(sys, "module", name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	bring("ib_core")
	l := New(Config{Sys: sys}, nil)
	without := l.rdmaNow()
	bring("ib_uverbs")
	loaded := l.rdmaNow()
	if without[0] == 0 || without[1] != 0 || loaded[0] != without[0] || loaded[1] == 0 {
		t.Fatalf("%v without ib_uverbs, %v with it", without, loaded)
	}
	const byProbe, typed = "ib_uverbs_rereg_mr", "ib_dereg_mr_user"
	attach := func() {
		l.have["rdma"], l.rdma, l.probe = true, loaded, &ebpf.Collection{}
		l.more = append(l.more, l.probe)
		l.hooks = []Hook{
			{Function: "dma_buf_pin", Absent: "not here"}, {Function: byProbe, How: "kretprobe"},
			{Function: typed, How: "fexit"}, {Function: "ib_umem_dmabuf_get", Absent: "not in this kernel"},
		}
		l.have["fexit "+typed], l.have["fentry "+typed] = true, true
	}
	attach()
	l.dropProbes(loaded)
	if !l.have["rdma"] || len(l.hooks) != 4 || len(l.more) != 1 {
		t.Errorf("nothing was reloaded: %v, %+v", l.have, l.hooks)
	}
	for _, now := range []rdmaModules{without, {loaded[0], loaded[1] + 1}} { // gone; back
		attach()
		l.dropProbes(now)
		if l.have["rdma"] || l.probe != nil || len(l.hooks) != 2 || l.hooks[0].Function != "dma_buf_pin" || l.hooks[1].Function != typed {
			t.Errorf("%v now: %v, %+v", now, l.have, l.hooks)
		}
		l.more = nil
	}
	// Without kprobes all functions are watched by fentry or fexit, which keep the modules
	// loaded.
	attach()
	l.probe = nil
	l.dropProbes(without)
	if !l.have["rdma"] || len(l.hooks) != 4 {
		t.Errorf("without kprobes: %v, %+v", l.have, l.hooks)
	}
}
