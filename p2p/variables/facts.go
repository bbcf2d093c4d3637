// SPDX-License-Identifier: Apache-2.0

package variables

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/placement"
)

// Facts are the facts of a machine that decide the effect of a variable. The zero value
// of each field says that the fact was not read, except for the lists: an empty list
// of GPUs or NICs says that there is none.
type Facts struct {
	GPUs []GPU
	NICs []NIC
	CPU  CPU

	// Devices are all names in /sys/class/infiniband, also of devices about which
	// nothing else was read; nil if the directory was not read.
	Devices []string
	// NetDevices are all names in /sys/class/net; nil if the directory was not read.
	NetDevices []string

	// DMABuf says whether the GPUs' driver exports dma-bufs, and the NICs' drivers
	// register them.
	DMABuf placement.Answer
	// PeerMem says whether a peer-memory client of the GPUs' driver is registered with
	// ib_core.
	PeerMem placement.Answer
	// PeerModule says whether nvidia_peermem is in /proc/modules. That does not prove
	// that it is registered.
	PeerModule placement.Answer
	// Virtual says whether the machine is virtual.
	Virtual placement.Answer

	// Config is where the kernel's configuration has CONFIG_PCI_P2PDMA=y and
	// CONFIG_DMABUF_MOVE_NOTIFY=y, for the libraries that search its text.
	Config ConfigPlace
	// ConfigGzip says whether /proc/config.gz exists.
	ConfigGzip placement.Answer

	// Versions are the versions of the libraries that the judged program loads, such as
	// "2.27.3", by [Variable.Library]. A library without an entry may be of any
	// version.
	Versions map[string]string
}

// Vendor is a maker of GPUs.
type Vendor int

// The vendors.
const (
	OtherVendor Vendor = iota
	NVIDIA
	AMD
	Intel
)

var vendorNames = []string{"another vendor", "NVIDIA", "AMD", "Intel"}

// String returns the vendor's name.
func (v Vendor) String() string { return name(vendorNames, int(v)) }

func name(names []string, n int) string {
	if n < 0 || n >= len(names) {
		return fmt.Sprintf("invalid (%d)", n)
	}
	return names[n]
}

// GPU is one GPU with the nearest NICs.
type GPU struct {
	Name   string // as messages call it
	Vendor Vendor
	// Nearest is the distance of the nearest NIC that is direct. NearestNICs are the
	// RDMA devices at that distance. For a NIC with a Data Direct function it is the
	// distance of that function.
	Nearest     Distance
	NearestNICs []string
	// NearestAny is the distance of the nearest NIC, direct or not.
	NearestAny Distance
	// Coherent says whether C2C connects the GPU to its CPU (GH200, GB200, GB300).
	Coherent placement.Answer
	// SmallBAR says whether the BAR is smaller than the GPU's memory.
	SmallBAR placement.Answer
	// MLOPart says whether the GPU is a partition that NCCL calls MLOPart.
	MLOPart placement.Answer
}

// NIC is one RDMA device, or a cxi device.
type NIC struct {
	Name     string // mlx5_0, rdmap16s27, cxi0
	Driver   string // mlx5_core, bnxt_en, efa, cxi_ss1
	Software bool   // rxe or siw
	// Bond says whether the device stands for several ports of a LAG.
	Bond placement.Answer
	// DataDirect says whether the NIC's card has a DMA function (Data Direct).
	DataDirect placement.Answer
	// OwnRoute says whether the driver registers GPU memory by ibv_reg_mr() without a
	// peer-memory client. Only efa and cxi_ss1 may do so: Amazon's build of efa does
	// (efa_p2p.c, by its attribute gdr), and Linux's does not; for cxi_ss1 it is an
	// option of the build.
	OwnRoute placement.Answer
	Ports    []Port
}

// Port is a port of an RDMA device.
type Port struct {
	Num int
	// RoCE says whether the port is an active Ethernet port of a device that is not
	// iWARP.
	RoCE placement.Answer
	// GIDs is the port's GID table by index; nil if the table was not read. The map has
	// no entry for an index without a GID.
	GIDs map[int]GID
}

// GID is the kind of a GID.
type GID int

// The kinds of GIDs.
const (
	GIDUnread    GID = iota
	GIDRoCEv2        // of RoCE v2, with an address that is routed
	GIDLinkLocal     // of RoCE v2, link-local
	GIDOther         // of RoCE v1 or InfiniBand
)

// CPU identifies a processor by /proc/cpuinfo: on x86 by vendor_id, cpu family and
// model; on arm64 Vendor is the CPU implementer, such as "0x41", and Model the CPU
// part. The zero value means that it was not read.
type CPU struct {
	Vendor        string
	Family, Model int
}

// ConfigPlace is where a text of the kernel's configuration was found.
type ConfigPlace int

// The places.
const (
	ConfigUnread  ConfigPlace = iota
	ConfigBoot                // /boot/config-RELEASE has both options
	ConfigOther               // another file has both options, and /boot/config-RELEASE does not
	ConfigNowhere             // no file has both options
)

// Distance is the distance between a NIC and a GPU, in NCCL's words and in NCCL's
// order.
type Distance int

// The distances, the nearest first.
const (
	DistanceUnknown Distance = iota
	NoNIC                    // there is no NIC, or no direct one
	LOC
	PIX
	PXB
	P2C
	PHB
	SYS
)

var distanceNames = []string{"unknown", "none", "LOC", "PIX", "PXB", "P2C", "PHB", "SYS"}

// String returns the distance in NCCL's letters.
func (d Distance) String() string { return name(distanceNames, int(d)) }

// ParseDistance reads a distance as NCCL writes it ("PIX"); DistanceUnknown if it is
// none.
func ParseDistance(letters string) Distance {
	if i := slices.Index(distanceNames, letters); i >= int(LOC) {
		return Distance(i)
	}
	return DistanceUnknown
}

// known reports a distance to a NIC that there is.
func (d Distance) known() bool { return d >= LOC }

// efa, cxi and mlx5 are drivers that some variables are for.
const (
	efa  = "efa"
	cxi  = "cxi_ss1"
	mlx5 = "mlx5_core"
)

// of reports a GPU of one of some vendors; no vendors are all.
func (g GPU) of(vendors []Vendor) bool {
	return len(vendors) == 0 || slices.Contains(vendors, g.Vendor)
}

// verbs reports a NIC that NCCL's, UCX's and Mooncake's own transports drive: verbs with
// reliable connections.
func (n NIC) verbs() bool { return !n.Software && n.Driver != efa && n.Driver != cxi }

// atLeast compares the version of a library; unknown without one.
func (f *Facts) atLeast(library string, want ...int) placement.Answer {
	text := f.Versions[library]
	if text == "" {
		return placement.AnswerUnknown
	}
	have := strings.FieldsFunc(text, func(r rune) bool { return r == '.' || r == '-' || r == '+' })
	for i, w := range want {
		if i >= len(have) {
			return placement.No
		}
		n, err := strconv.Atoi(strings.TrimLeft(have[i], "v"))
		switch {
		case err != nil:
			return placement.AnswerUnknown
		case n > w:
			return placement.Yes
		case n < w:
			return placement.No
		}
	}
	return placement.Yes
}

// names are the names of some of a list, for a message.
func names[T any](list []T, is func(T) bool, name func(T) string) string {
	var out []string
	for _, x := range list {
		if is(x) {
			out = append(out, name(x))
		}
	}
	if len(out) > 3 {
		out = append(out[:3], fmt.Sprintf("%d more", len(out)-3))
	}
	return strings.Join(out, ", ")
}
