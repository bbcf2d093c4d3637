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

func TestVMDevices(t *testing.T) {
	c := dial(t)
	devices, err := c.Devices()
	if err != nil {
		t.Fatal(err)
	}
	if len(devices) == 0 || devices[0].Name != "rxe0" || devices[0].Ports != 1 || devices[0].NodeGUID == 0 {
		t.Fatalf("Devices() = %+v, want rxe0 with one port", devices)
	}
}

// The kernel itself opens QP 1, its CQ and PD on every RoCE device (the CM's),
// so that the summary has something to show.
func TestVMResources(t *testing.T) {
	c := dial(t)
	sum, err := c.Summary("rxe0")
	if err != nil {
		t.Fatal(err)
	}
	mrs, err := c.MRs("rxe0")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("summary %v\nMRs %+v", sum, mrs)
	if int(sum["mr"]) != len(mrs) {
		t.Errorf("%d MRs dumped, the summary has %d", len(mrs), sum["mr"])
	}
	for _, kind := range []string{"qp", "cq", "pd"} {
		if sum[kind] == 0 {
			t.Errorf("no %s in %v", kind, sum)
		}
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
