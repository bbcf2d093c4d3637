// SPDX-License-Identifier: Apache-2.0

package softgpu

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/gpurdma/gpurdma/internal/sysfs"
)

func TestClass(t *testing.T) {
	root := t.TempDir()
	for dir, personality := range map[string]string{"soft": "xe\n", "real": "ignored"} {
		if err := os.MkdirAll(filepath.Join(root, "devices", dir), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, "devices", dir, "personality"), []byte(personality), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := sysfs.New(root)
	for _, c := range []struct{ owner, device, want string }{
		{"softgpu", "devices/soft", "xe"},
		{"softgpu", "devices/gone", ""},
		{"amdgpu", "devices/real", "amdgpu"},
		{"", "devices/soft", ""},
	} {
		if got := Class(s, c.owner, c.device); got != c.want {
			t.Errorf("Class(%q, %q) = %q, want %q", c.owner, c.device, got, c.want)
		}
	}
}
