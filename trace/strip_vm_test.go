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

// warmUp sets a cold machine up as fabric is.
const warmUp = `
modprobe crc32_generic || true
modprobe drm_kms_helper fbdev_emulation=0
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

// stripBTF strips the modules, which the shared tracer does not watch at the
// beginning, nor at the end.
func stripBTF(t *testing.T) (stripped []string) {
	t.Helper()
	testenv.VM(t)
	endShared(t)
	stripped = testenv.StripBTF(t)
	t.Cleanup(func() { endShared(t) })
	return stripped
}

// These tests once more, with the RDMA and DRM modules stripped of their type
// information. What needs the arguments of a call, which hide behind the types of
// uverbs, says so in these tests themselves.
//
//testbed:machine fabric+EPYC+cold
//testbed:machine-arm64 fabric+cold
//testbed:kernel 7.2 6.12
func TestVMStrippedBTF(t *testing.T) {
	stripped := stripBTF(t)
	if out, err := exec.Command("sh", "-e", "-c", warmUp).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, m := range []string{"ib_core", "ib_uverbs", "rdma_rxe", "drm", "vgem", "softgpu", "testimporter", "testexporter"} {
		if _, err := os.Stat(filepath.Join("/sys/module", m)); err != nil || testenv.HasTypes(m) || !slices.Contains(stripped, m) {
			t.Errorf("%s: %v, has type information: %v", m, err, testenv.HasTypes(m))
		}
	}
	// Tests load these themselves.
	if out, err := exec.Command("modprobe", "-r", "-a", "softgpu", "testimporter", "testexporter").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Run("life", func(t *testing.T) {
		testenv.Rerun(t, "", "Lifetimes", "Refusals", "Loss", "TenThousand", "Reclaim", "KretprobesMissed", "Inventory")
	})
	t.Run("all", func(t *testing.T) {
		testenv.Rerun(t, "", "Register", "Filters", "Cgroup", "Walk", "WalkPages", "Rereg", "Exports")
	})
	t.Run("rows", func(t *testing.T) { testenv.Rerun(t, "", "SameErrno", "ScatterLists", "Bounced", "DisplayBAR") })
	t.Run("truth", func(t *testing.T) {
		if testenv.AtLeast(t, "7.2") {
			testenv.Rerun(t, "", "Truth", "Demotion", "Revoked")
		} else {
			testenv.Rerun(t, "", "TruthWithoutP2PDMA", "Pinned", "NestedAttach")
		}
	})
	hooksWithoutTypes(t, stripped)
	// Without the arguments of a call, the explanation does not guess which one is wrong.
	tr := shared(t)
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

// hooksWithoutTypes checks how the tracer watches modules that have none: an exporter
// has no hooks of its own, and the verdict needs none.
func hooksWithoutTypes(t *testing.T, stripped []string) {
	t.Helper()
	kprobes := 0
	for _, h := range shared(t).Hooks() {
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
}

// The same where an IOMMU translates, and with the real vfio-pci.
//
//testbed:machine fabric+EPYC+iommu
//testbed:machine-arm64 fabric+iommu
//testbed:kernel 7.2
func TestVMStrippedTranslated(t *testing.T) {
	stripBTF(t)
	testenv.Rerun(t, "", "Truth", "VFIO", "ScatterListsTranslated")
}

// And where no host bridge lets peer-to-peer pass.
//
//testbed:machine fabric+Nehalem
//testbed:machine-arm64 fabric
//testbed:kernel 7.2
func TestVMStrippedDetour(t *testing.T) {
	stripBTF(t)
	testenv.Rerun(t, "", "Detour")
}

// And with Debian's rxe, which has no operation for dma-bufs.
//
//testbed:kernel 7.2 6.12
func TestVMStockStripped(t *testing.T) {
	stripBTF(t)
	testenv.Rerun(t, "", "StockNoDriverOp")
}
