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

	// DMABuf: the GPUs' driver exports dma-bufs and the NICs' drivers register them.
	DMABuf placement.Answer
	// PeerMem: a peer-memory client of the GPUs' driver is registered with ib_core.
	PeerMem placement.Answer
	// PeerModule: nvidia_peermem is in /proc/modules, which proves no registration.
	PeerModule placement.Answer
	// Virtual: this is a virtual machine.
	Virtual placement.Answer

	// Config is where the kernel's configuration has CONFIG_PCI_P2PDMA=y and
	// CONFIG_DMABUF_MOVE_NOTIFY=y, for the libraries that search its text.
	Config ConfigPlace
	// ConfigGzip: /proc/config.gz exists.
	ConfigGzip placement.Answer

	// Versions are the versions of the libraries that the judged program loads, by
	// [Variable.Library], "2.27.3". A library without one is of any version.
	Versions map[string]string
}

// Vendor makes GPUs.
type Vendor int

// The vendors.
const (
	OtherVendor Vendor = iota
	NVIDIA
	AMD
	Intel
)

var vendorNames = []string{"another vendor", "NVIDIA", "AMD", "Intel"}

// String names the vendor.
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
	// Nearest is the distance of the nearest NIC that is direct, NearestNICs are the
	// RDMA devices at that distance. A NIC with a Data Direct function counts by it.
	Nearest     Distance
	NearestNICs []string
	// NearestAny is the distance of the nearest NIC, direct or not.
	NearestAny Distance
	// Coherent: the GPU is attached to its CPU by C2C (GH200, GB200, GB300).
	Coherent placement.Answer
	// SmallBAR: the BAR is smaller than the GPU's memory.
	SmallBAR placement.Answer
	// MLOPart: the GPU is a partition that NCCL calls MLOPart.
	MLOPart placement.Answer
}

// NIC is one RDMA device, or a cxi device.
type NIC struct {
	Name     string // mlx5_0, rdmap16s27, cxi0
	Driver   string // mlx5_core, bnxt_en, efa, cxi_ss1
	Software bool   // rxe or siw
	// Bond: the device stands for several ports of a LAG.
	Bond placement.Answer
	// DataDirect: the NIC has a DMA function of its own beside the GPU.
	DataDirect placement.Answer
	// OwnRoute: the driver takes GPU memory from ibv_reg_mr() without a peer-memory
	// client. Of efa and cxi_ss1 alone: Amazon's build of efa has it (efa_p2p.c, by its
	// attribute gdr), that of Linux has not; cxi_ss1 chooses when it is built.
	OwnRoute placement.Answer
	Ports    []Port
}

// Port is a port of an RDMA device.
type Port struct {
	Num int
	// RoCE: the port is an active Ethernet port of a device that is not iWARP.
	RoCE placement.Answer
	// GIDs is the port's GID table by index; nil if the table was not read. An index
	// that is missing has no GID.
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

// CPU identifies a processor: on x86 by vendor_id, cpu family and model of
// /proc/cpuinfo, on arm64 by "0x41"-like CPU implementer as Vendor and CPU part as
// Model. The zero value is of one that was not read.
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

// Distance is how far a NIC is from a GPU, in NCCL's words and in NCCL's order.
type Distance int

// The distances, the nearest first.
const (
	DistanceUnknown Distance = iota
	NoNIC                    // there is none: no NIC, or no direct one
	LOC
	PIX
	PXB
	P2C
	PHB
	SYS
)

var distanceNames = []string{"unknown", "none", "LOC", "PIX", "PXB", "P2C", "PHB", "SYS"}

// String names the distance.
func (d Distance) String() string { return name(distanceNames, int(d)) }

// ParseDistance reads a letter as NCCL writes it; DistanceUnknown if it is none.
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
