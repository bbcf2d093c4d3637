// SPDX-License-Identifier: Apache-2.0

package downloads

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"unicode"
)

// goModules are the directories of the checkout that have a go.sum.
var goModules = []string{"", "deploy", "deploy/dra", "metrics", "testbed", "tools"}

// toolchain is the module that Go downloads itself as.
const toolchain = "golang.org/toolchain"

// modules are the modules that the checkout's go.sum files name and Go's cache has. Go
// has compared each with go.sum; that its note of it still says so is checked.
func modules(root string) ([]Item, error) {
	out, err := exec.Command("go", "env", "GOMODCACHE", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	cache, goroot, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	var items []Item
	for _, dir := range goModules {
		file := filepath.Join(root, dir, "go.sum")
		text, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			if len(f) != 3 || strings.HasSuffix(f[1], "/go.mod") {
				continue
			}
			i, ok, err := module(cache, f[0], f[1], f[2])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			if ok {
				i.For = []string{filepath.Join(dir, "go.mod")}
				items = append(items, i)
			}
		}
	}
	// A toolchain that go.mod asks for, and the installed Go is not.
	if version, ok := strings.CutPrefix(goroot, filepath.Join(cache, toolchain)+"@"); ok {
		i, ok, err := module(cache, toolchain, version, "")
		if err != nil {
			return nil, err
		}
		if ok {
			i.For = []string{"go"}
			items = append(items, i)
		}
	}
	return items, nil
}

// module is a module in Go's cache, if it is there. sum is what go.sum has.
func module(cache, name, version, sum string) (Item, bool, error) {
	file := filepath.Join(cache, "cache", "download", escape(name), "@v", escape(version)+".zip")
	hashed, size, err := hash(file)
	if errors.Is(err, os.ErrNotExist) {
		return Item{}, false, nil
	}
	if err != nil {
		return Item{}, false, err
	}
	noted, err := os.ReadFile(file + "hash")
	if err != nil {
		return Item{}, false, err
	}
	if got := strings.TrimSpace(string(noted)); sum != "" && got != sum {
		return Item{}, false, fmt.Errorf("%s %s is %s, and %s in Go's cache", name, version, sum, got)
	}
	return Item{Kind: Module, Name: name, Version: version, SHA256: hashed, Size: size}, true, nil
}

// escape is how the module cache writes names, for file systems that take no notice of
// case.
func escape(s string) string {
	var b strings.Builder
	for _, r := range s {
		if unicode.IsUpper(r) {
			b.WriteByte('!')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
