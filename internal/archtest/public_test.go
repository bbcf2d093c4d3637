// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"encoding/json"
	"errors"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// showsInternal are the types of internal/ that public signatures show, by the package that shows them:
// a program cannot name them. No further ones may come.
var showsInternal = map[string][]string{
	"ibvfd/uverbs":  {"internal/ioctl.Transport"},
	"p2p":           {"internal/pci.ACSBits"},
	"p2p/check":     {"internal/pci.Config"},
	"p2p/directnic": {"internal/pci.ACS", "internal/pci.ACSBits", "internal/pci.Port"},
	"p2p/lspci":     {"internal/files.Tree"},
	"p2p/machine":   {"internal/pci.ACS", "internal/pci.BAR", "internal/pci.Function", "internal/procfs.FS", "internal/sysfs.FS"},
	"p2p/p2pdma":    {"internal/pci.ACSBits"},
	"p2p/snapshot":  {"internal/files.Tree"},
}

// Public packages show no types of internal/ in what they export.
func TestPublicSignaturesShowNoInternalTypes(t *testing.T) {
	exports := map[string]string{}
	var public []string
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Export,Name", module+"/...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct{ ImportPath, Export, Name string }
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
		if room(p.ImportPath) != "?" && p.Name != "main" && !strings.Contains(p.ImportPath+"/", "/internal/") {
			public = append(public, p.ImportPath)
		}
	}
	imp := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	for _, path := range public {
		pkg, err := imp.Import(path)
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]bool{}
		for _, name := range pkg.Scope().Names() {
			if o := pkg.Scope().Lookup(name); o.Exported() {
				internalTypes(o.Type(), pkg, found, map[types.Type]bool{})
			}
		}
		known := showsInternal[strings.TrimPrefix(strings.TrimPrefix(path, module), "/")]
		for name := range found {
			if !slices.Contains(known, name) {
				t.Errorf("%s shows %s", path, name)
			}
		}
		for _, name := range known {
			if !found[name] {
				t.Errorf("%s does not show %s any more: take it off the list", path, name)
			}
		}
	}
}

// internalTypes finds the types of internal/ in a type that pkg exports: in its exported fields and
// methods, and in those of what it is made of.
func internalTypes(t types.Type, pkg *types.Package, found map[string]bool, seen map[types.Type]bool) {
	if seen[t] {
		return
	}
	seen[t] = true
	into := func(t types.Type) { internalTypes(t, pkg, found, seen) }
	switch t := t.(type) {
	case *types.Alias:
		into(types.Unalias(t))
	case *types.Named:
		o := t.Obj()
		if o.Pkg() != nil && strings.HasPrefix(o.Pkg().Path(), module+"/") && strings.Contains(o.Pkg().Path()+"/", "/internal/") {
			found[strings.TrimPrefix(o.Pkg().Path(), module+"/")+"."+o.Name()] = true
			return
		}
		if o.Pkg() != pkg {
			return // that package answers for it
		}
		into(t.Underlying())
		for m := range t.Methods() {
			if m.Exported() {
				into(m.Type())
			}
		}
	case *types.Pointer:
		into(t.Elem())
	case *types.Slice:
		into(t.Elem())
	case *types.Array:
		into(t.Elem())
	case *types.Chan:
		into(t.Elem())
	case *types.Map:
		into(t.Key())
		into(t.Elem())
	case *types.Signature:
		into(t.Params())
		into(t.Results())
	case *types.Tuple:
		for v := range t.Variables() {
			into(v.Type())
		}
	case *types.Struct:
		for f := range t.Fields() {
			if f.Exported() || f.Embedded() {
				into(f.Type())
			}
		}
	case *types.Interface:
		for m := range t.Methods() {
			if m.Exported() {
				into(m.Type())
			}
		}
	}
}
