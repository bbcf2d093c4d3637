// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"io/fs"
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
