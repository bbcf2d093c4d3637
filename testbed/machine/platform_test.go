// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"slices"
	"strings"
	"testing"
)

// Every machine that goes by name is there on every architecture, with the same devices in
// the same places, on the architecture's own board and processor.
func TestArchitectures(t *testing.T) {
	for _, name := range Names() {
		want, err := Load(DefaultArch, name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Load("arm64", name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for i, n := range got.Nodes {
			args, err := got.QEMU(n, "tcg", make([]int, len(got.LinkEnds(n))))
			text := strings.Join(args, " ")
			if err != nil || !strings.Contains(text, "-machine virt,gic-version=3 ") || !strings.Contains(text, "-bios QEMU_EFI.fd") || !strings.Contains(text, "-cpu neoverse-n1 ") {
				t.Errorf("%s: %s, %v", name, text, err)
			}
			if len(n.Devices) != len(want.Nodes[i].Devices) || !slices.Equal(n.Modules, want.Nodes[i].Modules) {
				t.Errorf("%s: node %s differs in more than its processor: %+v, %+v", name, n.Name, n, want.Nodes[i])
			}
		}
	}
}

func TestARM64(t *testing.T) {
	for variation, want := range map[string]string{"iommu": "iommu.passthrough=0 iommu.strict=1", "pt": "iommu.passthrough=1"} {
		m, err := Load("arm64", "switch-acs+neoverse-n1+"+variation)
		if err != nil {
			t.Fatal(err)
		}
		args, err := m.QEMU(m.Nodes[0], "tcg", nil)
		if text := strings.Join(args, " "); err != nil || !strings.Contains(text, "-machine virt,gic-version=3,iommu=smmuv3 ") || strings.Contains(text, "intel-iommu") {
			t.Errorf("%s: %s, %v", variation, text, err)
		}
		if got := strings.Join(m.Cmdline(m.Nodes[0]), " "); got != want {
			t.Errorf("%s: kernel arguments %q, want %q", variation, got, want)
		}
	}
	for name, want := range map[string]string{"fabric+EPYC": `no variation "EPYC": there are neoverse-n1`, "none": "no machine"} {
		if _, err := Load("arm64", name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	if _, err := Load("sparc", "default"); err == nil || !strings.Contains(err.Error(), "amd64, arm64") {
		t.Errorf("an unknown architecture: %v", err)
	}
	if err := (Machine{Name: "m", Arch: "sparc", Nodes: []Node{{Name: "a"}}}).Validate(); err == nil || !strings.Contains(err.Error(), `no architecture "sparc"`) {
		t.Errorf("a machine of an unknown architecture: %v", err)
	}
	for _, c := range []struct {
		arch, variation string
		want            bool
	}{{"arm64", "EPYC", true}, {"arm64", "neoverse-n1", false}, {"amd64", "neoverse-n1", true}, {"amd64", "max", false}, {"arm64", "iommu", false}, {"amd64", "cold", false}} {
		if got := Foreign(c.arch, c.variation); got != c.want {
			t.Errorf("%s on %s: foreign %v", c.variation, c.arch, got)
		}
	}
}
