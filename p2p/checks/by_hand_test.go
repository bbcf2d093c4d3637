// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

// A file in the commands of ByHand is one that the check reads: its findings name the file.
func TestByHandReadsWhatTheCheckReads(t *testing.T) {
	testenv.Exhaustive(t)
	cases := checkCases()
	for _, c := range All() {
		files := filesByHand(c.ByHand)
		if len(files) == 0 {
			continue
		}
		var named []string
		for _, one := range cases[c.ID] {
			for _, f := range checked(t, machineNamed(t, one.on), one.live, c.ID, one.edits...) {
				named = append(named, f.Where...)
				named = append(named, readsToo[c.ID]...)
			}
		}
		for _, file := range files {
			if !slices.ContainsFunc(named, func(where string) bool { return sameFile(file, where) }) {
				t.Errorf("%s: by hand one reads %s; its findings name %q", c.ID, file, slices.Compact(slices.Sorted(slices.Values(named))))
			}
		}
	}
}

// readsToo are files that a check reads, and that none of its findings names.
var readsToo = map[string][]string{
	"KRN-CONFIG-SRC":   {"/proc/config.gz"},
	"ISO-ACS-QUIRK":    {"/sys/bus/pci/devices/*/vendor"},
	"PCIE-LINK":        {"/sys/bus/pci/devices/*/max_link_speed", "/sys/bus/pci/devices/*/max_link_width"},
	"PCIE-LINK-IDLE":   {"/sys/bus/pci/devices/*/max_link_speed"},
	"GPU-LIBRARY":      {"/proc/driver/nvidia/version"},
	"GPU-RENDER-PERM":  {"/dev/dri/*"},
	"INTEL-XE":         {"/sys/bus/pci/devices/*/driver"},
	"VFIO-EXPORT":      {"/sys/bus/pci/devices/*/driver"},
	"VIRTIO-GPU":       {"/sys/bus/pci/devices/*/driver"},
	"NIC-PROVIDER-LIB": {"/usr/lib/*/libibverbs.so.1"},
	"NIC-FW":           {"/sys/class/infiniband/*/board_id"},
	"NET-GID":          {"/sys/class/infiniband/*/ports/*/gid_attrs/types"},
	"CTR-LIBS":         {"/usr/lib/*/libibverbs"},
	"K8S-PCIEROOT":     {"/sys/bus/pci/devices/*"},
	"LIB-UCX":          {"/dev/nvidiactl", "/sys/module/xe/srcversion", "/sys/module/nvidia_peermem/version", "/sys/kernel/mm/memory_peers/nv_mem/version"},
}

var (
	quoted     = regexp.MustCompile(`'[^']*'|"[^"]*"`)
	pathByHand = regexp.MustCompile(`(?:^|\s)(/[^\s|]+)`)
)

// filesByHand are the files in commands.
func filesByHand(commands string) []string {
	var out []string
	for _, m := range pathByHand.FindAllStringSubmatch(quoted.ReplaceAllString(strings.ReplaceAll(commands, "$(uname -r)", "RELEASE"), ""), -1) {
		out = append(out, m[1])
	}
	return out
}

var capitals = regexp.MustCompile(`\b(GPU|NIC|FUNCTION|PORT|NETDEV|RELEASE|GROUP)\b`)

// sameFile reports whether the file of a command is a file that a finding names, or in a directory that it names.
func sameFile(byHand, where string) bool {
	if bus := strings.ReplaceAll(byHand, "/sys/class/infiniband/NIC/device/", "/sys/bus/pci/devices/*/"); bus != byHand && sameFile(bus, where) {
		return true
	}
	pattern := strings.Split(capitals.ReplaceAllString(byHand, "*"), "/")
	parts := strings.Split(where, "/")
	if len(parts) > len(pattern) {
		parts = parts[:len(pattern)] // a directory that is listed
	}
	for i, part := range parts {
		if ok, err := path.Match(pattern[i], part); err != nil || !ok && part != "*" {
			return false
		}
	}
	return true
}
