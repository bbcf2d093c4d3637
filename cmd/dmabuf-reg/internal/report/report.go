// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/devices"
	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/internal/sysfs"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// Schema names the form of the file that --report writes.
const Schema = "dmabuf-reg/report/v1"

// Report is a machine and what verify found there, to be sent to others: without host names, UUIDs,
// GUIDs, network addresses and serial numbers. Wherever a string has one, such as what a vendor's
// library, an error or the program of --locate says, a "-" stands instead. Aliases made of one are
// left out, and a GPU named by its UUID has its other name ([anonymizer]).
type Report struct {
	Schema  string         `json:"schema"`  // "dmabuf-reg/report/v1"
	Version string         `json:"version"` // of the program
	Machine machine        `json:"machine"` // the machine, as sysfs and uname describe it
	Devices devices.Result `json:"devices"` // the result of devices
	Verify  any            `json:"verify"`  // the result of verify
	Errors  []cli.Error    `json:"errors"`  // the errors of both
}

// Named is a result that names NICs and allocators.
type Named interface {
	// Renamed returns a copy with what the functions make of each name.
	Renamed(nic, spec func(string) string) any
}

// machine is the machine of a report.
type machine struct {
	Kernel    string        `json:"kernel"`    // the kernel's release, as uname -r prints it
	Build     string        `json:"build"`     // the kernel's version, as uname -v prints it
	Arch      string        `json:"arch"`      // the architecture
	CPU       string        `json:"cpu"`       // the model of the processor; "" if it is not known
	Functions []pciFunction `json:"functions"` // the PCI functions of the GPUs and NICs
}

// pciFunction is a GPU or NIC as sysfs has it; "" is not known.
type pciFunction struct {
	Address   string `json:"address"`    // the PCI address
	Vendor    string `json:"vendor"`     // the vendor's ID: "0x10de"
	Device    string `json:"device"`     // the device's ID: "0x2330"
	Driver    string `json:"driver"`     // the driver that is bound
	NUMA      string `json:"numa_node"`  // the NUMA node
	LinkSpeed string `json:"link_speed"` // the speed of the link now
	LinkWidth string `json:"link_width"` // the number of lanes now
}

// File is a report's file, made before the work so that a path that
// cannot be written is told at once; the old file stays until write is done.
type File struct {
	path, version string
	file          *cli.OutFile
}

// Create makes the file, nil without a path. version is the program's.
func Create(path, version string) (*File, error) {
	if path == "" {
		return nil, nil
	}
	file, err := cli.Create(path)
	if err != nil {
		return nil, cli.Unwritten("the report", "--report", path, err)
	}
	return &File{path, version, file}, nil
}

// Write puts the report in its place. Without a result there is nothing to
// report, and the file is only removed.
func (f *File) Write(found Named, err error) error {
	if f == nil {
		return nil
	}
	if found == nil {
		return f.file.Drop()
	}
	data, werr := newReport(found, f.version, err)
	if werr == nil {
		_, werr = f.file.Write(data)
	}
	if werr == nil {
		werr = f.file.Keep(0o644)
	}
	if werr = errors.Join(werr, f.file.Drop()); werr != nil {
		return cli.Unwritten("the report", "--report", f.path, werr)
	}
	return nil
}

// newReport is the file's content.
func newReport(found Named, version string, err error) ([]byte, error) {
	sys := sysfs.New("")
	r := Report{Schema: Schema, Version: version, Errors: cli.Explain(err)}
	if r.Errors == nil {
		r.Errors = []cli.Error{}
	}
	devices, derr := devices.Find()
	r.Devices = *devices
	r.Errors = append(r.Errors, cli.Explain(derr)...)
	r.Machine = describeMachine(sys, &r.Devices)
	a := newAnonymizer(sys, &r.Devices, version, r.Machine.Kernel, r.Machine.Build)
	r.Verify = found.Renamed(anonymous, func(name string) string { return specOf(&r.Devices, name) })
	anonymize(&r.Devices, a)
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(a.document(data), '\n'), nil
}

// specOf is the first name of an allocator that was named by another one.
func specOf(d *devices.Result, name string) string {
	for _, a := range d.Allocators {
		if slices.Contains(a.Aliases, name) {
			return a.Spec
		}
	}
	return name
}

// anonymize leaves out the fields that are there to tell one machine from another.
func anonymize(d *devices.Result, a *anonymizer) {
	for i := range d.Allocators {
		d.Allocators[i].Aliases = a.names(d.Allocators[i].Aliases)
	}
	for i := range d.NVIDIA {
		d.NVIDIA[i].UUID = ""
	}
	for i := range d.NICs {
		d.NICs[i].Name, d.NICs[i].NodeGUID = anonymous(d.NICs[i].Name), ""
		for n, name := range d.NICs[i].NetDevs {
			d.NICs[i].NetDevs[n] = anonymous(name)
		}
		for p := range d.NICs[i].Ports {
			d.NICs[i].Ports[p].GIDs = []ibdev.GID{}
		}
	}
}

func describeMachine(sys sysfs.FS, d *devices.Result) machine {
	m := machine{Arch: runtime.GOARCH, CPU: cpuModel(), Functions: []pciFunction{}}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel, m.Build = unix.ByteSliceToString(u.Release[:]), unix.ByteSliceToString(u.Version[:])
	}
	var seen []pciaddr.Addr
	add := func(a *pciaddr.Addr) {
		if a == nil || slices.Contains(seen, *a) {
			return
		}
		seen = append(seen, *a)
		m.Functions = append(m.Functions, readPCI(sys, *a))
	}
	for _, a := range d.Allocators {
		add(a.PCI)
	}
	for _, n := range d.NICs {
		add(n.PCI)
	}
	return m
}

func readPCI(sys sysfs.FS, a pciaddr.Addr) pciFunction {
	read := func(file string) string {
		s, err := sys.ReadString(filepath.Join("bus/pci/devices", a.String(), file))
		if err != nil {
			return ""
		}
		return s
	}
	f := pciFunction{
		Address: a.String(), Vendor: read("vendor"), Device: read("device"), NUMA: read("numa_node"),
		LinkSpeed: read("current_link_speed"), LinkWidth: read("current_link_width"),
	}
	if driver, err := sys.Link(filepath.Join("bus/pci/devices", a.String(), "driver")); err == nil {
		f.Driver = filepath.Base(driver)
	}
	return f
}

func cpuModel() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if name, value, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
