// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/p2p/machine"
)

// schema names the form of report.json.
const schema = "hardware-test/report/v1"

// report is all that was predicted, asked and seen.
type report struct {
	Schema   string   `json:"schema"`
	Version  string   `json:"version"`
	Date     string   `json:"date"`
	Kernel   string   `json:"kernel"`
	Arch     string   `json:"arch"`
	CPU      string   `json:"cpu"`
	Root     bool     `json:"root"`
	Snapshot snapshot `json:"snapshot"`
	GPUs     []device `json:"gpus"`
	NICs     []device `json:"nics"`

	Rows []row `json:"rows"`
	// NotDone is each thing that was not asked or tried, with the reason.
	NotDone []notDone `json:"not_done"`
	Tests   []testRun `json:"tests"`
	Tally   tally     `json:"tally"`
	Result  string    `json:"result"` // "agrees", "disagrees", "tests failed", "nothing compared"
	Seconds float64   `json:"seconds"`
}

// device is a GPU or NIC.
type device struct {
	Name   string `json:"name"` // a PCI address, or an RDMA device
	Driver string `json:"driver"`
	Model  string `json:"model"`
	// OwnMemory is false for displays without memory of their own, and for NICs.
	OwnMemory bool `json:"own_memory"`
}

// notDone is a thing that was not asked or tried.
type notDone struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// Results of a run.
const (
	resultAgrees    = "agrees"
	resultDisagrees = "disagrees"
	resultTests     = "tests failed"
	resultNothing   = "nothing compared"
)

// conclude counts the rows and gives the result.
func (r *report) conclude() {
	r.Tally = tallyOf(r.Rows)
	r.Result = resultNothing
	if r.Tally.Agrees+r.Tally.Fits > 0 {
		r.Result = resultAgrees
	}
	for _, t := range r.Tests {
		if t.bad() {
			r.Result = resultTests
		}
	}
	if r.Tally.Disagrees > 0 {
		r.Result = resultDisagrees
	}
}

// failed reports a run after which the program exits with status 1.
func (r *report) failed() bool { return r.Result == resultDisagrees || r.Result == resultTests }

func (r *report) skip(what, format string, args ...any) {
	r.NotDone = append(r.NotDone, notDone{what, fmt.Sprintf(format, args...)})
}

// devices lists the GPUs and NICs, with the names that files and libraries have for them.
func (r *report) devices(p prediction, said map[string]answers) {
	for i, g := range slices.Concat(p.gpus, p.plain) {
		d := device{Name: g.Name, Driver: g.Exporter.Driver, OwnMemory: i < len(p.gpus)}
		if info := p.m.Read("proc/driver/nvidia/gpus", g.Name, "information"); info.Err == nil {
			d.Model, _ = info.Line("Model")
		}
		for _, a := range said {
			for _, x := range a.GPUs {
				if x.PCI == g.Name && d.Model == "" {
					d.Model = x.Name
				}
			}
		}
		r.GPUs = append(r.GPUs, d)
	}
	for _, n := range p.nics {
		r.NICs = append(r.NICs, device{Name: n.Name, Driver: n.Importer.Driver})
	}
}

// title is the machine in one line.
func (r *report) title() string {
	kinds := map[string]int{}
	var order []string
	for _, d := range r.GPUs {
		if !d.OwnMemory {
			continue
		}
		name := d.Model
		if name == "" {
			name = "GPU of driver " + d.Driver
		}
		if kinds[name]++; kinds[name] == 1 {
			order = append(order, name)
		}
	}
	var parts []string
	for _, name := range order {
		parts = append(parts, fmt.Sprintf("%d x %s", kinds[name], name))
	}
	if len(parts) == 0 {
		parts = []string{"no GPU"}
	}
	return fmt.Sprintf("%s, %d RDMA devices, Linux %s", strings.Join(parts, " and "), len(r.NICs), r.Kernel)
}

// describe fills in what the kernel says of itself.
func (r *report) describe() {
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		r.Kernel, r.Arch = unix.ByteSliceToString(u.Release[:]), unix.ByteSliceToString(u.Machine[:])
	}
	r.CPU, _ = (machine.Source{}).Open().Read("proc/cpuinfo").Line("model name")
	r.Root = os.Geteuid() == 0
}

// scrubbed is the report without names and numbers of the machine.
func (r *report) scrubbed(s scrubber) (report, error) {
	var out report
	data, err := json.Marshal(r)
	if err != nil {
		return out, err
	}
	err = json.Unmarshal([]byte(s.text(string(data))), &out)
	return out, err
}
