// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"os/exec"
	"testing"
	"time"

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
	c.tests.Meanwhile = func() { sh(t, bringRDMA) }
	tr := open(t, c)
	if !tr.RDMA() {
		t.Error("RDMA is not attached")
	}
	registeredBy(t, tr)
	// fentry and fexit programs keep their module loaded.
	if err := unix.DeleteModule("ib_core", unix.O_NONBLOCK); err == nil {
		t.Error("ib_core went")
	}
}

// A kprobe does not keep its module loaded. The tracer attaches again to a module that is
// unloaded and loaded again, as when a vendor's stack is restarted.
func TestVMReloadedWithoutBTF(t *testing.T) {
	noRDMA(t)
	sh(t, bringRDMA)
	c := mine()
	c.tests.RDMAWithoutBTF = true
	tr := open(t, c)
	registers(t, tr)
	watched := probes(tr)
	for range 2 {
		sh(t, dropRDMA)
		sh(t, bringRDMA)
		for ctx := within(t); ; time.Sleep(10 * time.Millisecond) {
			if tr.loader.RDMACurrent() {
				break
			}
			if ctx.Err() != nil {
				t.Fatalf("it was not attached to again: %v", tr.Unreadable())
			}
		}
		registers(t, tr)
		if got := probes(tr); got != watched || got < 8 || !tr.RDMA() {
			t.Errorf("%d kprobes, %d before; RDMA: %v", got, watched, tr.RDMA())
		}
	}
	if l := tr.Loss(); l.Any() {
		t.Error(l)
	}
	if why := tr.Unreadable(); len(why) > 0 {
		t.Error(why)
	}
}

func probes(tr *Tracer) (n int) {
	for _, h := range tr.Hooks() {
		if h.How == "kprobe" || h.How == "kretprobe" {
			n++
		}
	}
	return n
}

// The reader does not wait until programs are attached to a module's functions. Close does.
func TestVMReaderGoesOn(t *testing.T) {
	c, goOn := mine(), make(chan struct{})
	c.tests.ModuleCame = func() { <-goOn } // as if it took long
	tr := open(t, c)
	sh(t, "modprobe -r tun")
	sh(t, "modprobe tun")
	if err := tr.Flush(within(t)); err != nil { // now it has read of it
		t.Errorf("the reader stands still: %v", err)
	}
	registeredBy(t, tr)
	closed := make(chan error)
	go func() { closed <- tr.Close() }()
	select {
	case err := <-closed:
		t.Errorf("closed while programs are attached: %v", err)
	case <-tr.loader.Stopped():
	}
	close(goOn)
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// registers registers a buffer with a device that is closed again: one that is open
// keeps its module.
func registers(t *testing.T, tr *Tracer) {
	t.Helper()
	t.Run("registers", func(t *testing.T) { registeredBy(t, tr) })
}
