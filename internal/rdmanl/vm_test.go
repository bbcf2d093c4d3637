// SPDX-License-Identifier: Apache-2.0

package rdmanl

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func dial(t *testing.T) *Client {
	t.Helper()
	testenv.VM(t)
	c, err := Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestVMDevicesAndLinks(t *testing.T) {
	c := dial(t)
	devices, err := c.Devices()
	if err != nil {
		t.Fatal(err)
	}
	if len(devices) == 0 || devices[0].Name != "rxe0" || devices[0].Ports != 1 || devices[0].NodeGUID == 0 {
		t.Fatalf("Devices() = %+v, want rxe0 with one port", devices)
	}
	links, err := c.Links("rxe0")
	if err != nil {
		t.Fatal(err)
	}
	if len(links) != 1 || links[0].NetDev != "dummy0" || links[0].State != 4 || links[0].Port != 1 {
		t.Errorf("Links(rxe0) = %+v, want an active one on dummy0", links)
	}
}

// The kernel itself opens QP 1, its CQ and PD on every RoCE device (the CM's),
// so that the dumps have something to show.
func TestVMResources(t *testing.T) {
	c := dial(t)
	sum, err := c.Summary("rxe0")
	if err != nil {
		t.Fatal(err)
	}
	qps, err := c.QPs("rxe0")
	if err != nil {
		t.Fatal(err)
	}
	cqs, err := c.CQs("rxe0")
	if err != nil {
		t.Fatal(err)
	}
	pds, err := c.PDs("rxe0")
	if err != nil {
		t.Fatal(err)
	}
	mrs, err := c.MRs("rxe0")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("summary %v\nQPs %+v\nCQs %+v\nPDs %+v\nMRs %+v", sum, qps, cqs, pds, mrs)
	for kind, n := range map[string]int{"qp": len(qps), "cq": len(cqs), "pd": len(pds), "mr": len(mrs)} {
		if int(sum[kind]) != n {
			t.Errorf("%d %ss dumped, the summary has %d", n, kind, sum[kind])
		}
	}
	if len(qps) == 0 || qps[0].Kernel == "" || qps[0].PID != 0 {
		t.Errorf("QPs %+v, want the kernel's own", qps)
	}
}

func TestVMNoSuchDevice(t *testing.T) {
	c := dial(t)
	if _, err := c.MRs("no-such"); !errors.Is(err, ErrNoDevice) {
		t.Errorf("MRs(no-such): %v, want ErrNoDevice", err)
	}
	// The kernel's own answer to a device index that is not there.
	req, err := deviceAttr(1 << 30)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.dump(cmdResMRGet, req, nil); !errors.Is(err, unix.EINVAL) {
		t.Errorf("dump of device 1<<30: %v, want EINVAL", err)
	}
}
