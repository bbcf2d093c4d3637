// SPDX-License-Identifier: Apache-2.0

package module

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/ulikunitz/xz"
)

// ErrUnknown says that a kernel has no such module, loadable or built in.
var ErrUnknown = errors.New("the kernel has no such module")

// Tree is the module directory of one kernel, /lib/modules/RELEASE.
type Tree struct {
	dir     string
	path    map[string]string   // module name to file, relative to dir
	deps    map[string][]string // module name to files, in modules.dep's order
	builtin map[string]bool
}

// Name is the canonical module name of a file or of a name as people write
// it: without directory, suffixes and dashes.
func Name(file string) string {
	base := filepath.Base(file)
	if i := strings.Index(base, ".ko"); i >= 0 {
		base = base[:i]
	}
	return strings.ReplaceAll(base, "-", "_")
}

// OpenTree reads modules.dep and modules.builtin of dir.
func OpenTree(dir string) (*Tree, error) {
	t := &Tree{dir: dir, path: map[string]string{}, deps: map[string][]string{}, builtin: map[string]bool{}}
	dep, err := os.ReadFile(filepath.Join(dir, "modules.dep"))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(dep)) {
		file, deps, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		n := Name(file)
		t.path[n] = file
		t.deps[n] = strings.Fields(deps)
	}
	builtin, err := os.ReadFile(filepath.Join(dir, "modules.builtin"))
	if err != nil {
		return nil, err
	}
	for _, f := range strings.Fields(string(builtin)) {
		t.builtin[Name(f)] = true
	}
	return t, nil
}

// Has says whether the kernel has the module, loadable or built in.
func (t *Tree) Has(name string) bool {
	n := Name(name)
	return t.path[n] != "" || t.builtin[n]
}

// File is the module's file, or "" when it is built in or unknown.
func (t *Tree) File(name string) string {
	if p := t.path[Name(name)]; p != "" {
		return filepath.Join(t.dir, p)
	}
	return ""
}

// Order returns the names of the loadable modules that loading the given ones
// in turn takes, each after all that it needs and none twice. Modules built
// into the kernel are left out.
func (t *Tree) Order(names ...string) ([]string, error) {
	var order []string
	seen := map[string]bool{}
	add := func(n string) {
		if !seen[n] {
			seen[n] = true
			order = append(order, n)
		}
	}
	for _, name := range names {
		n := Name(name)
		if t.builtin[n] {
			continue
		}
		if t.path[n] == "" {
			return nil, fmt.Errorf("%w: %s (looked in %s)", ErrUnknown, name, t.dir)
		}
		// modules.dep lists what a module needs, and what that needs in
		// turn, the first to load last.
		deps := t.deps[n]
		for i := len(deps) - 1; i >= 0; i-- {
			add(Name(deps[i]))
		}
		add(n)
	}
	return order, nil
}

// xzMagic starts every xz file.
var xzMagic = []byte{0xfd, '7', 'z', 'X', 'Z', 0}

// Read returns a module's contents, decompressed.
func Read(file string) ([]byte, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(b, xzMagic) {
		return b, nil
	}
	r, err := xz.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if b, err = io.ReadAll(r); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return b, nil
}

// Release is the kernel release in a module's vermagic, which the kernel
// compares with its own before it loads the module.
func Release(ko []byte) (string, error) {
	v, err := info(ko, "vermagic")
	if err != nil {
		return "", err
	}
	rel, _, _ := strings.Cut(v, " ")
	return rel, nil
}

// Depends are the names of the modules that a module says it needs.
func Depends(ko []byte) ([]string, error) {
	v, err := info(ko, "depends")
	if err != nil || v == "" {
		return nil, err
	}
	return strings.Split(v, ","), nil
}

// info returns one field of the .modinfo section: NUL-terminated key=value
// strings.
func info(ko []byte, key string) (string, error) {
	field := []byte("\x00" + key + "=")
	i := bytes.Index(ko, field)
	if i < 0 {
		return "", fmt.Errorf("no %s field: not a kernel module", key)
	}
	v, _, ok := bytes.Cut(ko[i+len(field):], []byte{0})
	if !ok {
		return "", fmt.Errorf("unterminated %s field: not a kernel module", key)
	}
	return string(v), nil
}
