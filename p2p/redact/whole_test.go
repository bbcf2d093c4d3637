// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"slices"
	"strings"
	"testing"
)

// wholes are contents that say something of a machine's owner, and what must not be left of each.
var wholes = [][2]string{
	{"10.203.33.77\n", "203.33"}, {"acme-secret\n", "secret"}, {"AcmeSecret\n", "Secret"}, {"SECRETWORD\n", "SECRET"}, {"5: AcmeSecretCorp\n", "Secret"}, {"a0:88:c2:5e:04:77\n", "5e:04"}, {"A088C25E0477\n", "C25E04"},
	{"fd00:77:ab::77\n", "77:ab"}, {"7f3c1a5e-5e5e-4c4c-8d8d-a088c25e0477\n", "5e5e-4c4c"}, {"alice@secret.example\n", "secret"}, {"/home/secret/x\n", "secret"}, {"password=secret\n", "secret"}, {"DC17-R12-N4\n", "R12"}, {"PRO-2024-SECRET\n", "SECRET"},
	{"1.2.3-secret\n", "secret"}, {"7.2.12-10.203.33.77\n", "203.33"}, {"6.1.0-770123456-rc\n", "770123456"}, {"cpu\t: POWER9 (secret machine)\n", "secret"}, {"isa\t: rv64secret\n", "secret"}, {"# Linux/secretarch 6.12.1 Kernel Configuration\n", "secret"},
	{"CONFIG_PCI=secret\n", "secret"}, {"Version: 10.203.33.77\n", "203.33"}, {"Version: 1.2-secret\n", "secret"}, {"NVRM version: NVIDIA secret 10.203.33.77\n", "203.33"}, {"Model: \t NVIDIA Secret\nGPU Firmware: 10.203.33.77\n", "203.33"},
	{"hca_handle=secret\n", "secret"}, {"mlx5_0 hca_handle=secret\n", "secret"}, {"NCCL_IB_HCA=secret\x00", "secret"}, {"NCCL_TOPO_FILE=/srv/10/203/33/77\x00", "203/33"}, {"NCCL_IB_HCA=10,203,33,77\x00", "203,33"}, {"iommu=secret pci=secret\n", "secret"},
	{"iommu=10/203/33/77\n", "203/33"}, {"0::/secret/x\n", "secret"}, {"1:name=secret:/\n", "secret"}, {"1 1 0:1 / /proc/secret rw - fuse.secret secret rw,size=secret\n", "secret"}, {"kernel/drivers/secret.ko\n", "secret"},
	{"TOTAL_ERR_FATAL secret\n", "secret"}, {"SECRET 5\n", "SECRET"}, {"CapEff:\tsecret\n", "secret"}, {"Max locked memory  secret  secret  bytes\n", "secret"}, {"gfx_target_version secret\n", "secret"}, {"type secret\n", "secret"}, {"cmbloc : secret\n", "secret"},
	{"DmaRemapPeerMmio: secret\n", "secret"}, {"CoherentGPUMemoryMode: \"secret\"\n", "secret"}, {"RegistryDwords: \"secret=1\"\n", "secret"}, {"[none] integrity secret\n", "secret"}, {"ens12345n77012\n", "77012"}, {"rocep77012d34567\n", "77012"},
	{"flags\t: fpu secret\n\n", "secret"}, {"vendor_id\t: secret\n\n", "secret"}, {"x secret\xff\xfe\x00secret", "secret"}, {"münchen-secret\n", "secret"}, {"\x1b[2Jsecret\n", "secret"},
}

// No rule lets any of them through, whole or as the second line.
func TestNoRuleKeepsWhatIsTheOwners(t *testing.T) {
	n := 0
	firmware := "sys/class/infiniband/*/fw_ver" // versions of firmware have four numbers, and the maker chooses them
	for _, item := range slices.Concat(Taken(), OfFunctions(), OfEndpoints(), []Item{OfCards(), {"rdma.max", &GroupRule}}) {
		if item.Rule.Bare() {
			continue
		}
		for _, w := range wholes {
			if item.Pattern == firmware && w[1] == "203.33" || item.Pattern == "config" && len(w[0]) > 60 { // registers, not text
				continue
			}
			for _, contents := range []string{w[0], "1\n" + w[0], "y" + w[0]} {
				n++
				if got := string(item.Rule.Apply(New(), []byte(contents))); strings.Contains(strings.ToLower(got), strings.ToLower(w[1])) {
					t.Errorf("%s of %q keeps %q", item.Pattern, contents, got)
				}
			}
		}
	}
	t.Logf("%d contents", n)
}

// The same of names of files, wherever they stand.
func TestNoPathKeepsWhatIsTheOwners(t *testing.T) {
	for _, item := range Taken() {
		for _, name := range []string{"secret", "secret0", "AcmeSecret.yaml", "libsecret-rdmav34.so", "config-6.1.0-secret", "secret.driver", "bond-secret", "10.secret.3", "secret.sock", "upper_secret", "linux-headers-secret"} {
			for _, at := range []string{strings.ReplaceAll(item.Pattern, "*", name), "srv/" + name + "/" + item.Pattern} {
				if got := New().Path(at); strings.Contains(strings.ToLower(got), "secret") {
					t.Errorf("%s: %s", at, got)
				}
			}
		}
	}
}
