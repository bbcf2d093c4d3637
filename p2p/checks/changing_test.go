// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/internal/machinetest"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/p2pdma"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// one is a machine with one GPU and one NIC and with many faults.
func one(t *testing.T) string {
	t.Helper()
	tree := testenv.Machines["small-mi300"]()
	for _, e := range []edit{
		cpu(machinetest.Xeon), swap("acs=0x00", "acs=0x1d"), swap("vendor=0x1022 device=0x14a4", "vendor=0x8086 device=0x1"), swap(":identity", ":DMA"), swap("dma_mask_bits=64", "dma_mask_bits=64 devctl=0x10"),
		put(amdGPU+"/mem_info_vis_vram_total", "1"), put(amdGPU+"/power/runtime_status", "suspended"), put(aPort+"/state", "1: DOWN"), put("proc/cmdline", "pci=noats"),
		put(amdNIC+"/current_link_width", "4"), put(amdNIC+"/aer_dev_fatal", "TOTAL_ERR_FATAL 1"), log("AMD-Vi: Event logged [IO_PAGE_FAULT device=0000:14:00.0]"),
	} {
		e(&tree)
	}
	for _, slot := range []string{"0000:12:02.0", "0000:12:03.0"} {
		tree.Functions = strings.Join(slices.DeleteFunc(strings.Split(tree.Functions, "\n"), func(line string) bool { return strings.Contains(line, slot) }), "\n")
		for name := range tree.Files {
			if strings.Contains(name, slot) {
				delete(tree.Files, name)
			}
		}
	}
	delete(tree.Files, "sys/class/infiniband_verbs/uverbs1/ibdev")
	return tree.Write(t)
}

// judged is what all checks and the prediction say of a machine, and why not all of its
// devices could be read.
func judged(root string) (checks map[string]p2p.Result, direct bool, unread error) {
	m := machine.Open(root)
	s, unread := inventory(m)
	byCheck := map[string][]check.Finding{}
	for _, f := range Run(m, s) {
		byCheck[f.Check.ID] = append(byCheck[f.Check.ID], f)
	}
	checks = map[string]p2p.Result{}
	for id, all := range byCheck {
		checks[id] = worst(all)
	}
	direct = slices.ContainsFunc(s.Pairs, func(p p2p.Pair) bool { return p.Prediction.Outcome == chain.Direct })
	return checks, direct, unread
}

// If any access to sysfs fails, or the device is gone from that access on, no result gets better, and no
// check crashes.
func TestSysfsThatChanges(t *testing.T) {
	root := one(t)
	var asked []string
	stop := testenv.WatchFiles(t, root, func(name string) error { asked = append(asked, name); return nil })
	whole, direct, _ := judged(root)
	stop()
	if direct || whole["P2P-VERDICT"] != fail || whole["ISO-FAULTS"] != fail || len(asked) < 200 {
		t.Fatal(direct, whole, len(asked))
	}
	gpu := "/0000:13:00.0/"
	for mode, m := range []struct {
		what   string
		answer func(n, i int, name string) error
	}{
		{"EIO", func(n, i int, _ string) error { return errnoIf(n == i, unix.EIO) }},
		{"ENODEV", func(n, i int, _ string) error { return errnoIf(n == i, unix.ENODEV) }},
		// The function that a driver is unbound from keeps its directory.
		{"EIO from then on", func(n, i int, name string) error { return errnoIf(i >= n && strings.Contains(name+"/", gpu), unix.EIO) }},
		{"all is gone", func(n, i int, _ string) error { return errnoIf(i >= n, unix.ENODEV) }},
	} {
		what, answer := m.what, m.answer
		for n := mode; n < len(asked); n += testStep {
			i := -1
			last := ""
			stop := testenv.WatchFiles(t, root, func(name string) error {
				i++
				if i == n {
					last = name
				}
				return answer(n, i, name)
			})
			checks, direct, unread := judged(root)
			stop()
			if direct {
				t.Errorf("%s at %d: %s: direct", what, n, last)
			}
			for id, r := range checks {
				if r == pass && whole[id] != pass && whole[id] != skip && (unread == nil || unlisted[id] == "") {
					t.Errorf("%s at %d, %s: %s passes, and was %v (%v)", what, n, strings.TrimPrefix(last, root), id, whole[id], unread)
				}
			}
		}
	}
}

// unlisted are checks that pass for the other devices if the bad device could not be listed, which the
// inventory's error says; and why.
var unlisted = map[string]string{
	"ISO-ACS-SOURCE": "with no pair that is known, no port's redirection concerns one",
	"ISO-FAULTS":     "the fault is of the NIC that is not listed",
	"PCIE-LINK":      "the slow link is of the NIC that is not listed, or idle for a GPU that is not",
	"PCIE-MPS":       "the small packets are of the NIC that is not listed",
	"PCIE-AER":       "the errors are of the NIC that is not listed",
}

// testStep is the number of kinds of answers: each access is tried with one of them.
const testStep = 4

func errnoIf(is bool, e unix.Errno) error {
	if is {
		return e
	}
	return nil
}

// A file's text can change between two reads. Where the tree is swapped between two machines, no
// check passes that passes on neither of the two.
func TestMachineThatIsSwapped(t *testing.T) {
	bad := one(t)
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.Mkdir(empty, 0o700); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "machine")
	point := func(to string) {
		t.Helper()
		if err := os.RemoveAll(link); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
	}
	whole, _, _ := judged(bad)
	for _, c := range [][2]string{{bad, empty}, {empty, bad}} {
		for n := 0; ; n += 7 {
			i := 0
			point(c[0])
			stop := testenv.WatchFiles(t, link, func(string) error {
				if i++; i == n {
					point(c[1])
				}
				return nil
			})
			checks, direct, unread := judged(link)
			stop()
			if direct {
				t.Errorf("at %d: direct", n)
			}
			for id, r := range checks {
				if r == pass && whole[id] != pass && whole[id] != skip && (unread == nil || unlisted[id] == "") {
					t.Errorf("at %d: %s passes, and was %v", n, id, whole[id])
				}
			}
			if i < n {
				break
			}
		}
	}
}

// A port that is gone when its ACS is read may redirect.
func TestPortThatIsGone(t *testing.T) {
	root := one(t)
	m := machine.Open(root)
	gpu, nic := machinetest.Addr(t, "0000:13:00.0"), machinetest.Addr(t, "0000:14:00.0")
	for _, a := range []pciaddr.Addr{gpu, nic} {
		if _, err := m.Function(a); err != nil {
			t.Fatal(err)
		}
	}
	testenv.WatchFiles(t, root, func(name string) error {
		return errnoIf(strings.Contains(filepath.Base(name), "0000:1"), unix.ENODEV)
	})
	m.Nodes = map[pciaddr.Addr]*machine.Node{gpu: m.Nodes[gpu], nic: m.Nodes[nic]}
	if d := p2pdma.Decide(m, gpu, &nic); d.Type == p2pdma.MapBusAddress {
		t.Errorf("%v", d)
	}
}
