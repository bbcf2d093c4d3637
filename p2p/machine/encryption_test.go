// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/placement"
)

func TestEncrypted(t *testing.T) {
	const (
		yes, no, unknown = placement.Yes, placement.No, placement.AnswerUnknown

		intel = "processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu hypervisor%s\n\n"
		amd   = "processor\t: 0\nvendor_id\t: AuthenticAMD\nflags\t\t: fpu hypervisor%s\n\n"
		arm   = "processor\t: 0\nCPU implementer\t: 0x41\n%s\n"

		first = "6,0,0,-;Linux version\n"
		snp   = first + "6,1,1,-;Memory Encryption Features active: AMD SEV SEV-ES SEV-SNP\n"
	)
	for _, c := range []struct {
		name, cpu, flags, maker, log string
		want                         placement.Answer
		says                         string
	}{
		{"Intel guest", intel, "", "QEMU", "", no, "no flag tdx_guest"},
		{"Intel guest without firmware tables", intel, "", "", "", no, "no flag tdx_guest"},
		{"TDX guest", intel, " tdx_guest", "QEMU", "", yes, "flag tdx_guest"},
		{"Hyper-V guest", intel, "", "Microsoft Corporation", first, no, "no line"},
		{"Hyper-V guest whose log was not read", intel, "", "Microsoft Corporation", "", unknown, ""},
		{"TDX below Hyper-V's paravisor", intel, "", "Microsoft Corporation", first + "6,1,1,-;Memory Encryption Features active: Intel TDX\n", yes, "Intel TDX"},
		{"AMD guest", amd, "", "QEMU", first, no, "no line"},
		{"AMD guest whose log was not read", amd, "", "QEMU", "", unknown, ""},
		{"AMD guest whose log has lost its beginning", amd, "", "QEMU", "6,7,0,-;eth0: link up\n", unknown, "does not reach back"},
		{"SNP guest", amd, "", "QEMU", snp, yes, "AMD SEV SEV-ES SEV-SNP"},
		{"SNP guest whose log has lost its beginning", amd, "", "QEMU", strings.Replace(snp, "6,0,", "6,7,", 1), yes, "SEV-SNP"},
		{"SEV guest of Linux 5.10", amd, "", "QEMU", first + "6,1,1,-;AMD Secure Encrypted Virtualization (SEV) active\n", yes, "SEV"},
		{"guest with memory encryption of its own", amd, "", "QEMU", first + "6,1,1,-;Memory Encryption Features active: AMD SME\n", no, "SME"},
		{"another encryption", amd, "", "QEMU", first + "6,1,1,-;Memory Encryption Features active: Zhaoxin\n", unknown, "Zhaoxin"},
		{"Arm guest", arm, "", "QEMU", snp, unknown, "architecture"},
		{"no guest", strings.Replace(amd, " hypervisor", "", 1), "", "Supermicro", snp, no, "no hypervisor"},
	} {
		tree := testenv.Tree{Files: map[string]string{"proc/cpuinfo": strings.Replace(c.cpu, "%s", c.flags, 1), "sys/class/mem/null/uevent": ""}}
		if c.maker != "" {
			tree.Files["sys/class/dmi/id/sys_vendor"] = c.maker + "\n"
			tree.Files["sys/class/dmi/id/product_name"] = "Standard PC\n"
		}
		if c.log != "" {
			tree.Files["dev/kmsg"] = c.log
		}
		got := machine.Open(tree.Write(t)).Encrypted()
		if got.Is != c.want || !strings.Contains(got.Why, c.says) {
			t.Errorf("%s: %v, %s; want %v, %s", c.name, got.Is, got.Why, c.want, c.says)
		}
		if len(got.Where) == 0 || got.Why == "" {
			t.Errorf("%s: no evidence", c.name)
		}
	}
}
