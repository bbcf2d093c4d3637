// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/fault"
	"github.com/gpurdma/gpurdma/ibvfd/gid"
	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// An MR allows what was asked for. Without anything: reading by this NIC.
func TestVMLeastAccess(t *testing.T) {
	pd := openPD(t)
	p := connect(t, pd, ibvfd.QPAttr{})
	all, amr := hostMR(t, pd, 4096)
	mem, err := hostmem.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, mem)
	buf := alloc(t, exporter, 1<<16, gpualloc.Options{})
	fill(mem.Bytes(), 3)
	if _, err := buf.WriteAt(mem.Bytes(), 0); err != nil {
		t.Fatal(err)
	}
	for name, attr := range map[string]ibvfd.MRAttr{
		"host":    {Kind: ibvfd.HostMemory, Host: mem.Bytes(), Length: 4096, Owner: mem},
		"dma-buf": {Kind: ibvfd.DMABufFD, Buf: segment(t, buf), Length: 4096, Owner: buf},
	} {
		t.Run(name, func(t *testing.T) {
			least, err := pd.RegMR(attr)
			if err != nil {
				t.Fatal(err)
			}
			defer closed(t, least)
			clear(all.Bytes())
			local := []ibvfd.SGE{{Addr: least.IOVA(), Length: 4096, LKey: least.LKey()}}
			far := []ibvfd.SGE{{Addr: amr.IOVA(), Length: 4096, LKey: amr.LKey()}}
			for _, c := range []struct {
				name string
				wr   ibvfd.SendWR
				want ibvfd.WCStatus
			}{
				{"READ by the peer", ibvfd.SendWR{Op: ibvfd.OpRead, SGE: far, RemoteAddr: least.IOVA(), RKey: least.RKey()}, ibvfd.WCRemAccessErr},
				{"WRITE by the peer", ibvfd.SendWR{Op: ibvfd.OpWrite, SGE: far, RemoteAddr: least.IOVA(), RKey: least.RKey()}, ibvfd.WCRemAccessErr},
				{"READ into it", ibvfd.SendWR{Op: ibvfd.OpRead, SGE: local, RemoteAddr: amr.IOVA(), RKey: amr.RKey()}, ibvfd.WCLocProtErr},
				{"WRITE out of it", ibvfd.SendWR{Op: ibvfd.OpWrite, SGE: local, RemoteAddr: amr.IOVA(), RKey: amr.RKey()}, ibvfd.WCSuccess},
			} {
				if w := p.do(t, c.wr); w.Status != c.want {
					t.Errorf("%s: %v, want %v", c.name, w.Status, c.want)
				}
				if err := p.reconnect(); err != nil {
					t.Fatal(err)
				}
			}
			if !bytes.Equal(all.Bytes(), mem.Bytes()) {
				t.Error("the bytes did not arrive")
			}
		})
	}
}

// Relaxed ordering is optional: a NIC without it registers and moves data all
// the same.
func TestVMRelaxedOrdering(t *testing.T) {
	pd := openPD(t)
	p := connect(t, pd, ibvfd.QPAttr{})
	mem, err := hostmem.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, mem)
	fill(mem.Bytes(), 4)
	host, err := pd.RegMR(ibvfd.MRAttr{Kind: ibvfd.HostMemory, Host: mem.Bytes(), Length: 4096, Access: localWrite | ibvfd.AccessOptional, Owner: mem})
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, host)
	buf := alloc(t, exporter, 1<<16, gpualloc.Options{})
	mr, err := pd.RegMR(ibvfd.MRAttr{Kind: ibvfd.DMABufFD, Buf: segment(t, buf), Length: 1 << 16, Access: allRemote | ibvfd.AccessRelaxedOrdering, Owner: buf})
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, mr)
	if got := p.write1(t, host, mr, 4096); got != ibvfd.WCSuccess {
		t.Fatal(got)
	}
	got := make([]byte, 4096)
	if _, err := buf.ReadAt(got, 0); err != nil || !bytes.Equal(got, mem.Bytes()) {
		t.Errorf("the bytes did not arrive: %v", err)
	}
}

// No peer-memory client is registered in a kernel without such drivers: a
// device pointer is refused before the library is called.
func TestVMDevicePointer(t *testing.T) {
	pd := openPD(t)
	clients, err := ibvfd.PeerClients("")
	if err != nil || clients != nil {
		t.Fatalf("%v, %v", clients, err)
	}
	mr, err := pd.RegMR(ibvfd.MRAttr{Kind: ibvfd.DevicePointer, Pointer: 0x7000_0000_0000_0000, Length: 4096})
	if e := asRegError(t, err); e.Cause != fault.CauseNoPeerClient || e.Latest != fault.StageArgs || !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("%v, %v", mr, err)
	}
}

// The GID table of a real port.
func TestVMGIDWish(t *testing.T) {
	c := openNIC(t)
	// Of partitions RoCE has the default one.
	if index, err := c.PKeyIndex(1, 0xffff); index != 0 || err != nil {
		t.Errorf("the default partition is at %d, %v", index, err)
	}
	if _, err := c.PKeyIndex(1, 0x8012); !errors.Is(err, unix.ENOENT) || !strings.Contains(err.Error(), "0xffff at 0") {
		t.Errorf("a partition that the port is not in: %v", err)
	}
	choose := func(w gid.Wish, addr, words string) { t.Helper(); chooses(t, c, w, addr, words) }
	choose(gid.Wish{Peer: netip.MustParseAddr("10.9.0.77")}, "10.9.0.1", "RoCE v2, IPv4, 25 bits in common with the peer 10.9.0.77")
	choose(gid.Wish{NetDev: "dummy0", Family: gid.IPv4}, "10.9.0.1", "on dummy0")
	choose(gid.Wish{VLAN: gid.Untagged, Subnet: netip.MustParsePrefix("10.9.0.0/24")}, "10.9.0.1", "in 10.9.0.0/24")
	if _, _, err := c.ChooseGID(1, gid.Wish{Peer: netip.MustParseAddr("2001:db8::1")}); !errors.Is(err, gid.ErrNone) || !strings.Contains(err.Error(), "and the peer 2001:db8::1 is") {
		t.Errorf("an IPv6 peer: %v", err)
	}
	if _, _, err := c.ChooseGID(9, gid.Wish{}); err == nil || errors.Is(err, unix.EADDRNOTAVAIL) {
		t.Errorf("port 9: %v", err)
	}
}

// A VLAN's GIDs, by its number, its device, and the peer's address.
func TestVMGIDWishOnVLAN(t *testing.T) {
	ip := func(args ...string) error {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %v: %w: %s", args, err, out)
		}
		return nil
	}
	testenv.Need(t, "VLAN devices (8021q)", "6.1", func() error {
		_ = exec.Command("modprobe", "8021q").Run() // ip says it if that failed
		return ip("link", "add", "link", "dummy0", "name", "dummy0.5", "type", "vlan", "id", "5")
	})
	defer func() { _ = exec.Command("ip", "link", "delete", "dummy0.5").Run() }()
	if err := errors.Join(ip("addr", "add", "10.9.5.1/24", "dev", "dummy0.5"), ip("link", "set", "dummy0.5", "up")); err != nil {
		t.Fatal(err)
	}
	c := openNIC(t)
	eventually(t, func() bool {
		_, _, err := c.ChooseGID(1, gid.Wish{NetDev: "dummy0.5", Family: gid.IPv4})
		return err == nil
	})
	choose := func(w gid.Wish, addr, words string) { t.Helper(); chooses(t, c, w, addr, words) }
	choose(gid.Wish{VLAN: 5, Family: gid.IPv4}, "10.9.5.1", "on dummy0.5, VLAN 5")
	choose(gid.Wish{Peer: netip.MustParseAddr("10.9.5.9")}, "10.9.5.1", "28 bits")
	choose(gid.Wish{VLAN: gid.Untagged, Family: gid.IPv4}, "10.9.0.1", "")
}

func chooses(t testing.TB, c *ibvfd.Context, w gid.Wish, addr, words string) {
	t.Helper()
	g, why, err := c.ChooseGID(1, w)
	if err != nil || g.Addr().String() != addr || !strings.Contains(why, words) {
		t.Errorf("%+v: %v (%s), %v; want %s, %q", w, g, why, err, addr, words)
	}
}
