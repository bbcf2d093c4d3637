// SPDX-License-Identifier: Apache-2.0

package gres

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/deploy/slurm/nicplan"
)

// What slurmd -G of 22.05 and of 24.11 printed: the order is that of the lines, not that of Index.
func TestFiles(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want string // files, or a part of the error
	}{
		"22.05": {`slurmd: Gres Name=gpu Type=x Count=1 Index=4 ID=7696487 File=/dev/nvidia4 (null)
slurmd: Gres Name=gpu Type=y Count=1 Index=0 ID=7696487 File=/dev/nvidia0 (null)
`, "/dev/nvidia4 /dev/nvidia0"},
		"24.11": {`slurmd: _read_slurm_cgroup_conf: No cgroup.conf file (/etc/slurm/cgroup.conf), using defaults
slurmd: warning: A line in gres.conf for GRES gpu:a has 1 more configured than expected in slurm.conf. Ignoring extra GRES.
slurmd: Gres Name=gpu Type=r Count=2 Index=0 ID=7696487 File=/dev/dri/renderD[128-129] Links=(null) Flags=HAS_FILE,HAS_TYPE
`, "/dev/dri/renderD128 /dev/dri/renderD129"},
		"another resource": {"slurmd: Gres Name=nic Count=1 Index=0 File=/dev/nic0\nslurmd: Gres Name=gpu Count=1 Index=0 File=/dev/nvidia0\n", "/dev/nvidia0"},
		"lists":            {"slurmd: Gres Name=gpu Count=5 File=/dev/nvidia[0-1,03],/dev/a,/dev/b[7]x,/dev/c\n", "/dev/nvidia0 /dev/nvidia1 /dev/nvidia03 /dev/a /dev/b7x /dev/c"},
		"none":             {"", "has gres.conf lines"},
		"no file":          {"slurmd: Gres Name=gpu Count=2 Index=0 File=(null)\n", "without File="},
		"twice":            {"slurmd: Gres Name=gpu File=/dev/nvidia[0-1]\nslurmd: Gres Name=gpu File=/dev/nvidia1\n", "/dev/nvidia1 is in gres.conf twice"},
		"open bracket":     {"slurmd: Gres Name=gpu File=/dev/nvidia[0-1\n", "not closed"},
		"no number":        {"slurmd: Gres Name=gpu File=/dev/nvidia[a-b]\n", "is no number"},
		"backwards":        {"slurmd: Gres Name=gpu File=/dev/nvidia[3-1]\n", "counts down"},
		"endless":          {"slurmd: Gres Name=gpu File=/dev/nvidia[0-65535]\n", "more than 4096 names"},
		"too many":         {"slurmd: Gres Name=gpu File=/dev/a[0-999]\nslurmd: Gres Name=gpu File=/dev/b[0-999]\n", "more GPUs than any machine"},
	} {
		t.Run(name, func(t *testing.T) {
			files, err := Files(c.text)
			if err == nil && strings.Join(files, " ") != c.want || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%q, %v", files, err)
			}
		})
	}
}

// Texts with random mistakes give an error, or files of which none is there twice.
func TestFilesOfBrokenTexts(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 3))
	const text = "slurmd: Gres Name=gpu Count=2 Index=0 File=/dev/nvidia[0-1,07],/dev/x (null)\nslurmd: Gres Name=gpu File=/dev/y[2]z\n"
	const alphabet = "[],-=/ \n0129Gx\x00"
	good := 0
	for range 20_000 {
		broken := []byte(text)
		for range 1 + r.IntN(4) {
			at := r.IntN(len(broken))
			switch c := alphabet[r.IntN(len(alphabet))]; r.IntN(3) {
			case 0:
				broken[at] = c
			case 1:
				broken = slices.Insert(broken, at, c)
			default:
				broken = slices.Delete(broken, at, at+1)
			}
		}
		files, err := Files(string(broken))
		if err == nil && (len(files) == 0 || len(files) > MaxFiles || len(slices.Compact(slices.Sorted(slices.Values(files)))) != len(files)) {
			t.Fatalf("%q: %q", broken, files)
		}
		if err == nil {
			good++
		}
	}
	if good == 0 || good == 20_000 {
		t.Errorf("%d of the texts were taken", good)
	}
}

func TestLines(t *testing.T) {
	list := nicplan.List{{Name: "0000:13:00.0", Files: []string{"/dev/nvidia1"}}, {Name: "0000:15:00.0"},
		{Name: "0000:17:00.0", Vendor: "amd", Files: []string{"/dev/dri/renderD128", "/dev/dri/card0"}}}
	var b strings.Builder
	missing, err := Lines{Node: "gpu07", Type: "h100"}.Write(&b, list)
	if want := "NodeName=gpu07 Name=gpu Type=h100 File=/dev/nvidia1 # 0000:13:00.0\n# 0000:15:00.0 has no device file: is its driver loaded?\n" +
		"NodeName=gpu07 Name=gpu Type=h100 File=/dev/dri/renderD128 Flags=amd_gpu_env # 0000:17:00.0\n"; err != nil || missing != 1 || b.String() != want {
		t.Errorf("%d %v\n%s", missing, err, b.String())
	}
	for _, bad := range []Lines{{Node: "gpu[1-4]"}, {Node: "a b"}, {Type: "x\nNodeName=y"}, {Type: "a=b"}} {
		if _, err := bad.Write(&b, list); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}
