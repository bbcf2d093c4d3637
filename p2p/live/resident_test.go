// SPDX-License-Identifier: Apache-2.0

package live

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// Memory in the GPU is counted once for each client, by any of the drivers' names for it. A
// value that cannot be read as a size is an error.
func TestResident(t *testing.T) {
	gpu, err := pciaddr.Parse("0000:03:00.0")
	if err != nil {
		t.Fatal(err)
	}
	const own, other = "pos:\t0\ndrm-pdev:\t0000:03:00.0\n", "pos:\t0\ndrm-pdev:\t0000:04:00.0\n"
	amdgpu := own + "drm-client-id:\t7\ndrm-total-vram:\t900 KiB\ndrm-resident-vram:\t256 KiB\ndrm-memory-vram:\t256 KiB\ndrm-resident-gtt:\t64 KiB\n"
	for _, c := range []struct {
		name  string
		files []string
		want  int64
		words string
	}{
		{"amdgpu", []string{"pos:\t0\n", amdgpu}, 256 << 10, ""},
		{"twice open", []string{amdgpu, amdgpu}, 256 << 10, ""},
		{"two clients", []string{amdgpu, strings.Replace(amdgpu, "\t7", "\t8", 1)}, 512 << 10, ""},
		{"old amdgpu", []string{own + "drm-client-id:\t1\ndrm-memory-vram:\t12 KiB\ndrm-memory-gtt: \t1 KiB\n"}, 12 << 10, ""},
		{"xe", []string{own + "drm-client-id:\t1\ndrm-resident-vram0:\t1 MiB\ndrm-resident-vram1:\t2 MiB\ndrm-resident-gtt:\t9 MiB\n"}, 3 << 20, ""},
		{"i915", []string{own + "drm-client-id:\t1\ndrm-resident-local0:\t0\ndrm-resident-system0:\t9 MiB\n"}, 0, ""},
		{"another GPU's", []string{other + "drm-client-id:\t1\ndrm-resident-vram:\t1 MiB\n"}, 0, "no open file"},
		{"none", nil, 0, "no open file"},
		{"nvidia", []string{own + "drm-client-id:\t1\ndrm-driver:\tnvidia-drm\n"}, 0, "counts no memory"},
		{"a display", []string{own + "drm-client-id:\t1\ndrm-resident-memory:\t9 MiB\n"}, 0, "counts no memory"},
		{"nonsense", []string{own + "drm-resident-vram:\tmuch\n"}, 0, "no size"},
		{"another unit", []string{own + "drm-resident-vram:\t1 GiB\n"}, 0, "no size"},
		{"too much", []string{own + "drm-resident-vram:\t9223372036854775807 KiB\n"}, 0, "no size"},
	} {
		dir := t.TempDir()
		for i, text := range c.files {
			testenv.WriteFile(t, filepath.Join(dir, strconv.Itoa(i)), text)
		}
		got, err := resident(dir, gpu)
		if c.words == "" && (err != nil || got != c.want) || c.words != "" && (err == nil || !strings.Contains(err.Error(), c.words)) {
			t.Errorf("%s: %d, %v; want %d, %q", c.name, got, err, c.want, c.words)
		}
	}
}
