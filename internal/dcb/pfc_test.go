// SPDX-License-Identifier: Apache-2.0

package dcb

import (
	"errors"
	"slices"
	"testing"

	"github.com/mdlayher/netlink"
	"github.com/mdlayher/netlink/nltest"
	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// answer is what a driver with PFC and ETS says.
func answer(t *testing.T, pfc []byte) []byte {
	t.Helper()
	e := netlink.NewAttributeEncoder()
	e.String(attrIfname, "eth0")
	e.Nested(attrIEEE, func(e *netlink.AttributeEncoder) error {
		e.Bytes(1, make([]byte, 60))
		if pfc != nil {
			e.Bytes(attrIEEEPFC, pfc)
		}
		return nil
	})
	b, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte{unix.AF_UNSPEC, cmdIEEEGet, 0, 0}, b...)
}

func TestPFC(t *testing.T) {
	whole := make([]byte, 136)
	whole[0], whole[1] = 8, 1<<3|1<<6
	for name, c := range map[string]struct {
		data []byte
		err  error
		want []int
		bad  bool
	}{
		"two priorities": {data: answer(t, whole), want: []int{3, 6}},
		"off":            {data: answer(t, make([]byte, 136))},
		"ETS only":       {data: answer(t, nil), bad: true},
		"short":          {data: answer(t, []byte{8}), bad: true},
		"no header":      {data: []byte{0}, bad: true},
		"no such device": {err: unix.ENODEV, bad: true},
		"noise":          {data: []byte{0, cmdIEEEGet, 0, 0, 9, 0, 13, 0x80, 1}, bad: true},
	} {
		conn := nltest.Dial(func(req []netlink.Message) ([]netlink.Message, error) {
			if m := req[0]; m.Header.Type != unix.RTM_GETDCB || m.Data[1] != cmdIEEEGet || string(m.Data[8:12]) != "eth0" {
				t.Errorf("%s: asked by %+v", name, m)
			}
			if c.err != nil {
				return nltest.Error(int(c.err.(unix.Errno)), req)
			}
			return []netlink.Message{{Header: netlink.Header{Type: unix.RTM_GETDCB, Sequence: req[0].Header.Sequence, PID: req[0].Header.PID}, Data: c.data}}, nil
		})
		p, err := pfc(conn, "eth0")
		if !slices.Equal(p.List(), c.want) || (err != nil) != c.bad || c.err != nil && !errors.Is(err, c.err) {
			t.Errorf("%s: %v, %v", name, p.List(), err)
		}
		conn.Close()
	}
}

// The kernel understands the request: it knows which devices there are, and that
// these have no DCB.
func TestVMPFC(t *testing.T) {
	testenv.VM(t)
	if _, err := PFC("none7"); errors.Is(err, unix.EOPNOTSUPP) {
		t.Skip("the kernel is built without CONFIG_DCB")
	}
	for netdev, want := range map[string]unix.Errno{"dummy0": unix.EOPNOTSUPP, "lo": unix.EOPNOTSUPP, "none7": unix.ENODEV} {
		if p, err := PFC(netdev); !errors.Is(err, want) {
			t.Errorf("%s: %v, %v; want %v", netdev, p, err, want)
		}
	}
}
