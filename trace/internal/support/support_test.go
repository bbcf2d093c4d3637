// SPDX-License-Identifier: Apache-2.0

package support

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Clear answers where tracing cannot work.
func TestOldKernel(t *testing.T) {
	for release, old := range map[string]bool{
		"5.16.20-1-amd64": true, "4.18.0-553.el8.x86_64": true, "5.17.0": false, "6.1.0-56-amd64": false, "7.2.12+deb13-amd64": false, "unusual": false,
	} {
		err := oldKernel(release)
		if (err != nil) != old {
			t.Errorf("%s: %v", release, err)
		}
		if old {
			for _, word := range []string{release, "5.17", "newer kernel"} {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%q lacks %q", err, word)
				}
			}
		}
	}
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	err := Check(dir, "")
	if err == nil || !errors.Is(err, errors.ErrUnsupported) {
		t.Fatalf("no BTF: %v", err)
	}
	has := func(words ...string) {
		t.Helper()
		for _, word := range words {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%q lacks %q", err, word)
			}
		}
	}
	has("BTF", "CONFIG_DEBUG_INFO_BTF")
	write := func(name, text string) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("kernel/btf/vmlinux", "")
	write("kernel/security/lockdown", "none integrity [confidentiality]\n")
	err = Check(dir, "")
	if err == nil || !errors.Is(err, os.ErrPermission) {
		t.Fatalf("lockdown: %v", err)
	}
	has("confidentiality", "integrity or none")
	write("kernel/security/lockdown", "[none] integrity confidentiality\n")
	if err := Check(dir, ""); err != nil && os.Geteuid() == 0 && !strings.Contains(err.Error(), "CAP_") {
		t.Errorf("%v", err)
	}
}
