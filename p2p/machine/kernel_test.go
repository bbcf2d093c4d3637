// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/internal/machinetest"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/placement"
)

func TestKernel(t *testing.T) {
	const yes, no, unknown = placement.Yes, placement.No, placement.AnswerUnknown
	const dir = "lib/modules/6.12.1/"
	type files = map[string]string
	for _, c := range []struct {
		name          string
		f             machinetest.Fixture
		p2pdma, moves placement.Answer
		source        string
		release       string
	}{
		{"7.2", machinetest.Fixture{}, yes, yes, "boot/config-", ""},
		{"6.12 of Debian", machinetest.Fixture{Config: machinetest.WithoutP2P}, no, no, "boot/config-", "6.12.117+deb12-amd64"},
		{"6.12 with both", machinetest.Fixture{Config: machinetest.WithP2P + "CONFIG_DMABUF_MOVE_NOTIFY=y\n"}, yes, yes, "boot/config-", "6.12.1"},
		{"an option that is gone", machinetest.Fixture{Config: machinetest.WithP2P}, yes, yes, "boot/config-", "7.2.1"},
		{"a series that nobody read", machinetest.Fixture{Config: machinetest.WithP2P}, yes, unknown, "boot/config-", "6.19.0"},
		{"one that has the option", machinetest.Fixture{Config: machinetest.WithP2P + "# CONFIG_DMABUF_MOVE_NOTIFY is not set\n"}, yes, no, "boot/config-", "6.19.0"},
		{"a later one", machinetest.Fixture{Config: machinetest.WithP2P}, yes, unknown, "boot/config-", "7.9.0"},
		{"SLES without the line", machinetest.Fixture{Config: machinetest.WithP2P}, yes, unknown, "boot/config-", "6.12.0-160000.5-64kb"},
		{"a line that was taken out", machinetest.Fixture{Config: machinetest.WithP2P}, yes, no, "boot/config-", "6.12.1"},
		{"RHEL without the line", machinetest.Fixture{Config: machinetest.WithP2P}, yes, unknown, "boot/config-", "6.12.0-55.el10.x86_64"},
		{"no release", machinetest.Fixture{Config: "-", Files: files{"proc/config.gz": machinetest.Zipped(t, machinetest.WithP2P)}}, yes, unknown, "config.gz", "rolling"},
		{"without dma-buf", machinetest.Fixture{Config: "CONFIG_PCI=y\n" + testenv.ConfigEnd}, no, no, "boot/config-", "6.12.1"},
		{"a file that was cut", machinetest.Fixture{Config: "CONFIG_PCI=y\n"}, unknown, unknown, "boot/config-", "6.12.1"},
		{"a file that was cut behind the option", machinetest.Fixture{Config: "CONFIG_PCI=y\nCONFIG_DMA_SHARED_BUFFER=y\n# CONFIG_PCI_P2PDMA is not set\n"}, no, unknown, "boot/config-", "6.12.1"},
		{"from /proc", machinetest.Fixture{Config: "-", Files: files{"proc/config.gz": machinetest.Zipped(t, machinetest.WithoutP2P)}}, no, no, "config.gz", "6.12.1"},
		{"from lib/modules", machinetest.Fixture{Config: "-", Files: files{dir + "config": machinetest.WithoutP2P}}, no, no, dir, "6.12.1"},
		{"from headers", machinetest.Fixture{Config: "-", Files: files{"usr/src/linux-headers-6.12.1/.config": machinetest.WithoutP2P}}, no, no, ".config", "6.12.1"},
		{"broken gzip", machinetest.Fixture{Config: "-", Files: files{"proc/config.gz": "no", dir + "config": machinetest.WithP2P}}, yes, no, dir, "6.12.1"},
		{"not a configuration", machinetest.Fixture{Config: "<html>\n"}, unknown, unknown, "is not the configuration", "6.12.1"},
		{"symbol", machinetest.Fixture{Config: "-", Files: files{"proc/kallsyms": "0 T pci_enable_device\n0 T pci_p2pdma_distance_many\n"}}, yes, unknown, "kallsyms", "6.12.1"},
		{"no symbol", machinetest.Fixture{Config: "-", Files: files{"proc/kallsyms": "0 T pci_enable_device\n0 T pci_p2pdma_distance_many_not\n0 T _etext\n"}}, no, unknown, "kallsyms", "6.12.1"},
		{"no symbol on 7.2", machinetest.Fixture{Config: "-", Files: files{"proc/kallsyms": "0 T pci_enable_device\n0 T _etext\n"}}, no, yes, "kallsyms", ""},
		{"no symbols", machinetest.Fixture{Config: "-", Files: files{"proc/kallsyms": ""}}, unknown, unknown, "kallsyms does not have", "6.12.1"},
		{"nothing", machinetest.Fixture{Config: "-"}, unknown, unknown, "no configuration was found", "6.12.1"},
		{"a release that is a path", machinetest.Fixture{Config: "-", Files: files{"config": machinetest.WithP2P}}, unknown, unknown, "no configuration was found", "6.12/../../.."},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.f.Release = c.release
			k := c.f.Open(t).Kernel
			if k.P2PDMA != c.p2pdma || k.MoveNotify != c.moves || !strings.Contains(k.Source, c.source) {
				t.Errorf("P2PDMA %v, move notify %v from %q; want %v, %v, %q", k.P2PDMA, k.MoveNotify, k.Source, c.p2pdma, c.moves, c.source)
			}
		})
	}
}

// A copy without osrelease has the release in /proc/version.
func TestReleaseOfProcVersion(t *testing.T) {
	const text = "Linux version 6.8.0-60-generic (buildd@host) (gcc 13.3.0) #63-Ubuntu SMP\n"
	for _, c := range []struct{ osrelease, version, release, at string }{
		{"", text, "6.8.0-60-generic", "/proc/version"},
		{"6.12.1\n", "", "6.12.1", "/proc/sys/kernel/osrelease"},
		{"6.8.0-60-generic\n", text, "6.8.0-60-generic", "/proc/sys/kernel/osrelease"},
		{"6.8.0-60", text, "6.8.0-60-generic", "/proc/version"}, // cut
		{"6.12.1\n", text, "", "/proc/version"},                 // files of two kernels
		{"6.12.1", "", "", "/proc/sys/kernel/osrelease"},
		{"\n", text, "6.8.0-60-generic", "/proc/version"},
		{"", "Linux version \n", "", "/proc/sys/kernel/osrelease"},
		{"", "noise", "", "/proc/sys/kernel/osrelease"},
		{"", "", "", "/proc/sys/kernel/osrelease"},
	} {
		proc := t.TempDir()
		for name, text := range map[string]string{"sys/kernel/osrelease": c.osrelease, "version": c.version} {
			if text != "" {
				testenv.WriteFile(t, proc+"/"+name, text)
			}
		}
		k := machine.Source{Sys: t.TempDir(), Proc: proc}.Open().Kernel
		if k.Release != c.release || !slices.Equal(k.ReleasedAt(), []string{c.at}) {
			t.Errorf("%q, %q: %q of %v", c.osrelease, c.version, k.Release, k.ReleasedAt())
		}
	}
}

func TestVersion(t *testing.T) {
	for release, want := range map[string]machine.Version{
		"6.12.117+deb12-amd64": {6, 12}, "7.2": {7, 2}, "10.0-rc1": {10, 0}, "6.": {}, "six": {}, "": {}, "-6.1": {}, "0.99": {},
	} {
		if got := machine.ParseVersion(release); got != want {
			t.Errorf("%q: %v, want %v", release, got, want)
		}
	}
}

// The source says that a configuration file is empty, or is not one of a kernel.
func TestOddConfigurations(t *testing.T) {
	for text, want := range map[string]string{"": " is empty", "nonsense\n": " is not the configuration of a kernel"} {
		tree := machinetest.Fixture{Config: "-"}
		tree.Files = map[string]string{"boot/config-7.2.12+deb13-amd64": text}
		m := tree.Open(t)
		if !strings.Contains(m.Kernel.Source, "/boot/config-7.2.12+deb13-amd64"+want) || m.Kernel.P2PDMA != placement.AnswerUnknown {
			t.Errorf("%q: %v, %s", text, m.Kernel.P2PDMA, m.Kernel.Source)
		}
	}
}

// A kernel counts as one with backports unless its name is known to be that of a plain
// kernel.
func TestBackports(t *testing.T) {
	for release, want := range map[string]bool{
		"6.12.1": false, "7.2": false, "7.2.0-rc3": false, "6.12.117+deb12-amd64": false, "6.1.0-18-amd64": false, "6.1.0-18-cloud-arm64": false,
		"6.10.11+bpo-amd64": false, "6.12.9+deb13-arm64-16k": false, "6.12.0-061200-generic": false, "6.12.1-arch1-1": false, "6.12.9-200.fc41.x86_64": false,
		"6.12.0-55.el10.x86_64": true, "6.4.0-150600.23-default": true, "6.4.0-150600.23-64kb": true, "6.1.112-122.189.amzn2023.x86_64": true,
		"6.12.0-1.23.3.2.el9uek.x86_64": true, "5.15.0-300.163.18.el8uek": true, "6.8.0-45-generic": true, "6.8.0-1010-nvidia": true, "6.12.9-custom": true, "": true,
	} {
		if got := (machine.Kernel{Release: release}).Backports(); got != want {
			t.Errorf("%q: %v", release, got)
		}
	}
}

// The running kernel's config.gz and symbols are not used for another release.
func TestAnotherKernelThanTheOneThatRuns(t *testing.T) {
	kallsyms := "ffffffff81000000 T pci_p2pdma_distance_many\nffffffff81000010 T pci_enable_device\n0 T _etext\n"
	tree := testenv.Tree{Release: "7.2.12+deb13-amd64", Config: "-", Files: map[string]string{
		"proc/config.gz": machinetest.Zipped(t, machinetest.WithP2P), "proc/kallsyms": kallsyms, "boot/config-6.12.117+deb12-amd64": machinetest.WithoutP2P,
	}}
	root := tree.Write(t)
	for release, want := range map[string]placement.Answer{
		"": placement.Yes, "7.2.12+deb13-amd64": placement.Yes,
		"6.1.0-28-amd64": placement.AnswerUnknown, "6.12.117+deb12-amd64": placement.No,
	} {
		if k := (machine.Source{Root: root, Release: release}).Open().Kernel; k.P2PDMA != want || release != "" && k.Release != release {
			t.Errorf("%q: %+v, want %v", release, k, want)
		}
	}
}

// Where two files name two kernels, config.gz and the symbols may be of another one than a given release.
func TestFilesOfTwoKernels(t *testing.T) {
	tree := testenv.Tree{Release: "6.1.0-1-amd64", Config: "-", Files: map[string]string{
		"proc/version": "Linux version 5.4.0-99-generic (build@host) #1 SMP\n", "proc/config.gz": machinetest.Zipped(t, machinetest.WithP2P),
		"proc/kallsyms": "0 T pci_p2pdma_distance_many\n0 T pci_enable_device\n0 T _etext\n",
	}}
	if k := (machine.Source{Root: tree.Write(t), Release: "7.2.12+deb13-amd64"}).Open().Kernel; k.P2PDMA != placement.AnswerUnknown {
		t.Errorf("%+v", k)
	}
}

// A log is of another boot if it is not of the kernel that was read. A release that is given says nothing about it.
func TestLogOfAnotherKernel(t *testing.T) {
	for release, another := range map[string]bool{"-": false, "5.15.0-1046-nvidia": false, "6.8.0-60-generic": true} {
		tree := testenv.Tree{Release: release, Config: "-", Files: map[string]string{"dev/kmsg": "5,0,0,-;Linux version 5.15.0-1046-nvidia (build@host) #1 SMP\n"}}
		root := tree.Write(t)
		for _, given := range []string{"", "5.15.0"} {
			if log := (machine.Source{Root: root, Release: given}).Open().KernelLog(); (log.Err != nil) != another {
				t.Errorf("release %s, given %q: %v", release, given, log.Err)
			}
		}
	}
}
