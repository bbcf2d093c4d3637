// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/uverbs"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// stripped are modules as a vendor's package has them: without type
// information.
var stripped = strings.Fields("ib_core ib_cm iw_cm rdma_cm ib_uverbs ib_uverbs_support rdma_rxe drm drm_kms_helper drm_shmem_helper drm_client_lib ttm drm_buddy vgem virtio_gpu softgpu testimporter testexporter")

// strip takes the type information out of modules that are not loaded, in this
// boot's view of the file system.
const strip = `
tmp=$(mktemp -d)
for m in $MODULES; do
	# modprobe is told where our own are
	f=$(modinfo -n $m 2>/dev/null || sed -n "s/^install $m .*insmod \([^ ]*\) .*/\1/p" /run/modprobe.d/*)
	test -f "$f" || continue # built in
	xz -dcf "$f" >$tmp/m.ko  # or a copy of what is not compressed
	objcopy --remove-section .BTF --remove-section .BTF.base $tmp/m.ko
	cat $tmp/m.ko >"$f" # modprobe looks at the beginning, not at the name
done
rm -r $tmp
`

// warmUp sets a cold machine up as fabric is.
const warmUp = `
modprobe crc32_generic || true
modprobe -a ib_uverbs rdma_rxe vgem virtio-gpu e1000e softgpu testimporter testexporter
modprobe udmabuf || true # built in, or not there
for nic in /run/gpurdma/pci/nic*; do
	n=${nic##*/nic}
	dev=$(ls $nic/net)
	ip link set $dev name nic$n mtu 4200 up
	ip address add 10.9.2$n.1/24 dev nic$n
	rdma link add rxe$n type rxe netdev nic$n
done
`

// hasTypes reports whether a module has type information.
func hasTypes(module string) bool {
	_, err := os.Stat(filepath.Join("/sys/kernel/btf", module))
	return err == nil
}

// These tests once more, with the RDMA and DRM modules stripped of their type
// information. What uverbs itself refuses needs the arguments, which hide behind
// its types.
//
//testbed:machine fabric+EPYC+cold
//testbed:kernel 7.2 6.12
func TestVMStrippedBTF(t *testing.T) {
	testenv.VM(t)
	cmd := exec.Command("sh", "-e", "-c", strip+warmUp)
	cmd.Env = append(os.Environ(), "MODULES="+strings.Join(stripped, " "))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, m := range stripped {
		if hasTypes(m) {
			t.Errorf("%s has type information", m)
		}
	}
	for _, m := range []string{"ib_core", "ib_uverbs", "rdma_rxe", "drm", "vgem", "softgpu", "testimporter", "testexporter"} {
		if _, err := os.Stat(filepath.Join("/sys/module", m)); err != nil {
			t.Error(err)
		}
	}
	// Tests load these themselves.
	if out, err := exec.Command("modprobe", "-r", "-a", "softgpu", "testimporter", "testexporter").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	truth := []string{"Truth", "Demotion"}
	if !testenv.AtLeast(t, "7.2") {
		truth = []string{"TruthWithoutP2PDMA"}
	}
	for _, part := range []struct {
		name  string
		tests []string
		subs  string // of these only
	}{
		{"life", []string{"Lifetimes", "Refusals"}, "/^(descriptor|process|device|one_|closed|not_a|beyond|offset_that)"},
		{"all", []string{"Register", "Filters", "Cgroup", "Loss", "TenThousand", "Inventory", "Walk", "WalkPages", "Rereg", "Exports"}, ""},
		{"rows", []string{"SameErrno", "ScatterLists", "Bounced"}, ""},
		{"truth", truth, ""},
	} {
		t.Run(part.name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.v", "-test.run", "^TestVM("+strings.Join(part.tests, "|")+")$"+part.subs)
			out, err := cmd.CombinedOutput()
			text := "\n" + string(out)
			missing := slices.ContainsFunc(part.tests, func(name string) bool { return !strings.Contains(text, "\n--- PASS: TestVM"+name+" ") })
			if err != nil || missing || strings.Contains(text, "--- SKIP") {
				t.Errorf("%v%s", err, text)
			}
		})
	}
	// An exporter without type information has no hooks of its own, and the
	// verdict needs none.
	tr := open(t, mine())
	kprobes := 0
	for _, h := range tr.Hooks() {
		if h.How == "kprobe" || h.How == "kretprobe" {
			kprobes++
		}
		if h.Attached() && (h.How == "fentry" || h.How == "fexit") && slices.Contains(stripped, h.Module) {
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
