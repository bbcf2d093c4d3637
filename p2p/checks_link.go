// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/placement"
)

var linkChecks = []Check{
	{ID: "PCIE-LINK", Title: "Each link has the width and speed of its two ends", Worst: ResultFail, run: (*look).links,
		Expect: "the lesser of what the device and the port above can", Why: "A link that trained narrower or slower halves what the NIC moves.",
		Fix: Remedy{Change: "seat the device anew, look at the firmware's settings of the slot, retrain the link"}, Ref: "PCI Express Base Specification, Link Status"},
	{ID: "PCIE-LINK-IDLE", Title: "The GPU's link is at its speed", Worst: ResultWarn, run: (*look).idleLinks,
		Expect: "the lesser of what the GPU and the port above can, under load", Why: "An idle GPU slows its link down, which is as it should be. One that stays slow when data moves, or has to repeat packets, does not get its bandwidth.",
		Fix: Remedy{Change: "look again while the GPU is at work"}, Ref: "PCI Express Base Specification, Link Status"},
	{ID: "PCIE-MPS", Title: "Packets are as large as the way allows", Worst: ResultWarn, run: (*look).payload,
		Expect: "one size on all of the way, the largest that all take", Why: "Small packets cost bandwidth; sizes that differ end in errors.",
		Fix: Remedy{Change: "let the kernel set them, if the firmware does not", Command: "pci=pcie_bus_perf"}, Ref: "Documentation/admin-guide/kernel-parameters.txt"},
	{ID: "PCIE-MRRS", Title: "The NIC reads in large pieces", Worst: ResultWarn, run: (*look).readRequest,
		Expect: "512 bytes or more", Why: "Each read of GPU memory is a request; small ones limit bandwidth.",
		Fix: Remedy{Change: "set it to the most", Command: "setpci -s NIC CAP_EXP+8.w=5000:7000"}, Ref: "NVIDIA's tuning guide for ConnectX"},
	{ID: "PCIE-AER", Title: "No link has had errors", Worst: ResultWarn, run: (*look).linkErrors,
		Expect: "no fatal and no other uncorrectable errors", Why: "Errors cost retries, or the device.",
		Fix: Remedy{Change: "look at cable, riser and slot"}, Ref: "Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats"},
	{ID: "PCIE-BAR-SIZE", Title: "All of the GPU's memory is in its BAR", Worst: ResultFail, run: (*look).barSize,
		Expect: "a BAR as large as the memory", Why: "What lies beyond the BAR no NIC can reach: registrations of more fail, or go to system memory.",
		Fix: Remedy{Change: "turn on “Above 4G decoding” and “Resizable BAR” in the firmware"}, Ref: "openucx/ucx#8049, NVIDIA/gdrcopy#301"},
	{ID: "PCIE-REBAR", Title: "The BAR has the largest size it can have", Worst: ResultWarn, run: (*look).resizable,
		Expect: "no larger size that the GPU offers", Why: "A GPU with resizable BAR can show all of its memory, if the firmware left room.",
		Fix: Remedy{Change: "turn on “Resizable BAR” in the firmware"}, Ref: "drivers/pci/pci-sysfs.c, resourceN_resize; PCI Express Base Specification, Resizable BAR"},
	{ID: "PCIE-BAR-ASSIGNED", Title: "Every BAR has a place", Worst: ResultFail, run: (*look).barAssigned,
		Expect: "an address for each memory region", Why: "A BAR for which there was no room cannot be reached by anybody.",
		Fix: Remedy{Change: "let the kernel place them anew, or widen the firmware's window for 64-bit addresses", Command: "pci=realloc"}, Ref: "drivers/pci/setup-res.c"},
	{ID: "PCIE-PM", Title: "The GPU is awake", Worst: ResultWarn, run: (*look).powered,
		Expect: "active", Why: "amdgpu of 7.2 gives no peer-to-peer to who attaches while the GPU sleeps, and reports success.",
		Fix: Remedy{Change: "keep it awake", Command: "echo on > /sys/bus/pci/devices/GPU/power/control", Weakens: "an idle GPU saves no power"}, Ref: "amdgpu_dma_buf.c, pm_runtime_get_if_active()"},
	{ID: "PCIE-NUMA", Title: "Each GPU has a NIC on its NUMA node", Worst: ResultWarn, run: (*look).nodes,
		Expect: "a NIC on the GPU's node", Why: "Traffic between sockets is slower, and some processors do not pass it at all.",
		Fix: Remedy{Change: "put a NIC into a slot of that socket"}, Ref: "NCCL's topology detection"},
	{ID: "PCIE-ATOMICS", Title: "AMD GPUs may send atomic operations", Worst: ResultWarn, run: (*look).atomics,
		Expect: "requests on, and no port that blocks them", Why: "ROCm uses PCI Express atomics for its queues. Registrations do not need them.",
		Fix: Remedy{Change: "put the GPU below ports that route atomics"}, Ref: "ROCm/ROCmValidationSuite, peqt"},
	{ID: "PCIE-VMD", Title: "No device is behind a VMD controller", Worst: ResultWarn, run: (*look).vmd,
		Expect: "a domain of the firmware's", Why: "Intel's VMD puts devices behind it into a domain of their own, with another requester and host bridge.",
		Fix: Remedy{Change: "turn VMD off for these slots in the firmware"}, Ref: "drivers/pci/controller/vmd.c"},
}

// linkState is one link, in what both of its ends can.
type linkState struct {
	speed, maxSpeed float64 // GT/s
	width, maxWidth int
}

// linkOf reads the link above a function; false without one that is known.
func (l *look) linkOf(f *function) (linkState, bool) {
	if f.err != nil {
		return linkState{}, false
	}
	return linkAbove(f.Function, l.readFunction)
}

// readFunction is function, for who wants no more of it.
func (l *look) readFunction(a Addr) (Function, error) {
	f := l.function(a)
	return f.Function, f.err
}

// linkAbove is the link above a function, with what both of its ends can. That of a
// virtual function is its physical one's.
func linkAbove(f Function, read func(Addr) (Function, error)) (linkState, bool) {
	var s linkState
	if f.PF != nil {
		if pf, err := read(*f.PF); err == nil {
			f = pf
		}
	}
	if f.Speed == "" || f.Width == "" {
		return s, false
	}
	var ok [4]bool
	s.speed, ok[0] = gigatransfers(f.Speed)
	s.width, ok[1] = lanes(f.Width)
	s.maxSpeed, ok[2] = gigatransfers(f.MaxSpeed)
	s.maxWidth, ok[3] = lanes(f.MaxWidth)
	if len(f.Upstream) > 0 {
		up, _ := read(f.Upstream[0])
		if speed, ok := gigatransfers(up.MaxSpeed); ok {
			s.maxSpeed = min(s.maxSpeed, speed)
		}
		if width, ok := lanes(up.MaxWidth); ok {
			s.maxWidth = min(s.maxWidth, width)
		}
	}
	return s, ok == [4]bool{true, true, true, true} && s.speed <= s.maxSpeed && s.width <= s.maxWidth
}

// gigatransfers reads "16.0 GT/s PCIe" and "16 GT/s".
func gigatransfers(s string) (float64, bool) {
	number, _, ok := strings.Cut(s, " ")
	n, err := strconv.ParseFloat(number, 64)
	return n, ok && err == nil && n > 0 && n < 1e4
}

func lanes(s string) (int, bool) {
	n, err := strconv.Atoi(s)
	return n, err == nil && n > 0 && n <= 64
}

func (s linkState) String() string {
	text := fmt.Sprintf("%g GT/s x%d", s.speed, s.width)
	if s.speed < s.maxSpeed || s.width < s.maxWidth {
		text += fmt.Sprintf(" of %g GT/s x%d", s.maxSpeed, s.maxWidth)
	}
	return text
}

// lanes is the width alone, of a link whose speed changes with its use.
func (s linkState) lanes() string {
	if s.width < s.maxWidth {
		return fmt.Sprintf("x%d of x%d", s.width, s.maxWidth)
	}
	return fmt.Sprintf("x%d", s.width)
}

// linked are the functions that have a link above them: each link once. One that
// cannot be read may have one.
func (l *look) linked() []*function {
	var out []*function
	for _, f := range l.all() {
		if f.err != nil || f.Port != "root port" && f.Port != "downstream port" && len(f.Upstream) > 0 {
			out = append(out, f)
		}
	}
	return out
}

// ofGPU reports a GPU, or a port inside one.
func (l *look) ofGPU(f *function) bool {
	return slices.ContainsFunc(l.gpuFunctions(), func(g *function) bool { return f.inside(g.Function) })
}

// narrow are the links that are as fast as their ends, and keep pairs from the
// speed that the links of GPU and NIC have; by the function below.
func (l *look) narrow() map[Addr]string {
	pairs, ways := map[Addr][]string{}, map[Addr]Way{}
	for _, p := range l.pairs {
		if w, ok := l.m.Way(p, l.readFunction); ok && w.Narrow {
			pairs[w.Slowest] = append(pairs[w.Slowest], p.name())
			if w.Ends > ways[w.Slowest].Ends {
				ways[w.Slowest] = w
			}
		}
	}
	out := map[Addr]string{}
	for a, names := range pairs {
		out[a] = fmt.Sprintf("%.1f GB/s at most, where the links of GPU and NIC have up to %.1f, on the way of %s", float64(ways[a].Rate)/1e9, float64(ways[a].Ends)/1e9, some(names))
	}
	return out
}

func (l *look) links() {
	all := l.linked()
	if len(all) == 0 {
		l.skip("no link above a GPU or NIC")
	}
	limited := map[string]string{}
	if log := l.log(); log.err == nil {
		for _, h := range log.of(l, l.check.ID) {
			for _, name := range pciAddress.FindAllString(h.line, 1) {
				limited[name] = h.line
			}
		}
	}
	narrow := l.narrow()
	for _, f := range all {
		at := []string{"/sys/" + f.dir + "/current_link_speed", "/sys/" + f.dir + "/current_link_width"}
		s, ok := l.linkOf(f)
		had, could, read := s.speed*float64(s.width), s.maxSpeed*float64(s.maxWidth), s.String()
		slow := ok && l.ofGPU(f) && s.speed < s.maxSpeed // PCIE-LINK-IDLE tells of the speed
		if slow {
			had, could, read = float64(s.width), float64(s.maxWidth), s.lanes()
			at = at[1:]
		}
		switch {
		case l.m.virtual.is == placement.Yes:
			l.unknown(f.name, at, "the link that a guest sees is the hypervisor's invention").fix("look at the host", "", "")
		case f.Bridge && f.Port == "":
			l.unknown(f.name, at, "whether this port's link leads up or down is not known").asRoot(l.m)
		case !ok:
			l.unknown(f.name, at, "its speed or width is not known")
		case had < could/2:
			l.fail(f.name, at, "%s: less than half", read)
		case had < could || s.width < s.maxWidth:
			l.warn(f.name, at, "%s", read)
		case limited[f.PCI.String()] != "":
			l.warn(f.name, []string{"/dev/kmsg"}, "%s", limited[f.PCI.String()])
		case narrow[f.PCI] != "":
			l.warn(f.name, at, "%s: %s", read, narrow[f.PCI]).
				fix("put the NIC below the GPU's switch, or the switch into a slot with a wider or faster link", "", "").Expect = "as much as the links of the GPU and the NIC have"
		case slow:
			l.unknown(f.name, at, "%s, and as slow as PCIE-LINK-IDLE says", read).aside()
		default:
			l.pass(f.name, at, "%s", read)
		}
	}
}

func (l *look) payload() {
	all := l.endpoints()
	if len(all) == 0 {
		l.skip("no GPU and no NIC on PCI")
	}
	for _, end := range all {
		at := []string{"/sys/" + end.dir + "/config"}
		least, sizes := 0, map[int]bool{}
		var err error
		for _, f := range l.way(end) {
			x, ok, e := f.config.Express()
			err = firstError(err, f.err, f.cfgErr, e)
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
			l.unknown(end.name, at, "%s", reading{err: err}.why()).asRoot(l.m)
		case len(sizes) == 0:
			l.pass(end.name, at, "no PCI Express function")
		case len(sizes) > 1:
			l.warn(end.name, at, "sizes differ on the way to the root")
		case !sizes[least]:
			l.warn(end.name, at, "less than the %d bytes that all on the way take", least)
		default:
			l.pass(end.name, at, "%d bytes", least)
		}
	}
}

// way is a function and the ports above it.
func (l *look) way(f *function) []*function {
	out := []*function{f}
	for _, up := range f.Upstream {
		out = append(out, l.function(up))
	}
	return out
}

func (l *look) readRequest() {
	nics := l.nicFunctions()
	if len(nics) == 0 {
		l.skip("no NIC on PCI")
	}
	for _, f := range nics {
		at := []string{"/sys/" + f.dir + "/config"}
		x, ok, err := f.config.Express()
		switch err = firstError(f.err, f.cfgErr, err); {
		case err != nil:
			l.unknown(f.name, at, "%s", reading{err: err}.why()).asRoot(l.m)
		case !ok:
			l.pass(f.name, at, "no PCI Express function")
		case x.ReadRequest < 512:
			l.unlocked(l.warn(f.name, at, "%d bytes", x.ReadRequest), "set it to the most",
				"setpci -s "+f.PCI.String()+" CAP_EXP+8.w=5000:7000", "", "set it in the firmware, the machine's or the NIC's")
		default:
			l.pass(f.name, at, "%d bytes", x.ReadRequest)
		}
	}
}

// errNoTotal is of a file without the line that counts.
var errNoTotal = errors.New("it has no total")

func (l *look) linkErrors() {
	all := l.all()
	if len(all) == 0 {
		l.skip("no GPU and no NIC on PCI")
	}
	for _, f := range all {
		counts := map[string]uint64{}
		var at []string
		var bad reading
		for _, kind := range []string{"fatal", "nonfatal", "correctable"} {
			r := l.read("sys", f.dir, "aer_dev_"+kind)
			at = append(at, r.where)
			total, ok := r.line("TOTAL_ERR_" + map[string]string{"fatal": "FATAL", "nonfatal": "NONFATAL", "correctable": "COR"}[kind])
			n, err := strconv.ParseUint(total, 10, 64)
			switch {
			case r.gone():
				continue
			case r.err != nil:
				bad = r
			case !ok || err != nil:
				bad = reading{where: r.where, err: errNoTotal}
			default:
				counts[kind] = n
			}
		}
		switch {
		case counts["fatal"] > 0 || counts["nonfatal"] > 0:
			l.warn(f.name, at, "%d fatal, %d not fatal, %d corrected", counts["fatal"], counts["nonfatal"], counts["correctable"])
		case bad.err != nil:
			l.unread(f.name, bad)
		case len(counts) == 0:
			l.unknown(f.name, at, "nobody counts its errors")
		case len(counts) < len(at):
			l.unknown(f.name, at, "errors of one kind are counted, and of another not")
		case counts["correctable"] > 0:
			l.pass(f.name, at, "%d corrected", counts["correctable"])
		default:
			l.pass(f.name, at, "none")
		}
	}
	if log := l.log(); log.err == nil {
		for _, h := range log.of(l, l.check.ID) {
			l.warn("", log.at(), "%s", h.line)
		}
	}
}

// unplaced is a function and its BAR for which there was no room. Those of its
// virtual functions ("VF BAR 0") do not count.
var unplaced = regexp.MustCompile(`([0-9a-f]{4,}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]): BAR ([0-5])[ :].*(?:can't assign; no space|failed to assign)`)

func (l *look) barAssigned() {
	all := l.endpoints()
	if len(all) == 0 {
		l.skip("no GPU and no NIC on PCI")
	}
	complaints := map[string]string{} // by function and BAR
	log := l.log()
	if log.err == nil {
		for _, line := range log.lines {
			if m := unplaced.FindStringSubmatch(line); m != nil {
				complaints[m[1]+" "+m[2]] = line
			}
		}
	}
	for _, f := range all {
		r := l.read("sys", f.dir, "resource")
		if r.err != nil {
			l.unread(f.name, r)
			continue
		}
		var unset []string
		complaint, placed := "", false
		regions, err := pci.Regions(l.m.sys, f.PCI)
		for _, region := range regions {
			switch {
			case region.Memory() && !region.Placed():
				unset = append(unset, strconv.Itoa(region.Index))
			case !region.Memory() && region.Start == 0:
				// One without room is reset, and looks like none at all.
				complaint = cmp.Or(complaints[fmt.Sprintf("%v %d", f.PCI, region.Index)], complaint)
			}
			placed = placed || region.Memory()
		}
		switch {
		case err != nil:
			l.unknown(f.name, r.at(), "not understood")
		case len(unset) > 0:
			l.fail(f.name, r.at(), "no address: BAR %s", strings.Join(unset, ", "))
		case complaint != "":
			l.fail(f.name, []string{"/dev/kmsg"}, "%s", complaint)
		case !placed && log.err != nil:
			l.unknown(f.name, append(r.at(), log.where), "no BAR is there, and the kernel's log, which would say that one found no room, cannot be read")
		case !placed:
			l.unknown(f.name, append(r.at(), log.where), "no BAR is there, and the kernel's log does not say that one found no room")
		default:
			l.pass(f.name, r.at(), "each has one")
		}
	}
}

func (l *look) powered() {
	gpus := l.gpuFunctions()
	if len(gpus) == 0 {
		l.skip("no GPU on PCI")
	}
	for _, gpu := range gpus {
		var at []string
		asleep, unread, cold := "", "", ""
		for _, f := range l.way(gpu) {
			r := l.read("sys", f.dir, "power/runtime_status")
			at = append(at, r.where)
			switch powerOf(r) {
			case PowerSuspended:
				asleep = f.PCI.String()
				if r := l.read("sys", f.dir, "d3cold_allowed"); r.text == "1" {
					cold = ", perhaps without power (d3cold_allowed: 1)"
				}
			case PowerUnknown:
				unread = orText(r)
			}
		}
		at = at[:min(len(at), shownFiles)]
		switch {
		case asleep != "":
			l.warn(gpu.name, at, "%s is suspended%s", asleep, cold).fix("keep it awake", "echo on > /sys/bus/pci/devices/"+gpu.PCI.String()+"/power/control", "an idle GPU saves no power")
		case unread != "":
			l.unknown(gpu.name, at, "%s", unread)
		default:
			l.pass(gpu.name, at, "active")
		}
	}
}

// nodeOf is a function's NUMA node, negative if it is not known.
func (l *look) nodeOf(a Addr) int {
	if f := l.function(a); f.err == nil {
		return f.NUMANode
	}
	return -1
}

// oneNode reports a machine that is known to have a single NUMA node.
func (l *look) oneNode() bool { return l.read("sys/devices/system/node/online").text == "0" }

func (l *look) nodes() {
	gpus, nics := l.gpuFunctions(), l.nicFunctions()
	if len(gpus) == 0 || len(nics) == 0 {
		l.skip("no pair on PCI")
		return
	}
	for _, g := range gpus {
		at := []string{"/sys/" + g.dir + "/numa_node"}
		near, open := 0, g.err != nil
		for _, n := range nics {
			if n.err == nil && n.NUMANode == g.NUMANode {
				near++
			}
			open = open || n.err != nil || n.NUMANode < 0
		}
		switch r := l.read("sys", g.dir, "numa_node"); {
		case r.err != nil && !r.gone():
			l.unread(g.name, r)
		case g.NUMANode < 0 && l.oneNode():
			l.pass(g.name, at, "the machine has one node").Expect = ""
		case g.NUMANode < 0:
			l.unknown(g.name, at, "the firmware names no node")
		case near > 0:
			l.pass(g.name, at, "node %d, with %s", g.NUMANode, plural(near, "NIC"))
		case open:
			l.unknown(g.name, at, "the node of a NIC is not known")
		default:
			l.warn(g.name, at, "node %d, which has no NIC", g.NUMANode)
		}
	}
}

func (l *look) atomics() {
	gpus := l.driven("amdgpu")
	if len(gpus) == 0 {
		l.skip("no GPU of amdgpu")
	}
	for _, g := range gpus {
		f := l.function(*g.Exporter.PCI)
		at := []string{"/sys/" + f.dir + "/config"}
		x, _, err := f.config.Express()
		err = firstError(f.err, f.cfgErr, err)
		blocked := ""
		for _, up := range f.Upstream {
			port := l.function(up)
			p, _, e := port.config.Express()
			err = firstError(err, port.err, port.cfgErr, e)
			if p.AtomicsBlocked {
				blocked = port.name
			}
		}
		switch {
		case err != nil:
			l.unknown(f.name, at, "%s", reading{err: err}.why()).asRoot(l.m)
		case !x.AtomicRequests:
			l.warn(f.name, at, "it may send none")
		case blocked != "":
			l.warn(f.name, at, "%s blocks them", blocked)
		default:
			l.pass(f.name, at, "it may")
		}
	}
}

// firstVMD is the first domain that the kernel gives to VMD controllers.
const firstVMD = 0x10000

func (l *look) vmd() {
	all := l.endpoints()
	if len(all) == 0 {
		l.skip("no GPU and no NIC on PCI")
	}
	for _, f := range all {
		if f.PCI.Domain >= firstVMD {
			l.warn(f.name, nil, "domain %x", f.PCI.Domain)
			continue
		}
		l.pass(f.name, nil, "domain %04x", f.PCI.Domain)
	}
}
