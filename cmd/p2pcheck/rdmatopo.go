// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// dumped is a PCI function as `rdma_topo dump` of rdma-core writes it. A dump has no host bridges, no
// drivers, and no facts about the kernel and the processor.
type dumped struct {
	RealPath   string              `json:"realpath"`
	Config     string              `json:"config"` // base64 of zlib
	ModAlias   string              `json:"modalias"`
	Group      *int                `json:"iommu_group"`
	Node       *int                `json:"numa_node"`
	Subsystems map[string][]string `json:"subsystems"`
}

// isDump reports a JSON array, which no snapshot begins with.
func isDump(r *bufio.Reader) bool {
	head, _ := r.Peek(64)
	return bytes.HasPrefix(bytes.TrimSpace(head), []byte("["))
}

// fromDump makes a snapshot of a dump.
func fromDump(r io.Reader) (map[string]entry, error) {
	d := json.NewDecoder(io.LimitReader(r, dumpLimit))
	if _, err := d.Token(); err != nil {
		return nil, fmt.Errorf("%w, and no dump of rdma_topo: %w", errSnapshot, err)
	}
	entries := map[string]entry{}
	for _, dir := range []string{"sys/bus", "sys/class", "sys/kernel"} {
		entries[dir] = entry{dir: true}
	}
	// One function at a time: the decoded form is many times larger than the text.
	i := 0
	for ; d.More(); i++ {
		var f dumped
		if err := d.Decode(&f); err != nil {
			return nil, fmt.Errorf("%w, and no dump of rdma_topo: %w", errSnapshot, err)
		}
		err := f.entries(entries)
		if i >= functionLimit || len(entries) > entryLimit {
			err = errors.New("too many")
		}
		if err != nil {
			return nil, fmt.Errorf("%w: function %d of the dump of rdma_topo: %w", errSnapshot, i, err)
		}
	}
	if _, err := d.Token(); err != nil {
		return nil, fmt.Errorf("%w, and no dump of rdma_topo: %w", errSnapshot, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w, and no dump of rdma_topo: there is more behind its end", errSnapshot)
	}
	if i == 0 { // every machine that rdma_topo looks at has some
		return nil, fmt.Errorf("%w, and a dump of rdma_topo that names no device: one for each PCI function was expected", errSnapshot)
	}
	return entries, nil
}

// Limits of a dump: more than any machine has. A dump needs no more memory than a snapshot.
const (
	dumpLimit     = 64 << 20
	functionLimit = 20_000
	namesLimit    = 64 // of RDMA devices, of one function
)

// modAlias has the numbers of a function.
var modAlias = regexp.MustCompile(`^pci:v0000([0-9A-F]{4})d0000([0-9A-F]{4})sv[0-9A-F]{8}sd[0-9A-F]{8}bc([0-9A-F]{2})sc([0-9A-F]{2})i([0-9A-F]{2})$`)

// notInDumps are files of a function whose absence means something to a check, and that no dump has.
var notInDumps = []string{"power/runtime_status", "p2pmem"}

func (d dumped) entries(all map[string]entry) error {
	dir := strings.TrimPrefix(d.RealPath, "/")
	address := path.Base(dir)
	_, err := machine.ParseAddr(address)
	if err != nil || len(dir) > nameLimit || path.Clean(dir) != dir || !strings.HasPrefix(dir, "sys/devices/") {
		return fmt.Errorf("the path %q", d.RealPath)
	}
	ids := modAlias.FindStringSubmatch(d.ModAlias)
	if ids == nil {
		return fmt.Errorf("the modalias %q", d.ModAlias)
	}
	config, err := d.config()
	if err != nil {
		return fmt.Errorf("the configuration space of %s: %w", address, err)
	}
	put := func(name, text string) { all[path.Join(dir, name)] = entry{data: []byte(text)} }
	link := func(name, target string) { all[name] = entry{link: relative(path.Dir(name), target)} }
	put("vendor", "0x"+strings.ToLower(ids[1]))
	put("device", "0x"+strings.ToLower(ids[2]))
	put("class", "0x"+strings.ToLower(ids[3]+ids[4]+ids[5]))
	put("config", string(config))
	// A dump lacks these files whether the machine has them or not: they are unreadable, not absent.
	for _, name := range notInDumps {
		all[path.Join(dir, name)] = entry{unreadable: true}
	}
	if d.Node != nil {
		put("numa_node", fmt.Sprint(*d.Node))
	}
	link(path.Join("sys/bus/pci/devices", address), dir)
	if d.Group != nil && *d.Group >= 0 {
		// Its type is not in the file.
		group := fmt.Sprintf("sys/kernel/iommu_groups/%d", *d.Group)
		all[path.Join(group, "type")] = entry{unreadable: true}
		link(path.Join(dir, "iommu_group"), group)
	}
	driver := drivers.UnknownDriver // it is not in the file
	if len(d.Subsystems["infiniband"]) > namesLimit {
		return errors.New("too many RDMA devices")
	}
	for _, name := range d.Subsystems["infiniband"] {
		if name == "" || len(name) > 255 || strings.ContainsAny(name, "/\x00") || name == "." || name == ".." {
			return fmt.Errorf("an RDMA device called %q", name)
		}
		device := path.Join(dir, "infiniband", name)
		all[device] = entry{dir: true}
		all[path.Join(device, "fw_ver")] = entry{unreadable: true}
		link(path.Join(device, "device"), dir)
		link(path.Join("sys/class/infiniband", name), device)
		if ids[1] == "15B3" && ids[2] >= "1011" {
			driver = "mlx5_core" // there is no other for these
		}
	}
	link(path.Join(dir, "driver"), path.Join("sys/bus/pci/drivers", driver))
	d.bridge(all, dir)
	return nil
}

// bridge adds the function by which the kernel recognizes the host bridge as one that cannot be read,
// unless the dump has it: the kernel's decision depends on its IDs.
func (d dumped) bridge(all map[string]entry, dir string) {
	for at := dir; at != "."; at = path.Dir(at) {
		bus, ok := strings.CutPrefix(path.Base(at), "pci")
		if !ok {
			continue
		}
		if first := path.Join(at, bus+":00.0"); !strings.HasPrefix(dir+"/", first+"/") {
			if _, there := all[first+"/vendor"]; !there {
				all[first] = entry{dir: true}
			}
		}
		return
	}
}

func (d dumped) config() ([]byte, error) {
	packed, err := base64.StdEncoding.DecodeString(d.Config)
	if err != nil {
		return nil, err
	}
	z, err := zlib.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	const most = 4 << 10 // the extended configuration space: no function has more
	config, err := io.ReadAll(io.LimitReader(z, most+1))
	if err == nil && len(config) > most {
		err = errors.New("too large")
	}
	return config, err
}
