// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/directnic"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// ACSPlan returns the ACS that the ports of a machine need, if its GPUs and ConnectX NICs are connected
// in a way that needs a certain ACS.
func ACSPlan(m *machine.Machine) directnic.Plan {
	return machine.Once(m, "ACS plan", func() directnic.Plan {
		if !mayHavePlan(m) {
			return directnic.Look(nil, directnic.Unknown)
		}
		plan := directnic.Look(plannable(m), directnic.Unknown)
		if plan.Remedy.Parameter != "" {
			plan.Remedy.Parameter = directnic.Parameter(directnic.Join(plan.Entries(), configuredACS(m)))
			plan.Remedy.Change += onlyFirst(m, plan.Remedy.Parameter)
		}
		return plan
	})
}

// configuredACS returns the entries of pci=config_acs= on the kernel's command line, up to one that the
// kernel cannot read.
func configuredACS(m *machine.Machine) []directnic.Entry {
	entries, _ := directnic.ParseConfigACS(m.PciOption("config_acs"))
	return entries
}

// onlyFirst is a warning about a parameter with several entries for a kernel that may read only the first.
func onlyFirst(m *machine.Machine, parameter string) string {
	if !strings.Contains(parameter, ";") || directnic.ReadsLists(m.Kernel.Release) == directnic.Yes {
		return ""
	}
	return "; a kernel without commit 9cf8a952d57b (in 6.15, 6.14.2, 6.13.11 and 6.12.23) reads only the first entry of config_acs="
}

// GivenAway judges each pair of a NIC and a GPU that the machine gives to guests.
func GivenAway(m *machine.Machine) []directnic.Finding {
	return machine.Once(m, "pairs of guests", func() []directnic.Finding {
		if !givesGPUs(m) {
			return nil
		}
		noATS := directnic.No
		switch {
		case m.Read("proc/cmdline").Err != nil:
			noATS = directnic.Unknown
		case slices.ContainsFunc(m.BootWords(), func(word string) bool {
			options, is := strings.CutPrefix(word, "pci=")
			return is && slices.Contains(strings.Split(options, ","), "noats")
		}):
			noATS = directnic.Yes
		}
		found := directnic.Passthrough(plannable(m), noATS)
		// The kernel uses only one config_acs=: each remedy has the entries for all pairs.
		all := directnic.Together(found, configuredACS(m))
		for i := range found {
			if r := &found[i].Remedy; r.Parameter != "" {
				r.Parameter = all
				r.Change += onlyFirst(m, all)
			}
		}
		return found
	})
}

// GuestNICs returns the PCI addresses of the network functions that the machine gives to guests.
func GuestNICs(m *machine.Machine) []pciaddr.Addr {
	return machine.Once(m, "NICs of guests", func() []pciaddr.Addr {
		var out []pciaddr.Addr
		for _, a := range functionsOf(m, func(class uint64) bool { return class>>16 == networks }) {
			if driver, err := m.Sys.Link(path.Join(functionDir, a.String(), "driver")); err == nil && directnic.GivenAway(driver) {
				out = append(out, a)
			}
		}
		return out
	})
}

// canMove reports a class that DMA functions of ConnectX have.
func canMove(class uint64) bool { return class>>16 == networks || class>>8 == dmaControllers }

// mayHavePlan reports a machine with a GPU of NVIDIA's or a DMA function of ConnectX, or one on which
// that could not be read. Each plan has one of them.
func mayHavePlan(m *machine.Machine) bool {
	is := func(a pciaddr.Addr, file string, want uint64) bool {
		n, err := m.Sys.ReadUint(path.Join(functionDir, a.String(), file), 16)
		return err != nil || n == want
	}
	gpus := functionsOf(m, func(class uint64) bool { return class>>16 == displays })
	return slices.ContainsFunc(gpus, func(a pciaddr.Addr) bool { return is(a, "vendor", machine.VendorNVIDIA) }) ||
		slices.ContainsFunc(functionsOf(m, canMove), func(a pciaddr.Addr) bool {
			return is(a, "device", directnic.DMAFunction) && is(a, "vendor", machine.VendorMellanox)
		})
}

// givesGPUs reports a machine that gives GPUs to guests, or one on which that could not be read.
func givesGPUs(m *machine.Machine) bool {
	gpus := functionsOf(m, func(class uint64) bool { return class>>16 == displays || class>>16 == accelerators })
	return slices.ContainsFunc(gpus, func(a pciaddr.Addr) bool {
		driver, err := m.Sys.Link(path.Join(functionDir, a.String(), "driver"))
		return err != nil && !errors.Is(err, fs.ErrNotExist) || directnic.GivenAway(driver)
	})
}

// plannable reads the bridges, GPUs, NICs and DMA functions of a machine.
func plannable(m *machine.Machine) []directnic.Function {
	return machine.Once(m, "functions of the ACS plan", func() []directnic.Function {
		var out []directnic.Function
		for _, a := range functionsOf(m, plays) {
			dir := path.Join(functionDir, a.String())
			if m.Sys.Exists(path.Join(dir, "physfn")) {
				if driver, err := m.Sys.Link(path.Join(dir, "driver")); err == nil && !directnic.GivenAway(driver) {
					continue // there may be thousands, and their physical function stands for them
				}
			}
			if f, err := pci.ReadFunction(m.Sys, a); err == nil {
				out = append(out, planned(m, f))
			}
		}
		return out
	})
}

const functionDir = "bus/pci/devices"

// functionsOf are the PCI functions of some classes, and those whose class could not be read.
func functionsOf(m *machine.Machine, are func(class uint64) bool) []pciaddr.Addr {
	type function struct {
		pciaddr.Addr
		class  uint64
		unread bool
	}
	all := machine.Once(m, "functions that a plan can have", func() (out []function) {
		names, err := m.Sys.List(functionDir)
		if err != nil {
			return nil // the inventory reports it
		}
		for _, name := range names {
			a, err := pciaddr.Parse(name)
			if err != nil {
				continue
			}
			class, read := drivers.SeenClass(m, a)
			if !read {
				class, err = m.Sys.ReadUint(path.Join(functionDir, name, "class"), 32)
			}
			if err != nil || plays(class) {
				out = append(out, function{a, class, err != nil})
			}
		}
		return out
	})
	var out []pciaddr.Addr
	for _, f := range all {
		if f.unread || are(f.class) {
			out = append(out, f.Addr)
		}
	}
	return out
}

// Base classes of functions that a plan can have, and two whole classes.
const (
	networks, displays, accelerators = 0x02, 0x03, 0x12
	bridges, dmaControllers          = 0x0604, 0x0801
)

// plays reports the class of functions that a plan can have.
func plays(class uint64) bool {
	switch class >> 16 {
	case networks, displays, accelerators:
		return true
	}
	return class>>8 == bridges || class>>8 == dmaControllers
}

func planned(m *machine.Machine, f pci.Function) directnic.Function {
	n := m.Node(f.Addr)
	out := directnic.Function{
		Addr: f.Addr, Vendor: f.Vendor, Device: f.Device, Class: f.Class, Upstream: n.Up,
		ACS: n.ACS, ACSErr: machine.FirstError(n.Err, n.ACSErr), Node: f.NUMANode, Driver: f.Driver,
	}
	config, err := pci.ReadConfig(m.Sys, f.Addr)
	switch {
	case err != nil:
		out.ACSErr = machine.FirstError(out.ACSErr, err)
	case config.Unreachable():
		out.ACSErr = machine.FirstError(out.ACSErr, errNoExtended)
	default:
		present, enabled, err := config.ATS()
		out.ATS = directnic.ATS{Known: err == nil, Capable: present, Enabled: enabled}
	}
	if err == nil {
		if port, err := config.Port(); err == nil {
			out.Port = port
		}
	}
	group, err := pci.IOMMUGroup(m.Sys, f.Addr)
	out.Group, out.GroupKnown = group, err == nil
	if vpd := m.Read("sys/bus/pci/devices", f.Addr.String(), "vpd"); vpd.Err == nil {
		out.VPDRead = true
		out.Card, out.VU = pci.VPDKeyword([]byte(vpd.Text), "V3"), pci.VPDKeyword([]byte(vpd.Text), "VU")
	}
	return out
}

var errNoExtended = errors.New("256 bytes of the configuration can be read, and ACS lies behind them")

// PlannedRemedy returns the change for ports whose ACS the machine's plan decides; nil if the plan has
// none of them. It never stops a port from redirecting, because that would undo the plan.
func PlannedRemedy(m *machine.Machine, ports []string) *chain.Remedy {
	plan := ACSPlan(m)
	if !slices.ContainsFunc(ports, func(port string) bool { return covered(plan, port) }) {
		return nil
	}
	switch {
	case plan.OK() == directnic.Yes && plan.Shape == directnic.DataDirect:
		return &chain.Remedy{Change: "leave the ports' ACS as it is: this machine needs it. Its NICs have a DMA function beside the GPU: to use that, register with mlx5dv_reg_dmabuf_mr() and MLX5DV_REG_DMABUF_ACCESS_DATA_DIRECT"}
	case plan.OK() == directnic.Yes:
		return &chain.Remedy{Change: fmt.Sprintf("leave the ports' ACS as it is: a machine of shape %v needs it", plan.Shape)}
	case plan.Remedy.Change == "":
		return &chain.Remedy{Change: "leave the ports' ACS as it is, and look at what rdma_topo says: " + plan.Why, Command: "rdma_topo check"}
	}
	return fromPlan(plan.Remedy)
}

// GivenAwayRemedy returns the change on the host for a pair that is given to a guest; nil if there is
// none.
func GivenAwayRemedy(f directnic.Finding) *chain.Remedy {
	if f.Remedy.Change == "" {
		return nil
	}
	return fromPlan(f.Remedy)
}

// fromPlan writes a remedy of package directnic as one of a chain.
func fromPlan(r directnic.Remedy) *chain.Remedy {
	out := &chain.Remedy{Change: r.Change, Command: r.Command, Weakens: r.Weakens}
	switch {
	case r.Parameter == "":
	case out.Command == "":
		out.Command = r.Parameter
	case strings.HasPrefix(out.Command, "rdma_topo "):
		out.Change += "; where that command is not there, the kernel's parameter " + r.Parameter + " does the same"
	default:
		out.Change += "; the kernel's parameter for the ports is " + r.Parameter
	}
	return out
}

func covered(plan directnic.Plan, port string) bool {
	a, err := pciaddr.Parse(port)
	return err == nil && plan.Covers(a)
}
