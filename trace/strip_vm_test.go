// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/uverbs"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// stripped are modules as a vendor's package has them: without type
// information.
const stripped = "ib_core ib_cm ib_uverbs ib_uverbs_support rdma_rxe drm drm_kms_helper drm_shmem_helper vgem"

// strip takes the type information out of modules that are not loaded, in this
// boot's view of the file system.
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
`

// The core of these tests once more, with the RDMA and DRM modules stripped of
// their type information.
//
//testbed:machine bare
//testbed:kernel 7.2 6.12
func TestVMStrippedBTF(t *testing.T) {
	testenv.VM(t)
	cmd := exec.Command("sh", "-e", "-c", strip+loadRDMA)
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
	for _, run := range []string{
		"^(TestVMLifetimes|TestVMRefusals)$/^(descriptor|process|device|one_|closed|not_a|beyond|offset_that)",
		"^TestVMRegister$/^(drm:vgem|udmabuf|heap:system)$",
		"^(TestVMFilters|TestVMLoss|TestVMInventory)$",
	} {
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
	// What is not known is not guessed at.
	d, b := openDevice(t), alloc(t, "drm:vgem", 1<<20)
	err := b.Segments()[0].Buf.Do(func(fd int) error {
		_, err := d.RegDMABufMR(uverbs.DMABufMR{PD: d.pd, FD: int32(fd), Access: accessAll, Length: 1 << 20, IOVA: 8})
		return err
	})
	if err != unix.EINVAL {
		t.Fatalf("an IOVA elsewhere in the page: %v", err)
	}
	r := await(t, tr, "refused", func(e Event) bool { return e.Kind == Refused }).Record
	if f := r.Explain(); r.ArgsKnown || f.Stage != StageDriver || !strings.Contains(f.Detail, "or the checks before it") {
		t.Errorf("%+v", f)
	}
}
