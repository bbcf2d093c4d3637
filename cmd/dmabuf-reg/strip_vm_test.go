// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os/exec"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

// warmUp gives a cold machine what the default one has.
const warmUp = `
modprobe crc32_generic || true
modprobe drm_kms_helper fbdev_emulation=0
modprobe -a vgem virtio-gpu ib_uverbs rdma_ucm rdma_rxe
modprobe dummy numdummies=0
ip link add dummy0 type dummy
ip link set dummy0 mtu 4200 up
ip address add 10.9.0.1/24 dev dummy0
rdma link add rxe0 type rxe netdev dummy0
`

// The command traces with RDMA and DRM modules that have no type information, as those of
// vendors' driver packages: programs that are not changed for it, from their start and
// while they run, modules that are loaded later, and containers.
//
//testbed:machine fabric+EPYC+cold
//testbed:machine-arm64 fabric+cold
//testbed:kernel 6.12
func TestVMStrippedBTF(t *testing.T) {
	testenv.StripBTF(t)
	t.Cleanup(func() { // first: its device goes with it
		if out, err := exec.Command("ip", "link", "delete", "dummy0").CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	if out, err := exec.Command("sh", "-e", "-c", warmUp).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, tests := range [][]string{
		{"TraceForeign", "ExplainForeign", "TraceInContainer"},
		{"TraceInTheMiddle", "TraceForeignInTheMiddle"},
		{"RegisterTraced", "TraceModuleComesLater"},
	} {
		t.Run(tests[0], func(t *testing.T) { testenv.Rerun(t, "", tests...) })
	}
}

//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 6.12
func TestVMStrippedLocate(t *testing.T) {
	testenv.StripBTF(t)
	testenv.Rerun(t, "", "LocateWithoutP2PDMA")
}
