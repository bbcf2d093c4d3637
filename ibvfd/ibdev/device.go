// SPDX-License-Identifier: Apache-2.0

package ibdev

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/internal/sysfs"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// ErrNoDevice means that there is no RDMA device of that name. Read, Look and
// Nearest return it.
var ErrNoDevice = errors.New("no such RDMA device")

// failed is the module's error with this room's usual parts.
func failed(op, device string, err error) *failure.Error {
	return &failure.Error{Op: op, Device: device, Err: err}
}

// Info has the attributes of an RDMA device that sysfs shows.
type Info struct {
	Name string `json:"name"` // "mlx5_0", "rxe0"
	// Uverbs is the device node, "/dev/infiniband/uverbs0". There is none if ib_uverbs does not serve
	// the device.
	Uverbs   string        `json:"uverbs,omitempty"`
	Driver   string        `json:"driver"`        // the kernel driver: "mlx5_core", "rdma_rxe"; "" if not known
	Kind     string        `json:"kind"`          // "CA", "RNIC" and so on; "rxe" and "siw" are software
	NodeGUID string        `json:"node_guid"`     // the node GUID: "506b:4b03:00f3:b8a2"
	NetDevs  []string      `json:"netdevs"`       // the network devices of its ports
	PCI      *pciaddr.Addr `json:"pci,omitempty"` // the PCI address of the function behind it
	Ports    []Port        `json:"ports"`         // the ports of the device
}

// Port has the attributes of a port that sysfs shows.
type Port struct {
	Num       int       `json:"num"`        // the number of the port, from 1 on
	State     PortState `json:"state"`      // the state of the port
	MTU       int       `json:"mtu"`        // the MTU in bytes; 0 if sysfs does not tell (the network device's bounds it)
	LinkLayer LinkLayer `json:"link_layer"` // the port's link layer
	GIDs      []GID     `json:"gids"`       // the port's GID table, without empty entries
}

// Software reports whether the device is emulated by the CPU.
func (d Info) Software() bool { return d.Kind == "rxe" || d.Kind == "siw" }

// List lists the RDMA devices in natural order of their names. sys is the
// root of sysfs, "" for /sys. It needs neither libibverbs nor privileges. No
// devices is no error. Beside an error the list has what could be read.
func List(sys string) ([]Info, error) { return devices(sysfs.New(sys), read) }

// ListWithoutGIDs is [List] without the GID tables, for which sysfs has about a
// thousand files for each port, and without the network devices and MTUs that only
// GIDs lead to. It is enough to choose a device by its name, state and place.
func ListWithoutGIDs(sys string) ([]Info, error) {
	return devices(sysfs.New(sys), look)
}

func devices(s sysfs.FS, each func(s sysfs.FS, name string) (Info, error)) ([]Info, error) {
	names, err := s.List(classDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // ib_core is not loaded
	}
	if err != nil {
		return nil, failed("list RDMA devices", s.Path(classDir), err)
	}
	if len(names) > mostDevices {
		return nil, failed("list RDMA devices", s.Path(classDir), fmt.Errorf("it has %d, and no machine has more than %d", len(names), mostDevices))
	}
	var list []Info
	var errs []error
	for _, name := range names {
		info, err := each(s, name)
		if errors.Is(err, ErrNoDevice) {
			continue // removed meanwhile
		}
		// One that cannot be read in full hides no other.
		errs = append(errs, err)
		list = append(list, info)
	}
	return list, errors.Join(errs...)
}

const classDir = "class/infiniband"

// mostDevices is more than the virtual functions of all NICs of a machine.
const mostDevices = 4000

// Read reads the attributes of one device. sys is the root of sysfs, "" for /sys.
func Read(sys, name string) (Info, error) { return read(sysfs.New(sys), name) }

// Look is [Read] without the GID tables, and without what only those lead to.
func Look(sys, name string) (Info, error) { return look(sysfs.New(sys), name) }

// read reads all there is.
func read(s sysfs.FS, name string) (Info, error) {
	d, err := look(s, name)
	if err != nil {
		return d, err
	}
	for i := range d.Ports {
		p := &d.Ports[i]
		if gids, err := gids(s, name, p.Num); err == nil {
			p.GIDs = gids
		}
		for _, g := range p.GIDs {
			if g.NetDev != "" && !slices.Contains(d.NetDevs, g.NetDev) {
				d.NetDevs = append(d.NetDevs, g.NetDev)
			}
		}
		if p.MTU == 0 {
			p.MTU = mtuFromNetDevs(s, d.NetDevs)
		}
	}
	return d, nil
}

// look reads what is quick to read: not the GID tables.
func look(s sysfs.FS, name string) (Info, error) {
	dir := path.Join(classDir, name)
	err := s.Look(dir)
	if name == "" || strings.ContainsRune(name, '/') || errors.Is(err, fs.ErrNotExist) {
		return Info{}, noDevice(s, name)
	}
	d := Info{Name: name, NetDevs: []string{}, Ports: []Port{}}
	if err != nil {
		return d, failed("look at", name, err)
	}
	d.Uverbs = uverbsNode(s, name)
	d.NodeGUID, _ = s.ReadString(path.Join(dir, "node_guid"))
	if t, err := s.ReadString(path.Join(dir, "node_type")); err == nil {
		_, d.Kind, _ = strings.Cut(t, ": ")
	}
	if real, err := s.Resolve(dir); err == nil {
		if addr, ok := pci.DeviceOf(s, real); ok {
			d.PCI = &addr
		}
	}
	d.Driver, _ = s.Link(path.Join(dir, "device/driver"))
	if parent, err := s.ReadString(path.Join(dir, "parent")); err == nil {
		// rxe and siw have this attribute: the network device below them.
		d.NetDevs = append(d.NetDevs, parent)
	}
	ports, err := s.List(path.Join(dir, "ports"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return d, failed("list the ports", name, err)
	}
	for _, p := range ports {
		num, err := strconv.Atoi(p)
		if err != nil {
			continue
		}
		d.Ports = append(d.Ports, portInfo(s, name, num))
	}
	software(s, &d)
	return d, nil
}

// software recognizes the emulated devices, which have no device link that
// leads to a driver: only they have the attribute "parent".
func software(s sysfs.FS, d *Info) {
	if d.Driver != "" && d.PCI == nil {
		return
	}
	if !s.Exists(path.Join(classDir, d.Name, "parent")) {
		return
	}
	// The node GUID of both is made from the network device's MAC address.
	// What tells them apart is the node type: iWARP devices are RNICs.
	if d.Kind == "RNIC" {
		d.Kind, d.Driver = "siw", "siw"
	} else {
		d.Kind, d.Driver = "rxe", "rdma_rxe"
	}
}

// mtuFromNetDevs is the RDMA MTU that fits the network device's: RoCE headers
// take up to 78 bytes of a frame (rxe_mtu_int_to_enum rounds down likewise).
func mtuFromNetDevs(s sysfs.FS, devs []string) int {
	const roceHeaders = 78
	best := 0
	for _, dev := range devs {
		n, err := s.ReadInt(path.Join("class/net", dev, "mtu"))
		if err != nil {
			continue
		}
		if m := MTUBytes(MTUEnum(int(n) - roceHeaders)); best == 0 || m < best {
			best = m
		}
	}
	return best
}

func noDevice(s sysfs.FS, name string) error {
	e := failed("open", name, ErrNoDevice)
	names, err := s.List(classDir)
	switch {
	case err != nil || len(names) == 0:
		e.Detail = "this machine has no RDMA device"
		e.Remedy = "load the NIC's driver, or make a software device: rdma link add rxe0 type rxe netdev eth0"
	default:
		e.Detail = "there are: " + strings.Join(names, ", ")
	}
	return e
}

// uverbsNode finds the character device through sysfs, which says which
// uverbsN serves which device.
func uverbsNode(s sysfs.FS, name string) string {
	nodes, err := s.List("class/infiniband_verbs")
	if err != nil {
		return ""
	}
	for _, n := range nodes {
		if dev, err := s.ReadString(path.Join("class/infiniband_verbs", n, "ibdev")); err == nil && dev == name {
			return "/dev/infiniband/" + n
		}
	}
	return ""
}

func portInfo(s sysfs.FS, name string, num int) Port {
	dir := path.Join(classDir, name, "ports", strconv.Itoa(num))
	p := Port{Num: num, GIDs: []GID{}}
	if text, err := s.ReadString(path.Join(dir, "state")); err == nil { // "4: ACTIVE"
		if n, err := strconv.Atoi(before(text, ":")); err == nil {
			p.State = PortState(n)
		}
	}
	if text, err := s.ReadString(path.Join(dir, "link_layer")); err == nil {
		if i := slices.Index(linkLayerNames[:], text); i >= 0 {
			p.LinkLayer = LinkLayer(i)
		}
	}
	return p
}

func before(s, sep string) string {
	head, _, _ := strings.Cut(s, sep)
	return head
}

// ByFunction returns the names of the RDMA devices by the addresses of their PCI functions.
// It leaves out devices that it cannot read. sys is the root of sysfs, "" for /sys.
func ByFunction(sys string) map[string]string {
	s := sysfs.New(sys)
	names, _ := s.List(classDir)
	by := map[string]string{}
	for _, name := range names {
		real, err := s.Resolve(classDir + "/" + name)
		if err != nil {
			continue
		}
		if a, ok := pci.DeviceOf(s, real); ok {
			by[a.String()] = name
		}
	}
	return by
}
