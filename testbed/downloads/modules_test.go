// SPDX-License-Identifier: Apache-2.0

package downloads

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Of the modules that go.sum names those are listed that Go has, and each is the one
// that go.sum means.
func TestModules(t *testing.T) {
	root, cache := t.TempDir(), t.TempDir()
	t.Setenv("GOMODCACHE", cache)
	put := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put(filepath.Join(root, "go.sum"), "example.com/Big/m v1.0.0-RC h1:aaa=\nexample.com/Big/m v1.0.0-RC/go.mod h1:bbb=\nexample.com/none v1.0.0 h1:ccc=\n")
	put(filepath.Join(root, "testbed", "go.sum"), "example.com/Big/m v1.0.0-RC h1:aaa=\n")
	zip := filepath.Join(cache, "cache/download/example.com/!big/m/@v/v1.0.0-!r!c.zip")
	put(zip, "zip")
	put(zip+"hash", "h1:aaa=")
	items, err := modules(root)
	if err != nil {
		t.Fatal(err)
	}
	sum, _, _ := hash(zip)
	items = merge(items)
	if len(items) != 1 || items[0].Name != "example.com/Big/m" || items[0].Version != "v1.0.0-RC" || items[0].SHA256 != sum || items[0].Size != 3 ||
		strings.Join(items[0].For, " ") != "go.mod testbed/go.mod" || items[0].check() != nil {
		t.Errorf("%+v", items)
	}
	put(zip+"hash", "h1:other=")
	if _, err := modules(root); err == nil || !strings.Contains(err.Error(), "h1:other=") {
		t.Errorf("another hash: %v", err)
	}
}

// A toolchain that Go has downloaded for itself is a module, too.
func TestToolchain(t *testing.T) {
	cache := t.TempDir()
	const version = "v0.0.1-go1.99.0.linux-amd64"
	goroot := filepath.Join(cache, toolchain+"@"+version)
	zip := filepath.Join(cache, "cache/download", toolchain, "@v", version+".zip")
	for _, name := range []string{filepath.Join(goroot, "bin"), filepath.Dir(zip)} {
		if err := os.MkdirAll(name, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{zip: "zip", zip + "hash": "h1:aaa="} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GOMODCACHE", cache)
	t.Setenv("GOROOT", goroot)
	items, err := modules(t.TempDir())
	if err != nil || len(items) != 1 || items[0].Name != toolchain || items[0].Version != version || items[0].check() != nil {
		t.Errorf("%+v, %v", items, err)
	}
}
