// SPDX-License-Identifier: Apache-2.0

package live

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// ownFiles is the directory with the kernel's facts about this process's open files.
const ownFiles = "/proc/self/fdinfo"

// ofVRAM matches the drivers' names of a GPU's own memory: amdgpu's, xe's (one for each tile),
// and i915's.
var ofVRAM = regexp.MustCompile(`^drm-(resident|memory)-((?:vram|local)\d*)$`)

// resident returns the number of bytes of a GPU's memory that its DRM driver counts for this
// process, by the open files of that GPU. It needs no privileges. A file that this process
// has open twice, as by dup, counts once.
func resident(dir string, gpu pciaddr.Addr) (int64, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return 0, err
	}
	clients := map[string]int64{}
	open := false
	for _, name := range names {
		// Most files belong to the tracer, such as "anon_inode:bpf-prog", and not to a device.
		if at, err := os.Readlink(filepath.Join(dir, "../fd", filepath.Base(name))); err == nil && !filepath.IsAbs(at) {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			continue // closed meanwhile
		}
		if !bytes.Contains(text, []byte("drm-pdev:")) {
			continue
		}
		keys := map[string]string{}
		for line := range strings.Lines(string(text)) {
			key, value, _ := strings.Cut(line, ":")
			keys[key] = strings.TrimSpace(value)
		}
		if keys["drm-pdev"] != gpu.String() {
			continue
		}
		open = true
		regions := map[string]int64{}
		for key, value := range keys {
			m := ofVRAM.FindStringSubmatch(key)
			if m == nil {
				continue
			}
			if _, twice := keys["drm-resident-"+m[2]]; twice && m[1] == "memory" {
				continue // the same value under its old name
			}
			n, err := quantity(value)
			if err != nil {
				return 0, fmt.Errorf("%s: %s: %w", filepath.Base(name), key, err)
			}
			regions[m[2]] = n
		}
		if len(regions) == 0 {
			continue
		}
		sum := int64(0)
		for _, n := range regions {
			sum += n
		}
		clients[keys["drm-client-id"]] = sum
	}
	switch {
	case !open:
		return 0, fmt.Errorf("no open file of %v says so in fdinfo", gpu)
	case len(clients) == 0:
		return 0, fmt.Errorf("the driver of %v counts no memory of its own in fdinfo", gpu)
	}
	total := int64(0)
	for _, n := range clients {
		total += n
	}
	return total, nil
}

// quantity reads "256 KiB". A number without a unit is in bytes.
func quantity(s string) (int64, error) {
	number, unit, _ := strings.Cut(s, " ")
	n, err := strconv.ParseInt(number, 10, 64)
	shift, ok := map[string]int{"": 0, "KiB": 10, "MiB": 20}[strings.TrimSpace(unit)]
	if err != nil || !ok || n < 0 || n > 1<<62>>shift {
		return 0, fmt.Errorf("%q is no size", s)
	}
	return n << shift, nil
}

// count reads how many bytes of this process are in the GPU's memory, by its driver.
func (c *climb) count() (int64, error) {
	if c.pair.GPU.Exporter.PCI == nil {
		return 0, fmt.Errorf("%s is on no PCI bus", c.pair.GPU.Name)
	}
	return resident(ownFiles, *c.pair.GPU.Exporter.PCI)
}

// recount counts the bytes in the GPU's memory again while the registration exists.
func (c *climb) recount() {
	r := &p2p.Resident{Size: c.buf.Size(), Without: c.without, Before: c.before, Err: c.uncountable}
	if r.Err == nil {
		r.After, r.Err = c.count()
	}
	c.proof.Resident = r
}
