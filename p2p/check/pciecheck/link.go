// SPDX-License-Identifier: Apache-2.0

package pciecheck

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/gpurdma/gpurdma/internal/human"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/pciaddr"
	"github.com/gpurdma/gpurdma/placement"
)

// Link has the checks of links and memory regions.
var Link = []check.Check{
	{ID: "PCIE-LINK", Title: "Each link has the width and speed of its two ends", Worst: p2p.ResultFail, Run: links,
		Expect: "the lesser of what the device and the port above can", Why: "A link that trained at half its width or speed halves the NIC's rate.",
		Fix: chain.Remedy{Change: "seat the device anew, look at the firmware's settings of the slot, retrain the link"}, Ref: "PCI Express Base Specification, Link Status",
		ByHand: "cat /sys/bus/pci/devices/FUNCTION/current_link_speed /sys/bus/pci/devices/FUNCTION/current_link_width\ncat /sys/bus/pci/devices/FUNCTION/max_link_speed /sys/bus/pci/devices/FUNCTION/max_link_width"},
	{ID: "PCIE-LINK-IDLE", Title: "The GPU's link is at its speed", Worst: p2p.ResultWarn, Run: idleLinks,
		Expect: "the lesser of what the GPU and the port above can, under load", Why: "An idle GPU slows its link down, which is no fault. A link that stays slow when data moves, or has to repeat packets, does not reach its bandwidth.",
		Fix: chain.Remedy{Change: "look again while the GPU is at work"}, Ref: "PCI Express Base Specification, Link Status",
		ByHand: "cat /sys/bus/pci/devices/GPU/current_link_speed /sys/bus/pci/devices/GPU/max_link_speed"},
	{ID: "PCIE-MPS", Title: "Packets are as large as the way allows", Worst: p2p.ResultWarn, Run: payload,
		Expect: "one size on all of the way, the largest that all take", Why: "Small packets cost bandwidth. Sizes that differ cause errors.",
		Fix: chain.Remedy{Change: "let the kernel set them, if the firmware does not", Command: "pci=pcie_bus_perf"}, Ref: "Documentation/admin-guide/kernel-parameters.txt",
		ByHand: "sudo lspci -vvv -s FUNCTION | grep MaxPayload"},
	{ID: "PCIE-MRRS", Title: "The NIC reads in large pieces", Worst: p2p.ResultWarn, Run: readRequest,
		Expect: "512 bytes or more", Why: "Each read of GPU memory is a request; small ones limit bandwidth.",
		Fix: chain.Remedy{Change: "set it to the most", Command: "setpci -s NIC CAP_EXP+8.w=5000:7000"}, Ref: "NVIDIA's tuning guide for ConnectX",
		ByHand: "sudo lspci -vvv -s FUNCTION | grep MaxReadReq"},
	{ID: "PCIE-AER", Title: "No link has had errors", Worst: p2p.ResultWarn, Run: linkErrors,
		Expect: "no fatal and no other uncorrectable errors", Why: "After a corrected error the link sends again, which costs time. After a fatal error the device may be lost.",
		Fix: chain.Remedy{Change: "look at cable, riser and slot"}, Ref: "Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats",
		ByHand: "cat /sys/bus/pci/devices/FUNCTION/aer_dev_fatal /sys/bus/pci/devices/FUNCTION/aer_dev_nonfatal /sys/bus/pci/devices/FUNCTION/aer_dev_correctable"},
	{ID: "PCIE-BAR-SIZE", Title: "All of the GPU's memory is in its BAR", Worst: p2p.ResultFail, Run: barSize, Links: []chain.Link{chain.Library},
		Expect: "a BAR as large as the memory", Why: "No NIC reaches memory beyond the BAR: larger registrations fail, or go to system memory.",
		Fix: chain.Remedy{Change: "turn on “Above 4G decoding” and “Resizable BAR” in the firmware"}, Ref: "openucx/ucx#8049, NVIDIA/gdrcopy#301",
		ByHand: "lspci -vv -s GPU | grep Region"},
	{ID: "PCIE-REBAR", Title: "The BAR has the largest size it can have", Worst: p2p.ResultWarn, Run: resizable,
		Expect: "no larger size that the GPU offers", Why: "A GPU with resizable BAR can show all of its memory, if the firmware left room.",
		Fix: chain.Remedy{Change: "turn on “Resizable BAR” in the firmware"}, Ref: "drivers/pci/pci-sysfs.c, resourceN_resize; PCI Express Base Specification, Resizable BAR",
		ByHand: "sudo lspci -vvv -s GPU | grep -A 8 'Resizable BAR'"},
	{ID: "PCIE-BAR-ASSIGNED", Title: "Every BAR has a place", Worst: p2p.ResultFail, Run: check.BarAssigned, Links: []chain.Link{chain.Addresses},
		Expect: "an address for each memory region", Why: "No device reaches a BAR that has no address.",
		Fix: chain.Remedy{Change: "let the kernel place them anew, or widen the firmware's window for 64-bit addresses", Command: "pci=realloc"}, Ref: "drivers/pci/setup-res.c",
		ByHand: "cat /sys/bus/pci/devices/FUNCTION/resource"},
	{ID: "PCIE-PM", Title: "The GPU is awake", Worst: p2p.ResultWarn, Run: powered, Links: []chain.Link{chain.Attach},
		Expect: "active", Why: "amdgpu of Linux 7.2 gives no peer-to-peer to a NIC that attaches while the GPU sleeps, and reports success.",
		Fix: chain.Remedy{Change: "keep it awake", Command: "echo on > /sys/bus/pci/devices/GPU/power/control", Weakens: "an idle GPU saves no power"}, Ref: "amdgpu_dma_buf.c, pm_runtime_get_if_active()",
		ByHand: "cat /sys/bus/pci/devices/GPU/power/runtime_status"},
	{ID: "PCIE-NUMA", Title: "Each GPU has a NIC on its NUMA node", Worst: p2p.ResultWarn, Run: nodes, Links: []chain.Link{chain.Fabric},
		Expect: "a NIC on the GPU's node", Why: "Traffic between sockets is slower, and some processors do not pass it at all.",
		Fix: chain.Remedy{Change: "put a NIC into a slot of that socket"}, Ref: "NCCL's topology detection",
		ByHand: "cat /sys/bus/pci/devices/GPU/numa_node /sys/class/infiniband/NIC/device/numa_node"},
	{ID: "PCIE-ATOMICS", Title: "AMD GPUs may send atomic operations", Worst: p2p.ResultWarn, Run: atomics,
		Expect: "requests on, and no port that blocks them", Why: "ROCm uses PCI Express atomics for its queues. Registrations do not need them.",
		Fix: chain.Remedy{Change: "put the GPU below ports that route atomics"}, Ref: "ROCm/ROCmValidationSuite, peqt",
		ByHand: "sudo lspci -vvv -s GPU | grep AtomicOps"},
	{ID: "PCIE-VMD", Title: "No device is behind a VMD controller", Worst: p2p.ResultWarn, Run: vmd,
		Expect: "a domain of the firmware's", Why: "Intel's VMD puts devices behind it into a domain of their own, with another requester and host bridge.",
		Fix: chain.Remedy{Change: "turn VMD off for these slots in the firmware"}, Ref: "drivers/pci/controller/vmd.c",
		ByHand: "lspci -D | grep -i 'volume management device'"},
}

// linkOf returns the state of the link above a function; false if it is not known.
func linkOf(l *check.Look, f *check.Function) (machine.LinkState, bool) {
	if f.Err != nil {
		return machine.LinkState{}, false
	}
	return machine.LinkAbove(f.Function, l.ReadFunction)
}

// linked returns the functions that have a link above them, one function for each link. It includes functions that
// cannot be read.
func linked(l *check.Look) []*check.Function {
	var out []*check.Function
	for _, f := range l.All() {
		if f.Err != nil || f.Port != "root port" && f.Port != "downstream port" && len(f.Upstream) > 0 {
			out = append(out, f)
		}
	}
	return out
}

// ofGPU reports whether a function is a GPU, or a port inside one.
func ofGPU(l *check.Look, f *check.Function) bool {
	return slices.ContainsFunc(l.GPUFunctions(), func(g *check.Function) bool { return f.Inside(g.Function) })
}

// narrow returns the links that run as fast as both of their ends can, and are still slower than the links of a
// pair's GPU and NIC. The key is the function below the link, the value a text.
func narrow(l *check.Look) map[pciaddr.Addr]string {
	pairs, ways := map[pciaddr.Addr][]string{}, map[pciaddr.Addr]p2p.Way{}
	for _, p := range l.Pairs {
		if w, ok := p2p.WayOf(l.Machine, p, l.ReadFunction); ok && w.Narrow {
			pairs[w.Slowest] = append(pairs[w.Slowest], p.Name())
			if w.Ends > ways[w.Slowest].Ends {
				ways[w.Slowest] = w
			}
		}
	}
	out := map[pciaddr.Addr]string{}
	for a, names := range pairs {
		out[a] = fmt.Sprintf("%.1f GB/s at most, where the links of GPU and NIC have up to %.1f, on the way of %s", float64(ways[a].Rate)/1e9, float64(ways[a].Ends)/1e9, check.Some(names))
	}
	return out
}

func links(l *check.Look) {
	all := linked(l)
	if len(all) == 0 {
		l.Skip("no link above a GPU or NIC")
	}
	limited := map[string]string{}
	if log := l.Log(); log.Err == nil {
		for _, h := range check.LogLines(l, log, l.Check.ID) {
			for _, name := range p2p.PCIAddress.FindAllString(h.Line, 1) {
				limited[name] = h.Line
			}
		}
	}
	narrow := narrow(l)
	for _, f := range all {
		at := []string{"/sys/" + f.Dir + "/current_link_speed", "/sys/" + f.Dir + "/current_link_width"}
		s, ok := linkOf(l, f)
		had, could, read := s.Speed*float64(s.Width), s.MaxSpeed*float64(s.MaxWidth), s.String()
		slow := ok && ofGPU(l, f) && s.Speed < s.MaxSpeed // PCIE-LINK-IDLE reports the speed
		if slow {
			had, could, read = float64(s.Width), float64(s.MaxWidth), s.Lanes()
			at = at[1:]
		}
		switch {
		case l.Machine.Virtual.Is == placement.Yes:
			l.Unknown(f.Name, at, "the link that a guest sees is the hypervisor's invention").Fix("look at the host", "", "")
		case f.Bridge && f.Port == "":
			l.Unknown(f.Name, at, "whether this port's link leads up or down is not known").AsRoot(l.Machine)
		case !ok:
			l.Unknown(f.Name, at, "its speed or width is not known")
		case had < could/2:
			l.Fail(f.Name, at, "%s: less than half", read)
		case had < could || s.Width < s.MaxWidth:
			l.Warn(f.Name, at, "%s", read)
		case limited[f.PCI.String()] != "":
			l.Warn(f.Name, []string{"/dev/kmsg"}, "%s", limited[f.PCI.String()])
		case narrow[f.PCI] != "":
			l.Warn(f.Name, at, "%s: %s", read, narrow[f.PCI]).
				Fix("put the NIC below the GPU's switch, or the switch into a slot with a wider or faster link", "", "").Expect = "as much as the links of the GPU and the NIC have"
		case slow:
			l.Unknown(f.Name, at, "%s; PCIE-LINK-IDLE reports its speed", read).SetAside()
		default:
			l.Pass(f.Name, at, "%s", read)
		}
	}
}

func payload(l *check.Look) {
	all := l.Endpoints()
	if len(all) == 0 {
		l.Skip("no GPU and no NIC on PCI")
	}
	for _, end := range all {
		at := []string{"/sys/" + end.Dir + "/config"}
		least, sizes := 0, map[int]bool{}
		var err error
		for _, f := range way(l, end) {
			x, ok, e := f.Config.Express()
			err = machine.FirstError(err, f.Err, f.CfgErr, e)
			if !ok {
				continue
			}
			sizes[x.Payload] = true
			if least == 0 || x.PayloadCap < least {
				least = x.PayloadCap
			}
		}
		switch {
		case err != nil:
			l.Unknown(end.Name, at, "%s", machine.Reading{Err: err}.Why()).AsRoot(l.Machine)
		case len(sizes) == 0:
			l.Pass(end.Name, at, "no PCI Express function")
		case len(sizes) > 1:
			l.Warn(end.Name, at, "sizes differ on the way to the root")
		case !sizes[least]:
			l.Warn(end.Name, at, "less than the %d bytes that all on the way take", least)
		default:
			l.Pass(end.Name, at, "%d bytes", least)
		}
	}
}

// way returns a function and the ports above it, the nearest first.
func way(l *check.Look, f *check.Function) []*check.Function {
	out := []*check.Function{f}
	for _, up := range f.Upstream {
		out = append(out, l.Function(up))
	}
	return out
}

func readRequest(l *check.Look) {
	nics := l.NICFunctions()
	if len(nics) == 0 {
		l.Skip("no NIC on PCI")
	}
	for _, f := range nics {
		at := []string{"/sys/" + f.Dir + "/config"}
		x, ok, err := f.Config.Express()
		switch err = machine.FirstError(f.Err, f.CfgErr, err); {
		case err != nil:
			l.Unknown(f.Name, at, "%s", machine.Reading{Err: err}.Why()).AsRoot(l.Machine)
		case !ok:
			l.Pass(f.Name, at, "no PCI Express function")
		case x.ReadRequest < 512:
			check.Unlocked(l, l.Warn(f.Name, at, "%d bytes", x.ReadRequest), "set it to the most",
				"setpci -s "+f.PCI.String()+" CAP_EXP+8.w=5000:7000", "", "set it in the firmware, the machine's or the NIC's")
		default:
			l.Pass(f.Name, at, "%d bytes", x.ReadRequest)
		}
	}
}

// errNoTotal is the error for an aer_dev_ file that has no line TOTAL.
var errNoTotal = errors.New("it has no total")

func linkErrors(l *check.Look) {
	all := l.All()
	if len(all) == 0 {
		l.Skip("no GPU and no NIC on PCI")
	}
	for _, f := range all {
		counts := map[string]uint64{}
		var at []string
		var bad machine.Reading
		for _, kind := range []string{"fatal", "nonfatal", "correctable"} {
			r := l.Read("sys", f.Dir, "aer_dev_"+kind)
			at = append(at, r.Where)
			total, ok := r.Line("TOTAL_ERR_" + map[string]string{"fatal": "FATAL", "nonfatal": "NONFATAL", "correctable": "COR"}[kind])
			n, err := strconv.ParseUint(total, 10, 64)
			switch {
			case r.Gone():
				continue
			case r.Err != nil:
				bad = r
			case !ok || err != nil:
				bad = machine.Reading{Where: r.Where, Err: errNoTotal}
			default:
				counts[kind] = n
			}
		}
		switch {
		case counts["fatal"] > 0 || counts["nonfatal"] > 0:
			l.Warn(f.Name, at, "%d fatal, %d not fatal, %d corrected", counts["fatal"], counts["nonfatal"], counts["correctable"])
		case bad.Err != nil:
			l.Unread(f.Name, bad)
		case len(counts) == 0:
			l.Unknown(f.Name, at, "the kernel does not count its errors")
		case len(counts) < len(at):
			l.Unknown(f.Name, at, "errors of one kind are counted, and of another not")
		case counts["correctable"] > 0:
			l.Pass(f.Name, at, "%d corrected", counts["correctable"])
		default:
			l.Pass(f.Name, at, "none")
		}
	}
	if log := l.Log(); log.Err == nil {
		for _, h := range check.LogLines(l, log, l.Check.ID) {
			l.Warn("", log.At(), "%s", h.Line)
		}
	}
}

func powered(l *check.Look) {
	gpus := l.GPUFunctions()
	if len(gpus) == 0 {
		l.Skip("no GPU on PCI")
	}
	for _, gpu := range gpus {
		var at []string
		asleep, unread, cold := "", "", ""
		for _, f := range way(l, gpu) {
			r := l.Read("sys", f.Dir, "power/runtime_status")
			at = append(at, r.Where)
			switch l.Machine.PowerAt(f.Dir) {
			case machine.PowerSuspended:
				asleep = f.PCI.String()
				if r := l.Read("sys", f.Dir, "d3cold_allowed"); r.Text == "1" {
					cold = ", perhaps without power (d3cold_allowed: 1)"
				}
			case machine.PowerUnknown:
				unread = check.OrText(r)
			}
		}
		at = at[:min(len(at), check.ShownFiles)]
		switch {
		case asleep != "":
			l.Warn(gpu.Name, at, "%s is suspended%s", asleep, cold).Fix("keep it awake", "echo on > /sys/bus/pci/devices/"+gpu.PCI.String()+"/power/control", "an idle GPU saves no power")
		case unread != "":
			l.Unknown(gpu.Name, at, "%s", unread)
		default:
			l.Pass(gpu.Name, at, "active")
		}
	}
}

func nodes(l *check.Look) {
	gpus, nics := l.GPUFunctions(), l.NICFunctions()
	if len(gpus) == 0 || len(nics) == 0 {
		l.Skip("no pair on PCI")
		return
	}
	for _, g := range gpus {
		at := []string{"/sys/" + g.Dir + "/numa_node"}
		near, open := 0, g.Err != nil
		for _, n := range nics {
			if n.Err == nil && n.NUMANode == g.NUMANode {
				near++
			}
			open = open || n.Err != nil || n.NUMANode < 0
		}
		switch r := l.Read("sys", g.Dir, "numa_node"); {
		case r.Err != nil && !r.Gone():
			l.Unread(g.Name, r)
		case g.NUMANode < 0 && check.OneNode(l):
			l.Pass(g.Name, at, "the machine has one node").Expect = ""
		case g.NUMANode < 0:
			l.Unknown(g.Name, at, "the firmware names no node")
		case near > 0:
			l.Pass(g.Name, at, "node %d, with %s", g.NUMANode, human.Plural(near, "NIC"))
		case open:
			l.Unknown(g.Name, at, "the node of a NIC is not known")
		default:
			l.Warn(g.Name, at, "node %d, which has no NIC", g.NUMANode)
		}
	}
}

func atomics(l *check.Look) {
	gpus := l.Driven("amdgpu")
	if len(gpus) == 0 {
		l.Skip("no GPU of amdgpu")
	}
	for _, g := range gpus {
		f := l.Function(*g.Exporter.PCI)
		at := []string{"/sys/" + f.Dir + "/config"}
		x, _, err := f.Config.Express()
		err = machine.FirstError(f.Err, f.CfgErr, err)
		blocked := ""
		for _, up := range f.Upstream {
			port := l.Function(up)
			p, _, e := port.Config.Express()
			err = machine.FirstError(err, port.Err, port.CfgErr, e)
			if p.AtomicsBlocked {
				blocked = port.Name
			}
		}
		switch {
		case err != nil:
			l.Unknown(f.Name, at, "%s", machine.Reading{Err: err}.Why()).AsRoot(l.Machine)
		case !x.AtomicRequests:
			l.Warn(f.Name, at, "it may send none")
		case blocked != "":
			l.Warn(f.Name, at, "%s blocks them", blocked)
		default:
			l.Pass(f.Name, at, "it may")
		}
	}
}

// firstVMD is the first domain that the kernel gives to VMD controllers.
const firstVMD = 0x10000

func vmd(l *check.Look) {
	all := l.Endpoints()
	if len(all) == 0 {
		l.Skip("no GPU and no NIC on PCI")
	}
	for _, f := range all {
		if f.PCI.Domain >= firstVMD {
			l.Warn(f.Name, nil, "domain %x", f.PCI.Domain)
			continue
		}
		l.Pass(f.Name, nil, "domain %04x", f.PCI.Domain)
	}
}
