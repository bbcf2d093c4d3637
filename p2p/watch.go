// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// Watch has the new lines of the kernel's log and the changes of error counters while a pair was
// tried.
type Watch struct {
	// Lines are the new lines of the kernel's log that name a device on the way, or that a check
	// looks for. Others is the number of the other new lines.
	Lines  []string
	Others int
	LogErr error // why a part of the log is missing
	// Errors are the counters of link errors that grew: "0000:03:00.0: 1 fatal".
	Errors []string
	// Losses are the NIC's counters of lost packets that grew: "mlx5_0/1: 3 out_of_sequence". The
	// traffic of a proof does not leave its port: other traffic can make them grow.
	Losses []string
	// Counted says that the kernel counts link errors of at least one device on the way.
	Counted bool
	Fatal   bool // a counter of uncorrectable errors grew

	// Last is the number of the last record that the kernel's log had when the watch ended; nil if
	// it is not known.
	Last *uint64

	Speed float64 // the highest speed of the GPU's link that Look has seen, in GT/s; 0 if Look has seen none
}

// Watcher watches the kernel's log, and the counters of link errors and lost packets.
type Watcher struct {
	m      *machine.Machine
	gpu    *pciaddr.Addr
	nic    drivers.NIC
	names  []string       // of GPU, NIC and network devices
	way    []pciaddr.Addr // GPU, NIC, the ports above
	fd     int
	where  string
	err    error
	before map[string]uint64
	lost   map[string]uint64 // the NIC's counters of lost packets at the start
	speed  float64           // Watch.Speed so far
}

// StartWatch begins to watch the devices of a pair and the ports above them. The caller must call
// Stop.
func StartWatch(m *machine.Machine, p Pair) *Watcher {
	w := &Watcher{m: m, gpu: p.GPU.Exporter.PCI, nic: p.NIC, names: append([]string{p.NIC.Name}, p.NIC.NetDevs...), fd: -1}
	for _, a := range []*pciaddr.Addr{p.GPU.Exporter.PCI, p.NIC.Importer.PCI} {
		if a == nil {
			continue
		}
		way := []pciaddr.Addr{*a}
		if f, err := m.Function(*a); err == nil {
			way = append(way, f.Upstream...)
		}
		for _, a := range way {
			if !slices.Contains(w.way, a) {
				w.way = append(w.way, a)
			}
		}
	}
	w.before, w.lost = w.counters(), w.losses()
	w.where, _, _ = m.Locate("dev/kmsg")
	if w.fd, w.err = machine.OpenLog(w.where); w.err == nil {
		if _, err := unix.Seek(w.fd, 0, unix.SEEK_END); err != nil {
			w.err = err
		}
	}
	return w
}

// errOverwritten says that the kernel overwrote lines of its log before Stop read them.
var errOverwritten = errors.New("lines were overwritten before they were read")

// Stop ends the watch, and returns what it saw.
func (w *Watcher) Stop() Watch {
	out := Watch{LogErr: w.err, Speed: w.speed}
	if last, ok := cachedLog(w.m).Last(); ok && w.err == nil {
		out.Last = &last
	}
	if w.err == nil {
		records, cut, err := machine.Drain(w.fd, w.where)
		if out.LogErr = err; cut {
			out.LogErr = errors.Join(err, errOverwritten)
		}
		for _, r := range records {
			if n, ok := r.Number(); ok {
				out.Last = &n
			}
			if w.concerns(r.Text) {
				out.Lines = append(out.Lines, r.Text)
			} else {
				out.Others++
			}
		}
	}
	if w.fd >= 0 {
		_ = unix.Close(w.fd) // it was read only
		w.fd = -1
	}
	after := w.counters()
	out.Counted = len(after) > 0
	for key := range w.before { // a device that is gone is counted no more
		if _, still := after[key]; !still {
			out.Counted = false
		}
	}
	for _, a := range w.way {
		for _, kind := range errorKinds {
			key := counterKey(a, kind)
			if n := after[key] - w.before[key]; after[key] > w.before[key] {
				out.Errors = append(out.Errors, fmt.Sprintf("%v: %d %s", a, n, kind))
				out.Fatal = out.Fatal || kind != "correctable"
			}
		}
	}
	lost := w.losses()
	for _, p := range w.nic.Ports {
		for _, name := range machine.LossCounters {
			key := lossKey(w.nic, p, name)
			if was, known := w.lost[key]; known && lost[key] > was {
				out.Losses = append(out.Losses, fmt.Sprintf("%s: %d %s", drivers.PortName(w.nic, p), lost[key]-was, name))
			}
		}
	}
	return out
}

// Look reads the speed of the GPU's link. The caller calls it while bytes move, because an idle
// GPU may slow its link down.
func (w *Watcher) Look() {
	if w.gpu == nil {
		return
	}
	if speed, ok := machine.Gigatransfers(w.m.Read("sys/bus/pci/devices", w.gpu.String(), "current_link_speed").Text); ok {
		w.speed = max(w.speed, speed)
	}
}

func lossKey(n drivers.NIC, p ibdev.Port, name string) string {
	return drivers.PortName(n, p) + " " + name
}

// losses are the NIC's counters of lost packets.
func (w *Watcher) losses() map[string]uint64 {
	out := map[string]uint64{}
	for _, p := range w.nic.Ports {
		all, _ := w.m.Losses(w.nic.Name, p.Num)
		for _, c := range all {
			out[lossKey(w.nic, p, c.Name)] = c.N
		}
	}
	return out
}

// concerns reports a line on a device on the way, or one that a check looks for
// and that names no other device.
func (w *Watcher) concerns(line string) bool {
	words := strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" :,;()[]", r) })
	if slices.ContainsFunc(words, func(word string) bool { return slices.Contains(w.names, word) }) {
		return true
	}
	addresses := PCIAddress.FindAllString(line, -1)
	if len(addresses) == 0 {
		return Loggable(line)
	}
	return slices.ContainsFunc(addresses, func(name string) bool {
		a, err := pciaddr.Parse(name)
		return err == nil && slices.Contains(w.way, a)
	})
}

var errorKinds = []string{"fatal", "nonfatal", "correctable"}

func counterKey(a pciaddr.Addr, kind string) string { return a.String() + " " + kind }

// counters are the error counters of the links on the way that the kernel keeps.
func (w *Watcher) counters() map[string]uint64 {
	out := map[string]uint64{}
	for _, a := range w.way {
		for i, kind := range errorKinds {
			r := w.m.Read("sys/bus/pci/devices", a.String(), "aer_dev_"+kind)
			total, ok := r.Line("TOTAL_ERR_" + []string{"FATAL", "NONFATAL", "COR"}[i])
			if n, err := strconv.ParseUint(total, 10, 64); r.Err == nil && ok && err == nil {
				out[counterKey(a, kind)] = n
			}
		}
	}
	return out
}

// Judged reports whether Lines has faults of the IOMMU, and whether it has other lines that checks
// look for.
func (w Watch) Judged() (faults, hits bool) {
	for _, line := range w.Lines {
		for _, p := range Patterns {
			if p.Match.MatchString(line) {
				hits = true
				faults = faults || p.Check == "ISO-FAULTS"
			}
		}
	}
	return faults, hits
}

// Where returns the name of the log's file.
func (w Watch) Where() []string { return []string{"/dev/kmsg"} }
