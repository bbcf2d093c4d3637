// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

// stripped are modules as a vendor's package has them: without type
// information.
const stripped = "ib_core ib_cm ib_uverbs ib_uverbs_support rdma_rxe drm drm_kms_helper drm_shmem_helper vgem"

// strip takes the type information out of modules that are not loaded, in this
// boot's view of the file system, loads them and makes rxe0.
const strip = `
tmp=$(mktemp -d)
for m in $MODULES; do
	f=$(modinfo -n $m 2>/dev/null) || continue
	test -f "$f" || continue # built in
	xz -dcf "$f" >$tmp/m.ko  # or a copy of what is not compressed
	objcopy --remove-section .BTF --remove-section .BTF.base $tmp/m.ko
	cat $tmp/m.ko >"$f" # modprobe looks at the beginning, not at the name
done
rm -r $tmp
modprobe crc32_generic || true
modprobe ib_uverbs
modprobe rdma_rxe
modprobe vgem
ip link add dummy0 type dummy
ip link set dummy0 mtu 4200 up
ip address add 10.9.0.1/24 dev dummy0
rdma link add rxe0 type rxe netdev dummy0
`

// The core of these tests once more, with the RDMA and DRM modules stripped of
// their type information.
//
//testbed:machine bare
//testbed:kernel 7.2 6.12
func TestVMStrippedBTF(t *testing.T) {
	testenv.VM(t)
	cmd := exec.Command("sh", "-e", "-c", strip)
	cmd.Env = append(os.Environ(), "MODULES="+stripped)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, m := range []string{"ib_core", "ib_uverbs", "rdma_rxe", "drm", "vgem"} {
		if _, err := os.Stat(filepath.Join("/sys/kernel/btf", m)); err == nil {
			t.Errorf("%s has type information", m)
		}
		if _, err := os.Stat(filepath.Join("/sys/module", m)); err != nil {
			t.Error(err)
		}
	}
	// What uverbs itself refuses needs the arguments, which hide behind its types.
	for _, run := range []string{"^(TestVMLifetimes|TestVMRefusals)$/^(descriptor|process|device|one_|closed|not_a|beyond|offset_that)", "^TestVMRegister$/^(drm:vgem|udmabuf|heap:system)$"} {
		cmd := exec.Command(os.Args[0], "-test.v", "-test.run", run)
		out, err := cmd.CombinedOutput()
		text := string(out)
		if err != nil || strings.Count(text, "--- PASS: TestVM") == 0 || strings.Contains(text, "--- SKIP") {
			t.Errorf("%s: %v\n%s", run, err, text)
		}
	}
	// An exporter without type information has no hooks of its own, and the
	// verdict needs none.
	tr := open(t, mine())
	kprobes := 0
	for _, h := range tr.Hooks() {
		if h.How == "kprobe" || h.How == "kretprobe" {
			kprobes++
		}
		if h.Attached() && (h.How == "fentry" || h.How == "fexit") && h.Module != "" && strings.Contains(stripped, h.Module) {
			t.Errorf("%s of %s is watched by its type", h.Function, h.Module)
		}
	}
	if kprobes < 8 {
		t.Errorf("%d kprobes", kprobes)
	}
}
