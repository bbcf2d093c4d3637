// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// The structures that both sides read have one layout.
func TestLayoutsMatchTheObjects(t *testing.T) {
	structs := map[string]any{
		"head": wireHead{}, "event": wireEvent{}, "export": wireExport{}, "range": wireRange{},
		"resource": wireResource{}, "tally": wireTally{}, "step": wireStep{}, "devinfo": wireDevice{},
		"record": wireRecord{}, "config": wireConfig{}, "window": wireWindow{}, "owners": wireOwners{},
	}
	cs, err := spec("core")
	if err != nil {
		t.Fatal(err)
	}
	compare(t, cs, structs)
	if cs, err = spec("rdma"); err != nil {
		t.Fatal(err)
	}
	compare(t, cs, map[string]any{"callers": wireCallers{}})
	if cs, err = spec("iter"); err != nil {
		t.Fatal(err)
	}
	compare(t, cs, map[string]any{"holding": wireHolding{}})
	if cs, err = spec("symbols"); err != nil {
		t.Fatal(err)
	}
	compare(t, cs, map[string]any{"found_symbol": foundSymbol{}})
	if foundSymbolSize != reflect.TypeFor[foundSymbol]().Size() {
		t.Errorf("foundSymbolSize is %d", foundSymbolSize)
	}
}

func compare(t *testing.T, cs *ebpf.CollectionSpec, structs map[string]any) {
	t.Helper()
	for name, v := range structs {
		var s *btf.Struct
		if err := cs.Types.TypeByName(name, &s); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		typ := reflect.TypeOf(v)
		if uintptr(s.Size) != typ.Size() {
			t.Errorf("struct %s: %d bytes in C, %d in Go", name, s.Size, typ.Size())
		}
		field := 0
		for i := range typ.NumField() {
			f := typ.Field(i)
			if f.Name == "_" {
				continue
			}
			m := s.Members[field]
			field++
			size, err := btf.Sizeof(m.Type)
			if err != nil {
				t.Fatal(err)
			}
			if uintptr(m.Offset.Bytes()) != f.Offset || uintptr(size) != f.Type.Size() {
				t.Errorf("struct %s: %s is at %d, %d bytes; %s in Go at %d, %d bytes",
					name, m.Name, m.Offset.Bytes(), size, f.Name, f.Offset, f.Type.Size())
			}
		}
		if field != len(s.Members) {
			t.Errorf("struct %s: %d fields in C, %d in Go", name, len(s.Members), field)
		}
	}
}

// So do the numbers.
func TestNumbersMatchTheObjects(t *testing.T) {
	enums := map[string]map[string]uint64{
		"event_type": {
			"EVENT_RECORD": eventRecord, "EVENT_MODULE": eventModule, "EVENT_CALLERS": eventCallers, "EVENT_TRACKING": eventTracking, "EVENT_TYPES": eventTypes,
			"EVENT_DEREG": eventDereg, "EVENT_MOVE": eventMove, "EVENT_DETACH": eventDetach, "EVENT_RELEASE": eventRelease,
		},
		"record_kind": {"KIND_REG_DMABUF": kindRegDMABuf, "KIND_MAP": kindMap, "KIND_INVENTORY": kindInventory, "KIND_UMEM": kindUmem},
		"func": {
			"FUNC_HANDLER": funcHandler, "FUNC_EXPORTER_PIN": funcExporterPin, "FUNC_P2P_TYPE": funcP2PType, "FUNC_DETACH": funcDetach, "FUNC_UMEM_UNMAP": funcUmemUnmap,
		},
		"have": {"HAVE_ARGS": haveArgs, "HAVE_MR": haveMR, "HAVE_P2P": haveP2P, "HAVE_UMEM_ARGS": haveUmemArgs, "HAVE_OUTSIDE": haveOutside},
	}
	types := map[string]map[string]uint64{}
	for name := range objects {
		cs, err := spec(name)
		if err != nil {
			t.Fatal(err)
		}
		for e := range enums {
			var en *btf.Enum
			if cs.Types.TypeByName(e, &en) != nil {
				continue // not used by this object
			}
			if types[e] == nil {
				types[e] = map[string]uint64{}
			}
			for _, v := range en.Values {
				types[e][v.Name] = v.Value
			}
		}
	}
	for e, values := range enums {
		if types[e] == nil {
			t.Logf("enum %s is in no object's BTF", e)
			continue
		}
		for name, want := range values {
			if got, ok := types[e][name]; !ok || got != want {
				t.Errorf("%s is %d in C, %d in Go", name, got, want)
			}
		}
	}
}

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
		cs, err := spec(object)
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
		cs, err := spec(object)
		if err != nil {
			t.Fatal(err)
		}
		if p := cs.Programs[h.program]; p.AttachTo != h.function || !strings.HasPrefix(p.SectionName, h.how+"/") {
			t.Errorf("program %s is for %s, the table says %s of %s", h.program, p.SectionName, h.how, h.function)
		}
	}
}

// The committed objects are what their sources compile to.
func TestObjectsAreReproducible(t *testing.T) {
	for _, tool := range []string{"clang-14", "llvm-strip-14", "make"} {
		if _, err := exec.LookPath(tool); err != nil {
			why := fmt.Sprintf("compiling the objects needs %s (apt-get install clang-14 llvm-14 make)", tool)
			if os.Getenv("GPURDMA_NEED_CLANG") != "" {
				t.Fatal(why)
			}
			t.Skip(why)
		}
	}
	dir := t.TempDir()
	for _, sub := range []string{"trace", "mk"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.CopyFS(filepath.Join(dir, "trace/bpf"), os.DirFS("bpf")); err != nil {
		t.Fatal(err)
	}
	mk, err := os.ReadFile("../mk/trace.mk")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "mk/trace.mk"), mk, 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("make", "-B", "-f", "mk/trace.mk", "generate")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "MAKEFLAGS=", "MAKELEVEL=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make generate: %v\n%s", err, out)
	}
	for name, committed := range objects {
		built, err := os.ReadFile(filepath.Join(dir, "trace/bpf", name+".o"))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(built, committed) {
			t.Errorf("bpf/%s.o is not what its source compiles to: run `make generate` and commit the result", name)
		}
	}
}
