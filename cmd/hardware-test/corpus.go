// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// machineDir is the folder for p2p/testdata/machines, below the one that is written.
const machineDir = "machine"

// sourceName is the short name of the source in machine.json.
const sourceName = "hardware test"

// labels is machine.json, as p2p/testdata/machines/README.md describes it. Every label comes from
// an observation, and none from a prediction.
type labels struct {
	Title      string            `json:"title"`
	Origin     string            `json:"origin"`
	Sources    map[string]string `json:"sources"`
	Note       string            `json:"note"`
	Pairs      []label           `json:"pairs,omitempty"`
	Unlabelled []label           `json:"unlabelled,omitempty"`
	GPUs       []gpuLabel        `json:"gpus,omitempty"`
}

type label struct {
	GPU    string `json:"gpu"`
	NIC    string `json:"nic"`
	Answer string `json:"answer,omitempty"`
	Mark   string `json:"mark,omitempty"`
	Reason string `json:"reason"`
	Source string `json:"source,omitempty"`
}

type gpuLabel struct {
	GPU    string `json:"gpu"`
	DMABuf string `json:"dma_buf,omitempty"`
	RDMA   string `json:"gpu_direct_rdma,omitempty"`
	Mark   string `json:"mark"`
	Reason string `json:"reason"`
	Source string `json:"source"`
}

// labelsOf are the labels for what was observed.
func (h *hardware) labelsOf(r *report, p prediction, said map[string]answers, live *result.Run, why string) labels {
	out := labels{
		Title: r.title(), Origin: "hardware test",
		Sources: map[string]string{sourceName: fmt.Sprintf("make hardware-test of %s on %s, kernel %s: its report.txt", r.Version, r.Date, r.Kernel)},
		Note:    "Written by make hardware-test. The labels are observations of that run.",
	}
	onPCI := func(n drivers.NIC) bool { return n.Importer.PCI != nil }
	// The corpus has GPUs of these classes.
	inTree := func(g drivers.GPU) bool {
		class := p.m.Read("sys/bus/pci/devices", g.Name, "class").Text
		return strings.HasPrefix(class, "0x03") || strings.HasPrefix(class, "0x12")
	}
	for _, pair := range p.pairs {
		i := slices.IndexFunc(p.nics, func(n drivers.NIC) bool { return n.Name == pair.NIC })
		g := slices.IndexFunc(p.gpus, func(g drivers.GPU) bool { return g.Name == pair.GPU })
		if i < 0 || g < 0 || !onPCI(p.nics[i]) || !inTree(p.gpus[g]) {
			continue
		}
		o := observedOf(p, pair, live, why)
		l := label{GPU: pair.GPU, NIC: pair.NIC, Reason: h.scrub.text(o.why)}
		switch o.outcome {
		case "":
		case arrived:
			l.Reason = "Every byte arrived, and no trace says where the bytes were: " + l.Reason
		default:
			l.Answer, l.Mark, l.Source = o.outcome, "observed", sourceName+": "+pair.GPU+" -> "+pair.NIC
		}
		if l.Answer == "" {
			out.Unlabelled = append(out.Unlabelled, l)
		} else {
			out.Pairs = append(out.Pairs, l)
		}
	}
	for _, g := range p.plain {
		for _, n := range p.nics {
			if inTree(g) && onPCI(n) {
				out.Unlabelled = append(out.Unlabelled, label{GPU: g.Name, NIC: n.Name, Reason: "The display has no memory of its own."})
			}
		}
	}
	for _, v := range vendors {
		for _, x := range said[v.name].GPUs {
			here := slices.ContainsFunc(p.gpus, func(g drivers.GPU) bool { return g.Name == x.PCI && inTree(g) })
			twice := slices.ContainsFunc(out.GPUs, func(g gpuLabel) bool { return g.GPU == x.PCI })
			l := gpuLabel{GPU: x.PCI, DMABuf: x.Answers[keyExport].Says, RDMA: x.Answers[keyRDMA].Says, Mark: "observed", Source: sourceName + ": " + x.PCI}
			if l.DMABuf == "" {
				l.DMABuf = x.Answers[keyDMABuf].Says
			}
			var reasons []string
			for _, q := range v.questions {
				if a := x.Answers[q.key]; a.Says != "" {
					reasons = append(reasons, strings.TrimSpace(fmt.Sprintf("%s: %s %s", q.text, a.Says, a.Detail)))
				}
			}
			if l.Reason = h.scrub.text(strings.Join(reasons, "; ")); here && !twice && l.DMABuf+l.RDMA != "" {
				out.GPUs = append(out.GPUs, l)
			}
		}
	}
	return out
}

// writeMachine writes the folder for the corpus: the tree from the unpacked snapshot, and the
// labels.
func (h *hardware) writeMachine(ctx context.Context, tree string, l labels) error {
	dir := filepath.Join(h.out, machineDir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	text, err := run(ctx, convertLimit, program{path: h.program("convert"), args: []string{tree}})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "tree.txt"), append([]byte("# SPDX-License-Identifier: Apache-2.0\n"), text...), 0o644); err != nil {
		return err
	}
	return writeJSON(filepath.Join(dir, "machine.json"), l)
}

// writeJSON writes a document for people and programs.
func writeJSON(name string, v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	return os.WriteFile(name, b.Bytes(), 0o644)
}
