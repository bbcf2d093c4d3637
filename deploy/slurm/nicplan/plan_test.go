// SPDX-License-Identifier: Apache-2.0

package nicplan

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/p2p/machine"
)

func TestReadAndWrite(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "plan.json")
	p := &Plan{Schema: Schema, Boot: "b", GPUs: []GPU{{File: "/dev/nvidia0", NICs: []NIC{{"mlx5_0", []int{1}}}}}}
	if err := p.Write(file); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(file)
	if err != nil || st.Mode().Perm() != 0o644 {
		t.Errorf("%v %v: the job's user has to read it", st.Mode(), err)
	}
	if q, err := Read(file); err != nil || q.Boot != "b" || q.GPUs[0].NICs[0].Name != "mlx5_0" {
		t.Errorf("%+v %v", q, err)
	}
	if err := p.Write(filepath.Join(dir, "none/plan.json")); err == nil {
		t.Error("written to a directory that is not there")
	}
	for text, want := range map[string]string{"": "it is no plan", "[]": "it is no plan", `{"schema": "other"}`: `its schema is "other"`, strings.Repeat(" ", MaxBytes+1): "is longer than"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want %q", text, err, want)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("%v are left, %v", left, err)
	}
}

// The order of AMD's GPUs is that of the kernel's topology of them, which is not that of their addresses.
func TestOrderOfAMD(t *testing.T) {
	root := t.TempDir()
	nodes := filepath.Join(root, "sys/class/kfd/kfd/topology/nodes")
	node := func(n, text string) {
		if err := os.MkdirAll(filepath.Join(nodes, n), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(nodes, n, "properties"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	a := GPU{File: "/dev/dri/renderD128", PCI: "0000:23:00.0", Vendor: "amd"}
	b := GPU{File: "/dev/dri/renderD129", PCI: "0001:03:00.1", Vendor: "amd"}
	rule := func(gpus ...GPU) (string, string) { return List{}.order(gpus, machine.Open(root)) }
	if r, why := rule(a, b); r != "" || !strings.Contains(why, "how ROCm counts GPUs is not known") {
		t.Errorf("%q %q", r, why)
	}
	node("0", "cpu_cores_count 64\nsimd_count 0\nlocation_id 0\ndomain 0\n")
	node("2", "simd_count 304\nlocation_id 8960\ndomain 0\n") // 0x2300
	node("10", "simd_count 304\nlocation_id 769\ndomain 1\n") // 0x301
	if r, why := rule(a, b); r != KFDOrder {
		t.Errorf("%q %q", r, why)
	}
	if r, why := rule(b, a); r != "" || !strings.Contains(why, "0000:23:00.0, 0001:03:00.1") {
		t.Errorf("%q %q", r, why)
	}
	if r, why := rule(a); r != "" || why == "" {
		t.Errorf("a GPU that gres.conf does not list: %q", r)
	}
	if r, why := rule(a, GPU{File: "/dev/nvidia0", PCI: "0000:01:00.0", Vendor: "nvidia"}); r != "" || why == "" {
		t.Errorf("two vendors: %q", r)
	}
}
