// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/files"
	"github.com/gpurdma/gpurdma/internal/rdmanl"
	"github.com/gpurdma/gpurdma/internal/sysfs"
	"github.com/gpurdma/gpurdma/pciaddr"
)

func gidOf(t *testing.T, text string) [16]byte {
	t.Helper()
	gid, err := parseGID(text, nil)
	if err != nil {
		t.Fatal(err)
	}
	return gid
}

func TestDevices(t *testing.T) {
	sys := deviceTree(t)
	got, err := Devices(sys.Root())
	if err != nil {
		t.Fatal(err)
	}
	v1, v2 := gidOf(t, "fe80:0000:0000:0000:0011:22ff:fe33:4455"), gidOf(t, "0000:0000:0000:0000:0000:ffff:0a09:0001")
	want := []DeviceInfo{{
		Name: "roce0", Uverbs: "/dev/infiniband/uverbs3", Kind: "CA", NodeGUID: "0011:22ff:fe33:4455", NetDevs: []string{"eth7"},
		Ports: []PortInfo{{
			Num: 1, State: PortActive, MTU: 1024, LinkLayer: LinkEthernet,
			GIDs: []GID{{0, v1, GIDRoCEv1, "eth7", 0}, {1, v2, GIDRoCEv2, "eth7", 0}},
		}},
	}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	brief, err := DevicesWithoutGIDs(sys.Root())
	if err != nil {
		t.Fatal(err)
	}
	want[0].NetDevs, want[0].Ports = []string{}, []PortInfo{{Num: 1, State: PortActive, LinkLayer: LinkEthernet, GIDs: []GID{}}}
	if d := cmp.Diff(want, brief); d != "" {
		t.Errorf("without GIDs: %s", d)
	}
	raw, err := json.Marshal(got[0].Ports[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`"state":"active"`, `"link_layer":"Ethernet"`, `"gid":"0000:0000:0000:0000:0000:ffff:0a09:0001"`, `"type":"RoCE v2"`} {
		if !strings.Contains(string(raw), part) {
			t.Errorf("%s has no %s", raw, part)
		}
	}
	if list, err := Devices(t.TempDir()); list != nil || err != nil {
		t.Errorf("a machine without RDMA: %v, %v", list, err)
	}
}

// A device whose ports cannot be read is there, and hides no other.
func TestDevicesUnreadable(t *testing.T) {
	root := deviceTree(t).Root()
	ports := filepath.Join(root, "class/infiniband/another0/ports")
	if err := errors.Join(os.MkdirAll(filepath.Dir(ports), 0o755), os.Symlink("ports", ports)); err != nil {
		t.Fatal(err)
	}
	list, err := Devices(root)
	if err == nil || len(list) != 2 || list[0].Name != "another0" || len(list[0].Ports) != 0 || list[1].Name != "roce0" || len(list[1].Ports) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
}

// A device on PCI has its address and driver through links; software ones are
// told by their attribute "parent".
// A device that cannot be looked at is not one that is gone.
func TestDeviceThatCannotBeLookedAt(t *testing.T) {
	sys := deviceTree(t)
	files.Before = func(name string) error {
		if name == sys.Path(classDir, "roce0") {
			return unix.EIO
		}
		return nil
	}
	defer func() { files.Before = nil }()
	list, err := DevicesWithoutGIDs(sys.Root())
	if !errors.Is(err, unix.EIO) || !slices.ContainsFunc(list, func(d DeviceInfo) bool { return d.Name == "roce0" }) {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestDeviceLinks(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	link := func(target, name string) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, path); err != nil {
			t.Fatal(err)
		}
	}
	const fn = "devices/pci0000:00/0000:00:01.0/0000:03:00.1"
	write(fn+"/infiniband/mlx5_1/node_type", "1: CA")
	write(fn+"/infiniband/mlx5_1/ports/1/link_layer", "InfiniBand")
	write(fn+"/infiniband/mlx5_1/ports/1/state", "1: DOWN")
	write("bus/pci/drivers/mlx5_core/bind", "")
	link("../../../../bus/pci/drivers/mlx5_core", fn+"/driver")
	link("../..", fn+"/infiniband/mlx5_1/device")
	link("../../"+fn+"/infiniband/mlx5_1", "class/infiniband/mlx5_1")
	write("class/infiniband/rxe7/node_type", "1: CA")
	write("class/infiniband/rxe7/parent", "eth0")
	write("class/infiniband/siw7/node_type", "4: RNIC")
	write("class/infiniband/siw7/parent", "lo")

	list, err := Devices(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 3 {
		t.Fatalf("%+v", list)
	}
	m, r, s := list[0], list[1], list[2]
	addr := pciaddr.Addr{Bus: 3, Function: 1}
	if m.PCI == nil || *m.PCI != addr || m.Driver != "mlx5_core" || m.Kind != "CA" || m.Uverbs != "" || m.Software() {
		t.Errorf("mlx5_1: %+v", m)
	}
	if len(m.Ports) != 1 || m.Ports[0].State != PortDown || m.Ports[0].LinkLayer != LinkInfiniBand {
		t.Errorf("mlx5_1: %+v", m.Ports)
	}
	if r.Kind != "rxe" || r.Driver != "rdma_rxe" || !r.Software() || !reflect.DeepEqual(r.NetDevs, []string{"eth0"}) {
		t.Errorf("rxe7: %+v", r)
	}
	if s.Kind != "siw" || !s.Software() {
		t.Errorf("siw7: %+v", s)
	}
}

func TestChooseGID(t *testing.T) {
	v6, local, v4 := gidOf(t, "2001:0db8:0000:0000:0000:0000:0000:0001"), gidOf(t, "fe80:0000:0000:0000:0000:0000:0000:0001"), gidOf(t, "0000:0000:0000:0000:0000:ffff:0a09:0001")
	for _, c := range []struct {
		name  string
		table []GID
		link  LinkLayer
		want  int // -1: none
	}{
		{"v2 over v1", []GID{{Index: 0, GID: v4, Type: GIDRoCEv1}, {Index: 1, GID: v6, Type: GIDRoCEv2}}, LinkEthernet, 1},
		{"IPv4 over IPv6", []GID{{Index: 0, GID: v6, Type: GIDRoCEv2}, {Index: 1, GID: v4, Type: GIDRoCEv2}}, LinkEthernet, 1},
		{"routable over link-local", []GID{{Index: 0, GID: local, Type: GIDRoCEv2}, {Index: 4, GID: v6, Type: GIDRoCEv2}}, LinkEthernet, 4},
		{"the first of equals", []GID{{Index: 3, GID: v6, Type: GIDRoCEv2}, {Index: 4, GID: v6, Type: GIDRoCEv2}}, LinkEthernet, 3},
		{"only v1", []GID{{Index: 2, GID: local, Type: GIDRoCEv1}}, LinkEthernet, 2},
		{"InfiniBand", []GID{{Index: 0, GID: local, Type: GIDInfiniBand}, {Index: 1, GID: v6, Type: GIDInfiniBand}}, LinkInfiniBand, 0},
		{"unknown type", []GID{{Index: 0, GID: v4, Type: GIDUnknown}}, LinkEthernet, -1},
		{"zero", []GID{{Index: 0, Type: GIDRoCEv2}}, LinkEthernet, -1},
		{"empty", nil, LinkEthernet, -1},
	} {
		g, why, err := ChooseGID(c.table, c.link)
		if c.want < 0 {
			if !errors.Is(err, ErrNoGID) {
				t.Errorf("%s: %v, %v; want ErrNoGID", c.name, g, err)
			}
			continue
		}
		if err != nil || g.Index != c.want || why == "" {
			t.Errorf("%s: %v (%q), %v; want index %d", c.name, g, why, err, c.want)
		}
	}
}

func TestMTU(t *testing.T) {
	for bytes, enum := range map[int]int{0: 0, 255: 0, 256: 1, 512: 2, 1023: 2, 1024: 3, 2048: 4, 4096: 5, 9000: 5} {
		if got := mtuEnum(bytes); got != enum {
			t.Errorf("mtuEnum(%d) = %d, want %d", bytes, got, enum)
		}
	}
	for enum, bytes := range map[int]int{0: 0, 1: 256, 5: 4096, 6: 0, -1: 0} {
		if got := mtuBytes(enum); got != bytes {
			t.Errorf("mtuBytes(%d) = %d, want %d", enum, got, bytes)
		}
	}
}

func TestProbe(t *testing.T) {
	sys := deviceTree(t)
	noLib := func() (verbs, error) { return nil, ErrNoLibrary }
	// The node does not exist here: the kernel's side stays unknown.
	s, err := probe("roce0", sys, &kernel{}, noLib)
	if err != nil || s.DMABufKernel != Unknown || s.Errno != unix.ENOENT || s.ProviderReason != ErrNoLibrary.Error() || s.Remedy == "" {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := probe("none0", sys, &kernel{}, noLib); !errors.Is(err, ErrNoDevice) {
		t.Errorf("no device: %v", err)
	}
	// Through the library both sides can be told.
	for _, c := range []struct {
		name             string
		kernel           func(int32) unix.Errno
		provider         error
		wantK, wantP     Answer
		errno            unix.Errno
		providerMentions string
	}{
		{"both", always(0), unix.EBADF, Yes, Yes, unix.EBADF, "reached the driver"},
		{"kernel only", always(0), unix.EOPNOTSUPP, Yes, No, unix.EBADF, "lacks the op"},
		{"old library", always(0), errNoSymbol, Yes, No, unix.EBADF, "rdma-core 34"},
		{"no driver op", func(int32) unix.Errno { return unix.EOPNOTSUPP }, unix.EOPNOTSUPP, No, Unknown, unix.EOPNOTSUPP, "told apart"},
		{"no method", func(int32) unix.Errno { return unix.EPROTONOSUPPORT }, unix.EPROTONOSUPPORT, No, Unknown, unix.EPROTONOSUPPORT, "told apart"},
		{"524", func(int32) unix.Errno { return 524 }, unix.Errno(524), Unknown, Unknown, 524, "told apart"},
		{"not permitted", func(int32) unix.Errno { return unix.EPERM }, unix.EPERM, Unknown, Unknown, unix.EPERM, "told apart"},
		{"accepted", func(int32) unix.Errno { return 0 }, unix.EIO, Unknown, Unknown, 0, "EIO"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := newScript()
			v.provider = func(int) error { return c.provider }
			k := &kernel{driver: 2, reg: c.kernel}
			s, err := probe("roce0", sys, k, func() (verbs, error) { return v, nil })
			if err != nil || s.DMABufKernel != c.wantK || s.DMABufProvider != c.wantP || s.Errno != c.errno || s.Reason == "" || !strings.Contains(s.ProviderReason, c.providerMentions) {
				t.Errorf("%+v, %v", s, err)
			}
			v.nothingLeft(t)
			if k.live != 0 {
				t.Errorf("%d MRs left", k.live)
			}
		})
	}
}

func TestMRNumbers(t *testing.T) {
	s, k := newScript(), &kernel{reg: always(0)}
	pd := scripted(t, s, k)
	reg := func() *MR {
		t.Helper()
		mem, err := AllocHost(1)
		if err != nil {
			t.Fatal(err)
		}
		mr, err := pd.RegMR(MRAttr{Kind: HostMemory, Host: mem.Bytes(), Length: 1, Owner: mem})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := errors.Join(mr.Close(), mem.Close()); err != nil {
				t.Error(err)
			}
		})
		return mr
	}
	var table []rdmanl.MR
	dumps := 0
	pd.ctx.numbers.dump = func(string) ([]rdmanl.MR, error) {
		dumps++
		if table == nil {
			return nil, unix.EPERM
		}
		return table, nil
	}
	me := rdmanl.Owner{PID: uint32(os.Getpid())}
	entry := func(mr *MR, number uint32) rdmanl.MR {
		return rdmanl.MR{Owner: me, Number: number, LKey: mr.LKey(), RKey: mr.RKey(), KeysKnown: true}
	}
	a, b := reg(), reg()
	if id := a.ID(); id.NumberKnown {
		t.Errorf("without netlink: %+v", id)
	}
	c := reg()
	stranger := entry(c, 9)
	stranger.PID = 1 << 22 // above any thread of ours
	hidden := entry(b, 8)
	hidden.KeysKnown = false
	table = []rdmanl.MR{entry(a, 7), hidden, stranger}
	for _, w := range []struct {
		mr     *MR
		number uint32
		known  bool
	}{{c, 0, false}, {a, 7, true}, {b, 0, false}} {
		if id := w.mr.ID(); id.Number != w.number || id.NumberKnown != w.known || id.Handle != w.mr.reg().made.handle {
			t.Errorf("%+v, want %d, %v", id, w.number, w.known)
		}
	}
	if dumps != 2 {
		t.Errorf("%d dumps, want one for each time something new was asked about", dumps)
	}
	d := reg()
	table = append(table, entry(d, 10), entry(d, 11)) // two MRs with the same keys
	if id := d.ID(); id.NumberKnown {
		t.Errorf("ambiguous keys: %+v", id)
	}
}

func TestGIDTableErrors(t *testing.T) {
	for _, text := range []string{"", "zz", "fe80::1"} {
		if _, err := parseGID(text, nil); err == nil {
			t.Errorf("parseGID(%q) succeeded", text)
		}
	}
	if _, err := readGIDs(sysfs.New(t.TempDir()), "none", 1); err == nil {
		t.Error("no table, no error")
	}
}

func TestNames(t *testing.T) {
	for got, want := range map[string]string{
		Access(0).String():                            "none",
		(AccessLocalWrite | 1<<30).String():           "local-write|0x40000000",
		(AccessRemoteRead | AccessZeroBased).String(): "remote-read|zero-based",
		StageAttach.String():                          "attach",
		Stage(99).String():                            "Stage(99)",
		CauseNoDriverOp.String():                      "no driver op",
		CausePinned.String():                          "pinned for another importer",
		WCRemAccessErr.String():                       "remote access error",
		Cause(-1).String():                            "Cause(-1)",
		StateRTS.String():                             "RTS",
		OpFetchAdd.String():                           "fetch-and-add",
		(&WCError{Status: WCRetryExcErr}).Error():     "work completion: transport retry counter exceeded (status 12)",
		GIDUnknown.String():                           "unknown",
		LinkInfiniBand.String():                       "InfiniBand",
		QPType(9).String():                            "QPType(9)",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if len(causeNames) != int(CauseUnreachable)+1 || len(stageNames) != int(StageDriver)+1 || len(wcStatusNames) != int(WCTMRndvIncomplete)+1 {
		t.Error("a name is missing")
	}
}
