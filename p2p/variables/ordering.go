// SPDX-License-Identifier: Apache-2.0

package variables

import (
	"fmt"
	"slices"

	"github.com/gpurdma/gpurdma/placement"
)

// Ordering says how a processor treats writes from one root port to another that ask for
// strict ordering.
type Ordering struct {
	Processor string
	// Needed is Yes if such writes are slow, so that registrations should ask for
	// relaxed ordering (IBV_ACCESS_RELAXED_ORDERING), and No if the processor is slow
	// with relaxed ordering.
	Needed placement.Answer
	// Inferred says that the source is about another processor of the same line.
	Inferred bool
	// UCX is the first version of UCX that asks for relaxed ordering on this processor
	// by default; "" if none does.
	UCX    string
	Why    string
	Source string
}

type processor struct {
	vendor string
	family int
	models []int
	in     func(model int) bool // in place of models
	Ordering
}

const (
	slowEPYC   = "strict ordering reached 150 Gb/s on EPYC, and relaxed ordering 200 Gb/s"
	slowIntel  = "writes to another root port with strict ordering take a slower path: 16 GB/s in place of more than 40 GB/s"
	quirkIntel = "Linux keeps relaxed ordering off below these root ports: the processor is slow with it"
)

const (
	ucxCPU      = "ucx src/ucs/arch/cpu.h, ucs_cpu_model_prefer_relaxed_order(); openucx/ucx#8062"
	ucxEmerald  = "openucx/ucx#10955, #11532"
	ucxConf     = "ucx config/ucx.conf"
	linuxQuirks = "linux drivers/pci/quirks.c, quirk_relaxedordering_disable(); linux-rdma/perftest#116"
)

// processors is the table. A processor that is not in it is unknown.
var processors = []processor{
	{vendor: "AuthenticAMD", family: 0x17, models: []int{0x29}, Ordering: Ordering{Processor: "AMD Naples", Needed: placement.Yes, UCX: "1.13", Why: slowEPYC, Source: ucxCPU}},
	{vendor: "AuthenticAMD", family: 0x17, models: []int{0x31}, Ordering: Ordering{Processor: "AMD Rome", Needed: placement.Yes, UCX: "1.13", Why: slowEPYC, Source: ucxCPU}},
	{vendor: "AuthenticAMD", family: 0x19, models: []int{0x00, 0x01}, Ordering: Ordering{Processor: "AMD Milan", Needed: placement.Yes, UCX: "1.13", Why: slowEPYC, Source: ucxCPU}},
	{vendor: "AuthenticAMD", family: 0x19, models: []int{0x11, 0x90}, Ordering: Ordering{Processor: "AMD Genoa", Needed: placement.Yes, UCX: "1.16", Why: slowEPYC, Source: ucxCPU}},
	{vendor: "AuthenticAMD", family: 0x1a, in: turin, Ordering: Ordering{Processor: "AMD Turin", Needed: placement.Yes, UCX: "1.19", Why: slowEPYC, Source: ucxCPU}},

	{vendor: "GenuineIntel", family: 6, models: []int{143}, Ordering: Ordering{Processor: "Intel Sapphire Rapids", Needed: placement.Yes, Inferred: true, Why: slowIntel, Source: ucxEmerald}},
	{vendor: "GenuineIntel", family: 6, models: []int{207}, Ordering: Ordering{Processor: "Intel Emerald Rapids", Needed: placement.Yes, UCX: "1.21", Why: slowIntel, Source: ucxEmerald}},
	{vendor: "GenuineIntel", family: 6, models: []int{173, 174}, Ordering: Ordering{Processor: "Intel Granite Rapids", Needed: placement.Yes, Inferred: true, Why: slowIntel, Source: ucxEmerald}},
	{vendor: "GenuineIntel", family: 6, models: []int{63}, Ordering: Ordering{Processor: "Intel Haswell", Needed: placement.No, Why: quirkIntel, Source: linuxQuirks}},
	{vendor: "GenuineIntel", family: 6, models: []int{79, 86}, Ordering: Ordering{Processor: "Intel Broadwell", Needed: placement.No, Why: quirkIntel, Source: linuxQuirks}},

	{vendor: "0x4e", models: []int{0x010}, Ordering: Ordering{Processor: "NVIDIA Vera", Needed: placement.Yes, UCX: "1.22", Why: "UCX asks for relaxed ordering on this processor", Source: ucxConf + "; openucx/ucx#11632"}},
	{vendor: "0x46", models: []int{0x001}, Ordering: Ordering{Processor: "Fujitsu A64FX", Needed: placement.Yes, UCX: "1.9", Why: "UCX asks for relaxed ordering on this processor", Source: ucxConf + "; openucx/ucx#4952"}},
}

// turin are the models of Turin: the table of UCX has ranges.
func turin(m int) bool {
	return m >= 0 && m <= 0x2f || m >= 0x40 && m <= 0x4f || m >= 0x60 && m <= 0x7f
}

// NeedsRelaxedOrdering says whether writes between two root ports of a processor need
// relaxed ordering for their bandwidth. vendor, family and model are those of [CPU]. The
// answer for a processor that the table does not have is unknown.
func NeedsRelaxedOrdering(vendor string, family, model int) Ordering {
	for _, p := range processors {
		if p.vendor != vendor || p.family != family {
			continue
		}
		if p.in != nil && p.in(model) || slices.Contains(p.models, model) {
			return p.Ordering
		}
	}
	return Ordering{}
}

// ordering is that of the machine's processor.
func (j *judging) ordering() Ordering {
	return NeedsRelaxedOrdering(j.CPU.Vendor, j.CPU.Family, j.CPU.Model)
}

// basis says how sure the statement is.
func (o Ordering) basis() string {
	if o.Inferred {
		return " (inferred: the figures are of Emerald Rapids)"
	}
	return ""
}

// strict is the verdict on a value that keeps a library from relaxed ordering. set turns
// it on; "" takes the variable away, because the default has it on.
func (j *judging) strict(library, set string) verdict {
	o := j.ordering()
	change := "let " + library + " register with relaxed ordering"
	if set == "" {
		change = "take the variable away: " + library + " then registers with relaxed ordering"
	}
	switch across := j.across(); {
	case across == placement.No && j.Virtual != placement.No:
		return open("%s registers with strict ordering; below a switch that costs little on bare metal, and in virtual machines half the rate was seen (NVIDIA/nccl#1731)", library)
	case across == placement.No:
		return pass("%s registers with strict ordering; the nearest NIC of each GPU is not behind another root port, where that would cost", library)
	case across == placement.AnswerUnknown:
		return open("%s registers with strict ordering; how far the nearest direct NICs are is not known", library)
	case o.Needed == placement.Yes:
		return warn("%s registers with strict ordering, and on %s %s%s", library, o.Processor, o.Why, o.basis()).so(change, set)
	case o.Needed == placement.No:
		return pass("%s registers with strict ordering, which suits %s: %s", library, o.Processor, o.Why)
	}
	return open("%s registers with strict ordering; what that costs between root ports of this processor is not known", library)
}

// relaxed is the verdict on a value that turns relaxed ordering on.
func (j *judging) relaxed(library string) verdict {
	switch o := j.ordering(); o.Needed {
	case placement.Yes:
		return pass("%s registers with relaxed ordering, which %s needs between root ports", library, o.Processor)
	case placement.No:
		return pass("%s asks for relaxed ordering, without effect on %s: %s", library, o.Processor, o.Why)
	}
	return pass("%s registers with relaxed ordering", library)
}

// lacks is the verdict where a library's default is strict ordering. since is the first
// version that asks for relaxed ordering here; "" if none does.
func (j *judging) lacks(library, since, set string, got placement.Answer) verdict {
	o := j.ordering()
	if o.Needed != placement.Yes || j.across() != placement.Yes || got == placement.Yes {
		return verdict{}
	}
	by := "; " + library + " does not ask for relaxed ordering here by itself"
	if since != "" {
		by = fmt.Sprintf("; %s asks for relaxed ordering by itself from %s on", library, since)
	}
	return warn("on %s %s%s%s", o.Processor, o.Why, o.basis(), by).so("let "+library+" register with relaxed ordering", set)
}
