// SPDX-License-Identifier: Apache-2.0

package p2p_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/chain"
)

// reads are the files that judging the pair looks at, by their paths below root.
func (b *bed) reads() []string {
	seen := map[string]bool{}
	stop := testenv.WatchFiles(b.t, b.root, func(name string) error {
		if rel, err := filepath.Rel(b.root, name); err == nil && !strings.HasPrefix(rel, "..") {
			seen[rel] = true
		}
		return nil
	})
	defer stop()
	b.judge()
	return slices.Sorted(maps.Keys(seen))
}

// denied judges with one file that answers EACCES.
func (b *bed) denied(file string) judged {
	name := filepath.Join(b.root, file)
	stop := testenv.WatchFiles(b.t, b.root, func(asked string) error {
		if asked == name || strings.HasPrefix(asked, name+"/") {
			return unix.EACCES
		}
		return nil
	})
	defer stop()
	return b.judged()
}

var pciAddress = regexp.MustCompile(`[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]`)

// role is what a file is to the pair: its path with the part that a function plays in place of the
// function's address, and with the names of the machine's own devices taken out.
func (b *bed) role(file string) string {
	roles := map[string]string{b.s.gpu: "GPU", b.s.at: "NIC"}
	for _, end := range []string{b.s.gpu, b.s.at} {
		for _, a := range b.up(end) {
			roles[a] = "PORT"
		}
		roles[rootPort(b, end)] = "ROOTPORT"
	}
	if b.s.below != "" {
		for _, a := range b.way() {
			roles[a] = "WAYPORT"
		}
	}
	for _, a := range b.hosts() {
		if roles[a] == "" {
			roles[a] = "HOST"
		}
	}
	name := func(a string) string {
		if role := roles[a]; role != "" {
			return role
		}
		return "OTHER"
	}
	for _, dir := range []string{"sys/bus/pci/devices/", "sys/devices/"} {
		rest, ok := strings.CutPrefix(file, dir)
		if !ok {
			continue
		}
		at := pciAddress.FindAllStringIndex(rest, -1)
		if len(at) == 0 {
			break
		}
		last := at[len(at)-1]
		return strings.ReplaceAll(name(rest[last[0]:last[1]])+rest[last[1]:], b.s.nic, "RDMA")
	}
	if rest, ok := strings.CutPrefix(file, b.uverbs()); ok {
		return "UVERBS" + rest
	}
	release, _ := b.config()
	file = strings.ReplaceAll(file, release, "RELEASE")
	file = strings.ReplaceAll(file, "/"+b.s.nic, "/RDMA")
	return pciAddress.ReplaceAllStringFunc(file, name)
}

// sight is what follows where a file of a role cannot be read.
type sight struct {
	role string // a regular expression of the whole role
	on   func(*subject) bool
	link []chain.Link // those that say so; none where the pair is direct still
	gone bool         // GPU or NIC is not listed, and the inventory says why
	why  string
}

func blocks(role string, on func(*subject) bool, links ...chain.Link) sight {
	return sight{role: role, on: on, link: links}
}

func unlisted(role, why string) sight { return sight{role: role, gone: true, why: why} }

func bearsNot(role string, on func(*subject) bool, why string) sight {
	return sight{role: role, on: on, why: why}
}

// sights are in the order in which the first that fits a file counts.
var sights = []sight{
	unlisted(`sys|sys/bus/pci/devices|sys/class/infiniband|sys/class/infiniband/RDMA`, "nothing is listed, and the inventory's error says so"),
	unlisted(`GPU|GPU/class`, "whether the function is a GPU is not known"),
	blocks(`GPU/(vendor|device|driver)`, nil, chain.Library, chain.Route, chain.Attach),

	// Library.
	blocks(`GPU/mem_info_(vis_)?vram_total`, isAMD, chain.Library),
	bearsNot(`GPU/mem_info_(vis_)?vram_total`, isNVIDIA, "amdgpu's files"),
	bearsNot(`proc/driver/nvidia/gpus/GPU/information`, nil, "the device id is in the table, and on a machine that is no guest it is not a vGPU's"),
	bearsNot(`proc/driver/nvidia/gpus/OTHER/information`, nil, "another GPU's"),
	bearsNot(`proc/driver/nvidia/gpus`, nil, "it names GPUs that are in sysfs, too"),
	blocks(`GPU/physfn`, nil, chain.Library),

	// Route.
	blocks(`sys/class/infiniband_verbs|UVERBS(/ibdev)?`, nil, chain.Route),
	bearsNot(`sys/class/infiniband_verbs/.*`, nil, "the NIC has a uverbs device"),
	blocks(`sys/class/infiniband/RDMA/device/driver`, nil, chain.Route, chain.Attach),
	blocks(`sys/class/infiniband/RDMA/parent`, all(byDMABuf, noPeer), chain.Route),
	bearsNot(`sys/class/infiniband/RDMA/parent`, hasPeer, "the peer-memory client registers for the NIC's driver"),
	blocks(`sys/module/(mlx5_ib|bnxt_re)(/taint)?`, all(byDMABuf, noPeer), chain.Route),
	bearsNot(`sys/module/mlx5_ib(/taint|/version)?`, hasPeer, "the peer-memory client registers for the NIC's driver"),
	blocks(`sys/module/ib_uverbs(/taint)?`, inbox, chain.Route),
	blocks(`sys/module/nvidia(/taint)?`, all(isNVIDIA, byDMABuf, noPeer), chain.Route),
	bearsNot(`sys/module/nvidia(/taint)?`, hasPeer, "nvidia-peermem registers memory of either modules"),
	blocks(`sys/module`, noPeer, chain.Route),
	blocks(`proc/sys/kernel/osrelease`, nil, chain.Route),
	bearsNot(`proc/version`, nil, "osrelease has the release"),
	blocks(`(boot|lib/modules/RELEASE)/config(-RELEASE)?`, all(is(amdgpu), func(s *subject) bool { return s.name != "case-10-w7900-coreos" }), chain.Route, chain.Decision),
	blocks(`boot/config-RELEASE`, all(mlx5, inbox), chain.Route),
	bearsNot(`boot/config-RELEASE`, nil, "neither bnxt_re, MLNX_OFED's mlx5 nor NVIDIA's driver ask for an option"),
	bearsNot(`proc/config.gz|proc/kallsyms|usr/.*|lib/modules/.*`, nil, "the configuration is in boot"),
	blocks(`sys/kernel/mm/memory_peers/(nv_mem|amdkfd)/version`, onlyPeer, chain.Route, chain.Library, chain.Attach),

	// Attach.
	blocks(`proc/driver/nvidia/params`, gated, chain.Attach),
	blocks(`proc/driver/nvidia/params`, is(coherent), chain.Attach),
	blocks(`proc/driver/nvidia/params`, translates, chain.Addresses),
	bearsNot(`proc/driver/nvidia/version|sys/module/nvidia/version`, nil, "each of the two has the version"),
	blocks(`GPU/power/runtime_status`, is(amdgpu), chain.Attach),
	bearsNot(`GPU/power/runtime_status`, nil, "the driver wakes the GPU when it exports"),
	blocks(`sys/module/amdgpu(/taint)?`, is(amdgpu), chain.Attach),
	bearsNot(`sys/module/amdgpu(/taint)?`, is(amdDKMS), "the kernel's own amdgpu has no peer-memory client, and this one is registered"),

	// Addresses.
	blocks(`NIC|NIC/iommu_group(/type)?`, nil, chain.Addresses, chain.Attach, chain.Decision),
	blocks(`NIC/dma_mask_bits`, not(handsIOVAs), chain.Addresses, chain.Attach),
	blocks(`GPU/resource`, nil, chain.Addresses, chain.Attach),

	// Fabric.
	blocks(`(GPU|NIC|WAYPORT)/config|WAYPORT`, onSwitch, chain.Fabric, chain.Addresses),
	blocks(`NIC/config`, all(handsIOVAs, not(is(coherent))), chain.Fabric),
	bearsNot(`(GPU|NIC)/config`, overRoot, "no port on the way is asked for ACS, and what answers with ones can be read"),
	bearsNot(`WAYPORT/.*`, onSwitch, "the kind of a port is no part of any rule"),
	blocks(`ROOTPORT|ROOTPORT/config`, all(overRoot, not(is(coherent))), chain.Fabric),
	bearsNot(`ROOTPORT/config`, nil, "the traffic does not leave the switch, or goes over the processor"),
	blocks(`HOST|HOST/(class|vendor|device|driver)|sys/devices/pci[0-9a-f:]+`, all(overRoot, byRoot(listed)), chain.Fabric),
	bearsNot(`(HOST|ROOTPORT)(/.*)?|sys/devices/pci[0-9a-f:]+`, nil, "the traffic does not reach the root complex, or passes whatever the host bridge is"),
	blocks(`proc/cpuinfo`, nil, chain.Fabric, chain.Library, chain.Attach),
	blocks(`sys/class/dmi/id/(sys_vendor|product_name)`, is(coherent), chain.Library, chain.Fabric),
	bearsNot(`sys/class/dmi/id/(sys_vendor|product_name)`, nil, "an x86 processor says itself that there is a hypervisor"),
	blocks(`NIC/physfn`, all(handsIOVAs, not(is(coherent))), chain.Fabric),
	bearsNot(`NIC/physfn`, nil, "whether the NIC is a virtual function is asked where a port redirects"),

	// No link.
	blocks(`sys/class/iommu`, nil, chain.Addresses, chain.Attach, chain.Decision),         // where a function has no link to a group
	blocks(`sys/kernel/iommu_groups`, nil, chain.Addresses, chain.Attach, chain.Decision), // where a function has no link to a group
	bearsNot(`dev/kmsg`, nil, "the log only takes away"),
	bearsNot(`(GPU|NIC|ROOTPORT|HOST)/(numa_node|subsystem_vendor|subsystem_device)`, nil, "a node is a matter of speed, and the driver names the model"),
	bearsNot(`NIC/(class|vendor|device|driver|infiniband/RDMA)`, nil, "the NIC is an RDMA device, by whose own link its driver is found"),
	bearsNot(`sys/class/infiniband/RDMA/(importer|node_guid|node_type|ports.*)`, nil, "ports, addresses and names are no part of a registration"),
	bearsNot(`OTHER(/.*)?|sys/class/infiniband/[^/]+(/.*)?`, nil, "another device's"),
	bearsNot(`sys/class/net/.*|sys/class/drm|sys/class/mem`, nil, "no link rests on it"),
}

// unreadSubjects are of different kinds.
func unreadSubjects() []*subject {
	var out []*subject
	for _, s := range subjects {
		switch s.name {
		case "case-10-w7900-coreos", "case-17-memlock", "daos-h100-nvl-rocky10":
			continue
		}
		out = append(out, s)
	}
	return out
}

// Each file that judging a direct pair looks at is made unreadable: the pair is direct still only
// where the file bears on no link, and otherwise the link that rests on it says so.
func TestUnreadable(t *testing.T) {
	testenv.Exhaustive(t)
	used := map[int]bool{}
	patterns := make([]*regexp.Regexp, len(sights))
	for i, s := range sights {
		patterns[i] = regexp.MustCompile(`^(?:` + s.role + `)$`)
	}
	n := 0
	for _, s := range unreadSubjects() {
		b := newBed(t, s)
		before := b.judged()
		seen := map[string]bool{}
		for _, file := range b.reads() {
			role := b.role(file)
			i := slices.IndexFunc(patterns, func(p *regexp.Regexp) bool { return p.MatchString(role) })
			for ; i >= 0 && i < len(sights) && !(patterns[i].MatchString(role) && (sights[i].on == nil || sights[i].on(s))); i++ {
			}
			if i < 0 || i == len(sights) {
				t.Errorf("%s: nothing is said of %s (%s)", s.title(), role, file)
				continue
			}
			used[i] = true
			// Those of other devices, and the ports' attributes, are alike.
			if x := sights[i]; seen[role] && x.link == nil {
				continue
			}
			seen[role] = true
			n++
			after := b.denied(file)
			if problem := sights[i].check(before, after); problem != "" {
				t.Errorf("%s: with %s unreadable the pair %s", s.title(), role, problem)
			}
		}
	}
	for i, s := range sights {
		if !used[i] {
			t.Errorf("no machine has a file %s (%s)", s.role, s.why)
		}
	}
	if os.Getenv("GPURDMA_CORPUS") != "" {
		t.Logf("%d files", n)
	}
}

// check says what is wrong with a verdict where the file cannot be read.
func (x sight) check(before, after judged) string {
	link, _ := after.pair.Verdict.Decides()
	direct := after.listed && after.outcome() == chain.Direct
	switch {
	case x.gone && after.listed:
		return fmt.Sprintf("is listed, and %v", after.pair.Verdict)
	case x.gone:
	case !after.listed:
		return "is not listed"
	case x.link == nil && !direct:
		return fmt.Sprintf("should be direct (%s), and is %v", x.why, after.pair.Verdict)
	case x.link != nil && direct:
		return fmt.Sprintf("is direct: %v", after.pair.Verdict)
	case x.link != nil && after.outcome() != chain.OutcomeUnknown:
		return fmt.Sprintf("should be unknown, and is %v", after.pair.Verdict)
	case x.link != nil && !slices.Contains(x.link, link):
		return fmt.Sprintf("is decided by %v, want %v: %v", link, x.link, after.pair.Verdict)
	}
	return ""
}

// A copy with the PCI functions alone does not show whether there is an IOMMU: a function without a
// group may be below one.
func TestGroupsNotCopied(t *testing.T) {
	n := 0
	for _, s := range unreadSubjects() {
		b := newBed(t, s)
		if !b.has("sys/kernel/iommu_groups") || b.has("sys/bus/pci/devices/"+s.at+"/iommu_group") || is(coherent)(s) {
			continue
		}
		n++
		b.drop("sys/kernel/iommu_groups")
		b.drop("sys/class/mem")
		if p, _ := b.judge(); p.Verdict.Outcome() == chain.Direct {
			t.Errorf("%s: direct", s.title())
		}
		b.put("sys/class/mem", "") // a whole sysfs, of a kernel that knows of no IOMMU
		if p, _ := b.judge(); p.Verdict.Outcome() != chain.Direct {
			t.Errorf("%s with a whole sysfs: %v", s.title(), p.Verdict.Outcome())
		}
	}
	if n == 0 {
		t.Error("no machine without an IOMMU was tried")
	}
}
