// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

// mayPass are files whose loss or change is an answer of its own, by the check and
// the mangling: "" is any. Names are patterns. The reason is for who adds one.
var mayPass = []struct{ check, file, how, why string }{
	{"", "cmdline", "empty half", "the command line of a kernel may have nothing in it, or less"},
	{"", "environ", "empty half", "so may the environment"},
	{"", "kmsg", "half", "a log that has said less"},
	{"", "cgroup", "half", "another group's name"},
	{"", "mem_info_vram_total", "half", "half of a number is a number"},
	{"", "class", "half", "half of a number is a number, of a device that is no GPU"},
	{"", "resource0_resize", "absent", "the BAR cannot be resized"},
	{"", "numa_balancing", "absent", "the kernel has none"},
	{"", "allow_unsafe_interrupts", "absent", "the module is not loaded"},
	{"", "sys", "absent directory", "a machine without devices"},
	{"", "devices", "absent directory", "a machine without PCI"},
	{"", "infiniband", "absent directory", "a machine without RDMA devices"},
	{"", "0000:??:??.?", "absent directory", "the device is gone"},
	{"", "mlx5_?", "absent directory", "the device is gone, or tells nothing"},
	{"", "bnxt_re?", "absent directory", "the device is gone, or tells nothing"},
	{"", "ports", "", "NIC-STATE says that no port can be read"},
	{"", "gids", "", "NET-GID says that the table cannot be read; it names the network devices"},
	{"", "taint", "empty", "the module is the kernel's own"},
	{"", "runtime_status", "absent", "the kernel has no runtime power management"},
	{"", "nvidia_peermem", "absent", "the module is not loaded"},
	{"", "netns_mode", "absent", "the module is not loaded"},
	{"", "pcie_p2p", "absent", "the driver has no such parameter"},
	{"", "vram_bar_size", "absent", "the driver has no such parameter, and the BAR is whole"},
	{"", "p2pmem", "absent", "the function gives no memory to others"},
	{"", "memory_peers", "absent", "ib_core has no such interface"},
	{"", "physfn", "absent", "it is no virtual function"},
	{"", "rdma.max", "absent", "the group has no such controller"},
	{"", "accel", "absent directory", "the GPU has no such device file"},
	{"", "mig", "absent directory", "the GPU has no instances"},
	{"", "driver", "", "a device without a driver, or of another, which other checks say"},
	{"NV-MIG", "capabilities", "directory", "the driver has none"},
	{"KRN-VERSION", "osrelease", "half", "another release"},
	{"KRN-CFG-MOVE-NOTIFY", "config-7.2.12+deb13-amd64", "", "7.2 needs no such option, and no kernel of 7.2 has a file that says otherwise"},
	{"AMD-PARAM", "amdgpu", "directory", "the driver has no such parameter"},
	{"ISO-GROUP", "iommu_group", "absent", "there is no IOMMU"},
	{"ISO-IOMMU-MODE", "iommu_group", "absent", "there is no IOMMU"},
	{"NIC-FW", "fw_ver", "absent", "the driver tells none"},
	{"NIC-FW", "board_id", "absent empty noise half", "a board of another kind, whose firmware is another"},
	{"ENV-CONTAINER", ".dockerenv", "absent unreadable", "only its name says something, and a copy may lack it"},
	{"ENV-CONTAINER", "cgroup", "absent", "a kernel without control groups; the namespaces are asked"},
	{"ENV-CONTAINER", "mnt", "", "what is mounted at the root is asked then, which is an overlay nowhere here"},
	{"NIC-DATADIRECT", "mlx5_ib", "absent directory", "the driver has no function"},
	{"CTR-LIBS", "libibverbs.so.1.*", "absent", "there is one libibverbs less"},
	{"CTR-LIBS", "lib", "absent directory", "a directory of libraries less"},
	{"CTR-LIBS", "lib*-rdmav*.so", "empty half", "that it is there is what is asked"},
	{"PCIE-LINK", "cpuinfo", "", "whether this is a guest is not known then, which ENV-VM says"},
	{"PCIE-LINK", "kmsg", "", "the links themselves are asked; the log says it of some once more"},
	{"PCIE-AER", "kmsg", "", "the counters are asked; the log says it of some once more"},
	{"PCIE-BAR-ASSIGNED", "kmsg", "", "a GPU with a BAR need not have another"},
}

// excused looks for an entry of mayPass.
func excused(check, name, how string) bool {
	return slices.ContainsFunc(mayPass, func(e struct{ check, file, how, why string }) bool {
		return (e.check == "" || e.check == check) && matches(e.file, filepath.Base(name)) && (e.how == "" || slices.Contains(strings.Fields(e.how), how))
	})
}

func matches(pattern, name string) bool {
	ok, err := filepath.Match(pattern, name)
	return ok && err == nil
}

// sampled is one of how many of the runs that need the whole machine read anew.
const sampled = 2003

// ways is one of how many manglings each case tries on a file that only its check
// reads; the next case tries others.
const ways = 5

// Whatever a check says of a machine where it does not pass, nothing that becomes of
// a file makes it pass, or say that it does not apply. What only the check reads is
// mangled in some of the ways, in others for the next case. Of what finds the devices,
// which is the same for all checks, there is a sample, another one for each case:
// without a device a check may well not apply.
func TestNoCasePassesMangled(t *testing.T) {
	n := 0
	cases := checkCases()
	for _, check := range Checks() { // in their order: the sample is the same each time
		id := check.ID
		for i, c := range cases[id] {
			if c.want == pass || c.want == skip {
				continue
			}
			root := written(t, testenv.Machines[c.on](), c.edits)
			var m *Machine
			var s Subject
			var unread error
			open := func() { m, s, unread = only(root, id, c.live) }
			shared := reads(t, root, open)
			unread = nil // by the case itself
			own := without(reads(t, root, func() { m.Check(s) }), shared)
			judge := func(name, how string, skips bool) {
				found := m.Check(s)
				for _, f := range found {
					sane(t, f)
				}
				if r := worst(found); (r == pass || r == skip && skips) && unread == nil {
					if excused(id, name, how) {
						return
					}
					t.Errorf("%s/%d_%v, %s in %s: %v", id, i, c.want, how, strings.TrimPrefix(name, root), said(found))
				}
			}
			times := map[string]int{}
			for j, name := range own {
				// Of alike devices two are enough, and what all is below of is TestCopies'.
				if times[filepath.Base(name)]++; times[filepath.Base(name)] > 2 || strings.Count(strings.TrimPrefix(name, root), "/") < 3 && strings.HasPrefix(name, root+"/sys") {
					continue
				}
				for k, how := range manglings {
					if (i+j+k)%ways == 0 {
						mangled(t, root, name, how, func() { judge(name, how, true) })
					}
				}
			}
			for _, name := range shared {
				for _, how := range manglings {
					if n++; n%sampled == 8 {
						mangled(t, root, name, how, func() { open(); judge(name, how, false) })
					}
				}
			}
		}
	}
}

// written is a machine that was changed, in files.
func written(t *testing.T, tree testenv.Tree, edits []edit) string {
	t.Helper()
	var later []func(*testing.T, string)
	for _, e := range edits {
		if f := e(&tree); f != nil {
			later = append(later, f)
		}
	}
	root := tree.Write(t)
	for _, f := range later {
		f(t, root)
	}
	return root
}

// only is all that a machine has, for one check.
func only(root, id string, live Live) (*Machine, Subject, error) {
	m := Open(root)
	s, err := inventory(m)
	s.Live = live
	for _, c := range Checks() {
		if c.ID != id {
			s.Skip = append(s.Skip, c.ID)
		}
	}
	return m, s, err
}
