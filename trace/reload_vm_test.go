// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

// The modules of the default machine's RDMA device, taken away and brought back.
const (
	dropRDMA = `
rdma link delete rxe0
modprobe -r rdma_rxe
modprobe -r -a rdma_ucm ib_umad || true
modprobe -r ib_uverbs || true # it may have gone with those
test ! -e /sys/module/ib_uverbs
`
	bringRDMA = `
modprobe -a ib_uverbs rdma_ucm rdma_rxe
modprobe ib_umad || true
rdma link add rxe0 type rxe netdev dummy0
`
)

func sh(t *testing.T, script string) {
	t.Helper()
	if out, err := exec.Command("sh", "-e", "-c", script).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// noRDMA takes the RDMA device and its modules away for the time of a test.
func noRDMA(t *testing.T) {
	t.Helper()
	testenv.VM(t)
	if theTracer != nil { // it holds them
		if err := theTracer.Close(); err != nil {
			t.Error(err)
		}
		theTracer = nil
	}
	sh(t, dropRDMA)
	t.Cleanup(func() { sh(t, "test -e /dev/infiniband/uverbs0 || {"+bringRDMA+"}") })
}

// ib_uverbs comes while the tracer opens: after the kernel's symbols were looked
// through, and before the program that sees modules come.
func TestVMUverbsComesMeanwhile(t *testing.T) {
	noRDMA(t)
	c := mine()
	c.meanwhile = func() { sh(t, bringRDMA) }
	tr := open(t, c)
	if !tr.RDMA() {
		t.Error("RDMA is not attached")
	}
	registeredBy(t, tr)
	// What is attached to by its types stays.
	if err := unix.DeleteModule("ib_core", unix.O_NONBLOCK); err == nil {
		t.Error("ib_core went")
	}
}
