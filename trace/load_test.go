// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"io"
	"io/fs"
	"maps"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"
)

// An exporter whose module has no type information is named once, not left out
// without a word.
func TestExporterWithoutTypes(t *testing.T) {
	l := newLoader(Config{}.withDefaults(), nil)
	found := map[string]symbol{
		"drm_gem_map_attach":   {module: "drm", code: true},
		"drm_gem_map_dma_buf":  {module: "drm", code: true},
		"nv_dma_buf_map":       {module: "nvidia", code: true},
		"nv_dma_buf_map_table": {module: "nvidia"}, // data
	}
	for range 2 { // a module that comes later has all looked at again
		ops := l.newExporterOps(found, func(string) (*btf.Spec, error) { return nil, fs.ErrNotExist })
		if len(ops) != 0 {
			t.Errorf("%+v", ops)
		}
		if len(l.hooks) != 2 {
			t.Fatalf("%+v", l.hooks)
		}
	}
	for i, want := range []Hook{{Function: "drm_gem_map_attach", Module: "drm"}, {Function: "nv_dma_buf_map", Module: "nvidia"}} {
		got := l.hooks[i]
		if got.Function != want.Function || got.Module != want.Module || got.What != whatExporterOps || got.Attached() || !strings.Contains(got.Absent, fs.ErrNotExist.Error()) {
			t.Errorf("%+v", got)
		}
	}
}

// Readings of the symbols while modules come lack some, each others.
func TestSettled(t *testing.T) {
	one, two := symbol{addr: 1}, symbol{addr: 2}
	lists := []map[string]symbol{{"a": one}, {"b": two}, {"a": one}, {"c": two}}
	reads := 0
	got, err := settled(func() (map[string]symbol, error) {
		reads++
		return maps.Clone(lists[reads-1]), nil
	})
	if err != nil || reads != 3 || len(got) != 2 || got["a"] != one || got["b"] != two {
		t.Errorf("%v after %d readings, %v", got, reads, err)
	}
	reads = 0
	if _, err := settled(func() (map[string]symbol, error) {
		if reads++; reads == 2 {
			return nil, io.ErrUnexpectedEOF
		}
		return map[string]symbol{}, nil
	}); err != io.ErrUnexpectedEOF {
		t.Errorf("a reading that failed: %v", err)
	}
}
