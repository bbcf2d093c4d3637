// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/trace/internal/objects"
)

// Every program of the tables is in an object, and every one of an object is
// in a table.
func TestTablesMatchTheObjects(t *testing.T) {
	named := map[string]map[string]bool{"core": {moduleHook.program: true}, "rdma": {}, "rdma_kprobe": {}}
	for _, h := range append(coreHooks[:len(coreHooks):len(coreHooks)], forkHook, exitHook) {
		named["core"][h.program] = true
	}
	for _, h := range rdmaHooks {
		if h.program != "" {
			named["rdma"][h.program] = true
		}
		if h.kprobe != "" { // what only patched kernels have has BTF
			named["rdma_kprobe"][h.kprobe] = true
		}
	}
	for object, programs := range named {
		cs, err := objects.Spec(object)
		if err != nil {
			t.Fatal(err)
		}
		for p := range programs {
			if cs.Programs[p] == nil {
				t.Errorf("object %s has no program %s", object, p)
			}
		}
		for p := range cs.Programs {
			if !programs[p] {
				t.Errorf("no table names program %s of object %s", p, object)
			}
		}
	}
	for i, h := range append(append([]hook(nil), coreHooks...), rdmaHooks...) {
		if h.program == "" {
			continue
		}
		object := "core"
		if i >= len(coreHooks) {
			object = "rdma"
		}
		cs, err := objects.Spec(object)
		if err != nil {
			t.Fatal(err)
		}
		if p := cs.Programs[h.program]; p.AttachTo != h.function || !strings.HasPrefix(p.SectionName, h.how+"/") {
			t.Errorf("program %s is for %s, the table says %s of %s", h.program, p.SectionName, h.how, h.function)
		}
	}
}
