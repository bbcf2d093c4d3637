// SPDX-License-Identifier: Apache-2.0

package libcheck

import (
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/product"
	"github.com/gpurdma/gpurdma/p2p/variables"
	"github.com/gpurdma/gpurdma/placement"
)

// facts reads the facts of the machine that the rules of variables need.
func facts(l *check.Look) variables.Facts {
	f := variables.Facts{CPU: check.Processor(l), Virtual: l.Machine.Virtual.Is}
	for _, g := range l.GPUs {
		f.GPUs = append(f.GPUs, gpu(l, g))
	}
	f.NICs = nics(l)
	if names, r := l.List("sys/class/infiniband"); r.Err == nil || r.Gone() {
		f.Devices = append([]string{}, names...)
	}
	// A snapshot leaves out network devices without RDMA. A machine or copy that has the loopback
	// device has them all.
	if names, r := l.List("sys/class/net"); r.Err == nil && slices.Contains(names, "lo") {
		f.NetDevices = names
	}
	f.DMABuf, f.PeerMem = routes(l)
	f.PeerModule, _ = l.There("sys/module/nvidia_peermem")
	f.Config, _ = configPlace(l)
	f.ConfigGzip, _ = l.There("proc/config.gz")
	return f
}

// vendorOf returns a GPU's maker, by its driver or its PCI vendor.
func vendorOf(l *check.Look, e drivers.Exporter) variables.Vendor {
	switch e.Driver {
	case "nvidia", "nouveau":
		return variables.NVIDIA
	case "amdgpu":
		return variables.AMD
	case "xe", "i915":
		return variables.Intel
	}
	if e.PCI == nil {
		return variables.OtherVendor
	}
	switch f := l.Function(*e.PCI); f.Vendor {
	case machine.VendorNVIDIA:
		return variables.NVIDIA
	case 0x1002:
		return variables.AMD
	case machine.VendorIntel:
		return variables.Intel
	}
	return variables.OtherVendor
}

func gpu(l *check.Look, g drivers.GPU) variables.GPU {
	out := variables.GPU{Name: g.Name, Vendor: vendorOf(l, g.Exporter), Coherent: coherent(l, g), SmallBAR: smallBAR(l, g), MLOPart: placement.No}
	if out.Vendor == variables.NVIDIA {
		out.MLOPart = placement.AnswerUnknown
	}
	pairs := check.Select(l.OfGPU(g), func(p p2p.Pair) bool { return !p.NIC.Software })
	out.NearestAny, _ = nearest(pairs)
	direct := check.Select(pairs, func(p p2p.Pair) bool { return p.Verdict.Outcome() == chain.Direct })
	open := check.Select(pairs, func(p p2p.Pair) bool { return p.Verdict.Outcome() == chain.OutcomeUnknown })
	out.Nearest, out.NearestNICs = nearest(direct)
	// A NIC may be nearer whose pair is not known to be direct.
	if other, _ := nearest(open); other == variables.DistanceUnknown || out.Nearest == variables.NoNIC && len(open) > 0 || other != variables.NoNIC && other < out.Nearest {
		out.Nearest, out.NearestNICs = variables.DistanceUnknown, nil
	}
	return out
}

// nearest returns the least distance among pairs, and the NICs at that distance. If the distance of one pair is
// not known, its NIC may be the nearest, and the result is DistanceUnknown.
func nearest(pairs []p2p.Pair) (variables.Distance, []string) {
	best, names := variables.NoNIC, []string(nil)
	for _, p := range pairs {
		switch d := variables.ParseDistance(p.Letters.NCCL); {
		case d == variables.DistanceUnknown:
			return d, nil
		case best == variables.NoNIC || d < best:
			best, names = d, []string{p.NIC.Name}
		case d == best:
			names = append(names, p.NIC.Name)
		}
	}
	return best, names
}

// coherent says whether the CPU caches a GPU's memory over C2C. The answer is unknown for a model that no table
// has, if the machine has a Grace CPU.
func coherent(l *check.Look, g drivers.GPU) placement.Answer {
	e := g.Exporter
	switch {
	case e.Class == drivers.ClassNVIDIACoherent:
		return placement.Yes
	case vendorOf(l, e) != variables.NVIDIA || e.PCI == nil:
		return placement.No
	case check.Coherent(l) == placement.No, p2p.Product(l.Machine, e).DMABuf == product.Yes:
		return placement.No
	}
	return placement.AnswerUnknown
}

// smallBAR says whether a GPU's BAR is smaller than its memory, if a file or NVML has the memory's size.
func smallBAR(l *check.Look, g drivers.GPU) placement.Answer {
	if g.Exporter.PCI == nil {
		return placement.AnswerUnknown
	}
	bar, ok := l.Machine.LargestBAR(*g.Exporter.PCI)
	total, known := l.Read("sys/bus/pci/devices", g.Name, "mem_info_vram_total").Number()
	if !known && l.Subject.Live.Memory != nil {
		said, _ := l.Subject.Live.Memory()
		total, known = said[*g.Exporter.PCI], said[*g.Exporter.PCI] > 0
	}
	switch {
	case !ok:
		return placement.AnswerUnknown
	case bar.Size <= check.SmallBAR, known && bar.Size < total:
		return placement.Yes
	case known:
		return placement.No
	}
	return placement.AnswerUnknown
}

// routes says whether there is a pair whose memory the NIC registers by a dma-buf, and whether there is one whose
// memory it registers by a peer-memory client.
func routes(l *check.Look) (dmabuf, peer placement.Answer) {
	pairs := check.Select(l.Pairs, func(p p2p.Pair) bool { return !p.NIC.Software })
	dmabuf = placement.Any(pairs, func(p p2p.Pair) placement.Answer {
		route := p.Verdict.Link(chain.Route)
		switch {
		case p.Prediction.ByPeerMem && (p.GPU.Exporter.Proprietary || p.NIC.Importer.Kind == drivers.NoImporter):
			return placement.No
		case p.Prediction.ByPeerMem:
			return placement.AnswerUnknown
		case route.State.Good():
			return placement.Yes
		case route.State == chain.Breaks:
			return placement.No
		}
		return placement.AnswerUnknown
	})
	peer = placement.Any(l.GPUs, func(g drivers.GPU) placement.Answer {
		registered, _ := drivers.PeerClient(l.Machine, g.Exporter.Driver)
		return registered
	})
	return dmabuf, peer
}

// configPlace says where the kernel's configuration has the options that libraries look for. It also returns the
// name of the file that all these libraries read.
func configPlace(l *check.Look) (variables.ConfigPlace, string) {
	options := []string{machine.ConfigMoveNotify + "=y", machine.ConfigP2PDMA + "=y"}
	r := l.Read("boot/config-" + l.Machine.Kernel.Release)
	lines := strings.Split(r.Text, "\n")
	missing := func(option string) bool { return !slices.Contains(lines, option) }
	switch config := l.Machine.Config; {
	case l.Machine.Kernel.Release == "" || r.Err != nil && !r.Gone():
		return variables.ConfigUnread, r.Where
	case r.Err == nil && !slices.ContainsFunc(options, missing):
		return variables.ConfigBoot, r.Where
	case config == nil:
		return variables.ConfigUnread, r.Where
	case config[machine.ConfigMoveNotify] == "y" && config[machine.ConfigP2PDMA] == "y":
		return variables.ConfigOther, r.Where
	}
	return variables.ConfigNowhere, r.Where
}
