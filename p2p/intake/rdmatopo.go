// SPDX-License-Identifier: Apache-2.0

package intake

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

	"github.com/gpurdma/gpurdma/internal/files"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/redact"
	"github.com/gpurdma/gpurdma/p2p/snapshot"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// dumped is a PCI function as `rdma_topo dump` of rdma-core writes it. A dump has no host bridges, no
// drivers, and no facts about the kernel and the processor.
type dumped struct {
	RealPath   string              `json:"realpath"`
	Config     string              `json:"config"` // base64 of zlib
	VPD        json.RawMessage     `json:"vpd"`    // likewise; null: none
	ModAlias   string              `json:"modalias"`
	Group      json.RawMessage     `json:"iommu_group"` // null: none
	Node       *int                `json:"numa_node"`
	Subsystems map[string][]string `json:"subsystems"`
}

// isDump reports a JSON array, which no snapshot begins with.
func isDump(r *bufio.Reader) bool {
	head, _ := r.Peek(64)
	return bytes.HasPrefix(bytes.TrimSpace(head), []byte("["))
}

// fromDump makes the files of a machine of a dump.
func fromDump(r io.Reader) (*files.Tree, error) {
	d := json.NewDecoder(io.LimitReader(r, dumpLimit))
	if _, err := d.Token(); err != nil {
		return nil, fmt.Errorf("%w, and no dump of rdma_topo: %w", snapshot.Err, err)
	}
	t := &machineTree{Tree: files.NewTree()}
	for _, dir := range []string{"sys/bus", "sys/class", "sys/kernel"} {
		t.put(dir, files.File{Dir: true})
	}
	// One function at a time: the decoded form is many times larger than the text.
	i := 0
	for ; d.More(); i++ {
		var f dumped
		if err := d.Decode(&f); err != nil {
			return nil, fmt.Errorf("%w, and no dump of rdma_topo: %w", snapshot.Err, err)
		}
		err := errors.Join(f.add(t), t.err)
		if i >= functionLimit || snapshot.Fits(t.Tree) != nil {
			err = errors.New("too many")
		}
		if err != nil {
			return nil, fmt.Errorf("%w: function %d of the dump of rdma_topo: %w", snapshot.Err, i, err)
		}
	}
	if _, err := d.Token(); err != nil {
		return nil, fmt.Errorf("%w, and no dump of rdma_topo: %w", snapshot.Err, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w, and no dump of rdma_topo: there is more behind its end", snapshot.Err)
	}
	if i == 0 { // every machine that rdma_topo looks at has some
		return nil, fmt.Errorf("%w, and a dump of rdma_topo that names no device: one for each PCI function was expected", snapshot.Err)
	}
	return t.Tree, nil
}

// Limits of a dump: more than any machine has. A dump needs no more memory than a snapshot.
const (
	dumpLimit     = 64 << 20
	functionLimit = 20_000
	namesLimit    = 64 // of RDMA devices, of one function
)

// machineTree is a machine that is being put together. A later file replaces an earlier one of its name.
type machineTree struct {
	*files.Tree
	err error // of a name that leads through a file
}

func (t *machineTree) put(name string, f files.File) { t.err = errors.Join(t.err, t.Replace(name, f)) }

func (t *machineTree) unread(name string) { t.put(name, files.File{Link: path.Base(name)}) }

func (t *machineTree) link(name, target string) {
	t.put(name, files.File{Link: redact.Relative(path.Dir(name), target)})
}

// modAlias has the numbers of a function.
var modAlias = regexp.MustCompile(`^pci:v0000([0-9A-F]{4})d0000([0-9A-F]{4})sv[0-9A-F]{8}sd[0-9A-F]{8}bc([0-9A-F]{2})sc([0-9A-F]{2})i([0-9A-F]{2})$`)

// notInDumps are files of a function whose absence means something to a check, and that no dump has.
var notInDumps = []string{"power/runtime_status", "p2pmem"}

// groups is the directory of the IOMMU's groups. It is empty without an IOMMU.
const groups = "sys/kernel/iommu_groups"

// group adds the function's IOMMU group. Its type is not in a dump.
func (d dumped) group(all *machineTree, dir string) error {
	link := path.Join(dir, "iommu_group")
	if d.Group == nil {
		all.unread(link)
		return nil
	}
	var number *int
	if err := json.Unmarshal(d.Group, &number); err != nil {
		return fmt.Errorf("iommu_group: %w", err)
	}
	all.put(groups, files.File{Dir: true})
	if number != nil && *number >= 0 {
		its := fmt.Sprintf("%s/%d", groups, *number)
		all.unread(path.Join(its, "type"))
		all.link(link, its)
		member := path.Join(its, "devices", path.Base(dir))
		all.link(member, dir)
	}
	return nil
}

func (d dumped) add(all *machineTree) error {
	dir := strings.TrimPrefix(d.RealPath, "/")
	address := path.Base(dir)
	_, err := pciaddr.Parse(address)
	if err != nil || len(dir) > snapshot.NameLimit || path.Clean(dir) != dir || !strings.HasPrefix(dir, "sys/devices/") {
		return fmt.Errorf("the path %q", d.RealPath)
	}
	ids := modAlias.FindStringSubmatch(d.ModAlias)
	if ids == nil {
		return fmt.Errorf("the modalias %q", d.ModAlias)
	}
	config, err := inflated(d.Config, spaceLimit)
	if err != nil {
		return fmt.Errorf("the configuration space of %s: %w", address, err)
	}
	put := func(name, text string) { all.put(path.Join(dir, name), files.File{Data: []byte(text + "\n")}) }
	put("vendor", "0x"+strings.ToLower(ids[1]))
	put("device", "0x"+strings.ToLower(ids[2]))
	put("class", "0x"+strings.ToLower(ids[3]+ids[4]+ids[5]))
	all.put(path.Join(dir, "config"), files.File{Data: config})
	// A dump lacks these files whether the machine has them or not: they are unreadable, not absent.
	for _, name := range notInDumps {
		all.unread(path.Join(dir, name))
	}
	if d.Node != nil {
		put("numa_node", fmt.Sprint(*d.Node))
	}
	all.link(path.Join("sys/bus/pci/devices", address), dir)
	if err := errors.Join(d.group(all, dir), d.vpd(all, dir)); err != nil {
		return err
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
		all.put(device, files.File{Dir: true})
		all.unread(path.Join(device, "fw_ver"))
		all.link(path.Join(device, "device"), dir)
		all.link(path.Join("sys/class/infiniband", name), device)
		if ids[1] == "15B3" && ids[2] >= "1011" {
			driver = "mlx5_core" // there is no other for these
		}
	}
	all.link(path.Join(dir, "driver"), path.Join("sys/bus/pci/drivers", driver))
	d.bridge(all, dir)
	return nil
}

// bridge adds the function by which the kernel recognizes the host bridge as one that cannot be read,
// unless the dump has it: the kernel's decision depends on its IDs.
func (d dumped) bridge(all *machineTree, dir string) {
	for at := dir; at != "."; at = path.Dir(at) {
		bus, ok := strings.CutPrefix(path.Base(at), "pci")
		if !ok {
			continue
		}
		if first := path.Join(at, bus+":00.0"); !strings.HasPrefix(dir+"/", first+"/") {
			if _, there := all.Find(first + "/vendor"); !there {
				all.put(first, files.File{Dir: true})
			}
		}
		return
	}
}

// inflated is a file of a dump, base64 of zlib, of at most so many bytes.
func inflated(text string, most int) ([]byte, error) {
	packed, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, err
	}
	z, err := zlib.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(z, int64(most)+1))
	if err == nil && len(data) > most {
		err = errors.New("too large")
	}
	return data, err
}

// Limits of files: the extended configuration space, and all of vital product data.
const (
	spaceLimit = 4 << 10
	vpdLimit   = 32 << 10
)

// vpd adds the function's vital product data. Dumps of older versions have none.
func (d dumped) vpd(all *machineTree, dir string) error {
	var text *string
	if d.VPD == nil {
		all.unread(path.Join(dir, "vpd"))
		return nil
	}
	if err := json.Unmarshal(d.VPD, &text); err != nil {
		return fmt.Errorf("vpd: %w", err)
	}
	if text == nil {
		return nil
	}
	data, err := inflated(*text, vpdLimit)
	if err != nil {
		return fmt.Errorf("vpd: %w", err)
	}
	all.put(path.Join(dir, "vpd"), files.File{Data: data})
	return nil
}
