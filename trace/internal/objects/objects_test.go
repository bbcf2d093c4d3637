// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/gpurdma/gpurdma/trace/internal/abi"
)

// The structures that both sides read have one layout.
func TestLayoutsMatchTheObjects(t *testing.T) {
	structs := map[string]any{
		"head": abi.Head{}, "event": abi.Event{}, "export": abi.Export{}, "range": abi.Range{},
		"resource": abi.Resource{}, "tally": abi.Tally{}, "step": abi.Step{}, "devinfo": abi.Device{},
		"record": abi.Record{}, "config": abi.Config{}, "window": abi.Window{}, "owners": abi.Owners{}, "attach_state": abi.AttachState{},
	}
	cs, err := Spec("core")
	if err != nil {
		t.Fatal(err)
	}
	compare(t, cs, structs)
	if cs, err = Spec("rdma"); err != nil {
		t.Fatal(err)
	}
	compare(t, cs, map[string]any{"callers": abi.Callers{}})
	if cs, err = Spec("iter"); err != nil {
		t.Fatal(err)
	}
	compare(t, cs, map[string]any{"holding": abi.Holding{}})
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
			"EVENT_RECORD": abi.EventRecord, "EVENT_MODULE": abi.EventModule, "EVENT_CALLERS": abi.EventCallers, "EVENT_TRACKING": abi.EventTracking, "EVENT_TYPES": abi.EventTypes,
			"EVENT_DEREG": abi.EventDereg, "EVENT_MOVE": abi.EventMove, "EVENT_DETACH": abi.EventDetach, "EVENT_RELEASE": abi.EventRelease,
		},
		"record_kind": {"KIND_REG_DMABUF": abi.KindRegDMABuf, "KIND_MAP": abi.KindMap, "KIND_INVENTORY": abi.KindInventory, "KIND_UMEM": abi.KindUmem},
		"func": {
			"FUNC_HANDLER": abi.FuncHandler, "FUNC_EXPORTER_PIN": abi.FuncExporterPin, "FUNC_P2P_TYPE": abi.FuncP2PType, "FUNC_DETACH": abi.FuncDetach, "FUNC_UMEM_UNMAP": abi.FuncUmemUnmap,
		},
		"have": {"HAVE_ARGS": abi.HaveArgs, "HAVE_MR": abi.HaveMR, "HAVE_P2P": abi.HaveP2P, "HAVE_UMEM_ARGS": abi.HaveUmemArgs, "HAVE_OUTSIDE": abi.HaveOutside},
	}
	types := map[string]map[string]uint64{}
	for name := range all {
		cs, err := Spec(name)
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

// bpfDir is where mk/trace.mk has the sources.
const bpfDir = "trace/internal/objects/bpf"

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
	for _, sub := range []string{path.Dir(bpfDir), "mk"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.CopyFS(filepath.Join(dir, bpfDir), os.DirFS("bpf")); err != nil {
		t.Fatal(err)
	}
	mk, err := os.ReadFile("../../../mk/trace.mk")
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
	for name, committed := range all {
		built, err := os.ReadFile(filepath.Join(dir, bpfDir, name+".o"))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(built, committed) {
			t.Errorf("bpf/%s.o is not what its source compiles to: run `make generate` and commit the result", name)
		}
	}
}
