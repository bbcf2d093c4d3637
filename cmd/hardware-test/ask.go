// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/gpualloc/cuda"
	"github.com/gpurdma/gpurdma/gpualloc/levelzero"
	"github.com/gpurdma/gpurdma/gpualloc/rocm"
)

// answers are what one library said.
type answers struct {
	Error string `json:"error"` // why it lists no GPU; "" if it does
	GPUs  []gpu  `json:"gpus"`
}

// gpu is a GPU that a library lists, and the answers about it.
type gpu struct {
	PCI     string            `json:"pci"`
	Name    string            `json:"name"`
	Spec    string            `json:"spec"` // "cuda:0"
	Answers map[string]answer `json:"answers"`
}

// answer is yes, no, or "" where none was given, with what was seen.
type answer struct {
	Says   string `json:"says"`
	Detail string `json:"detail"`
}

// listed is a GPU before anything is exported.
type listed struct {
	gpu
	cannot string // why an export is not tried; "" if it is
}

// fromBool is the answer of an attribute.
func fromBool(b bool, detail string) answer {
	if b {
		return answer{yes, detail}
	}
	return answer{no, detail}
}

func listCUDA() ([]listed, error) {
	devices, err := cuda.Devices(gpualloc.Env{})
	var out []listed
	for _, d := range devices {
		l := listed{gpu: gpu{PCI: d.PCI.String(), Name: d.Name, Spec: fmt.Sprintf("cuda:%d", d.Ordinal), Answers: map[string]answer{
			keyDMABuf: fromBool(d.DMABuf.OK, strings.Join(d.DMABuf.Why, "; ")),
			keyRDMA:   {Detail: "the driver does not know the attribute"},
		}}}
		if d.GPUDirectRDMA != nil {
			l.Answers[keyRDMA] = fromBool(*d.GPUDirectRDMA, "")
		}
		if !d.DMABuf.OK {
			l.cannot = "CUDA says that the GPU exports no dma-bufs"
		}
		out = append(out, l)
	}
	return out, err
}

func listROCm() ([]listed, error) {
	devices, err := rocm.Devices(gpualloc.Env{})
	var out []listed
	for _, d := range devices {
		out = append(out, listed{gpu: gpu{PCI: d.PCI.String(), Name: d.Product, Spec: fmt.Sprintf("rocm:%d", d.Ordinal), Answers: map[string]answer{}}})
	}
	return out, err
}

func listLevelZero() ([]listed, error) {
	devices, err := levelzero.Devices()
	var out []listed
	for _, d := range devices {
		l := listed{gpu: gpu{PCI: d.PCI.String(), Name: d.Name, Spec: fmt.Sprintf("ze:%d", d.Ordinal), Answers: map[string]answer{
			keyDMABuf: fromBool(d.DMABuf, ""),
		}}}
		if !d.DMABuf {
			l.cannot = "Level Zero says that the driver exports no dma-bufs"
		}
		out = append(out, l)
	}
	return out, err
}

// ask asks a library about each GPU that it lists.
func (v vendor) ask(ctx context.Context) answers {
	out := answers{GPUs: []gpu{}}
	all, err := v.list()
	if err != nil {
		out.Error = err.Error()
		return out
	}
	for _, l := range all {
		if l.cannot != "" {
			l.Answers[keyExport] = answer{"", "not tried: " + l.cannot}
		} else {
			l.Answers[keyExport] = export(ctx, l.Spec)
		}
		out.GPUs = append(out.GPUs, l.gpu)
	}
	return out
}

// exportCalls are the calls that make a descriptor of allocated memory: if one of them fails, the
// library refuses the export. A failure of another call says nothing about it.
var exportCalls = map[string]bool{
	"cuMemGetHandleForAddressRange": true, "hsa_amd_portable_export_dmabuf": true, "zeMemGetAllocProperties": true,
}

// export allocates and exports a small buffer.
func export(ctx context.Context, spec string) answer {
	a, err := gpualloc.Open(spec, gpualloc.Env{})
	if err != nil {
		return answer{"", "not tried: " + err.Error()}
	}
	b, err := a.Alloc(ctx, exportSize, gpualloc.Options{Name: "hardware-test"})
	err = errors.Join(err, a.Close())
	var op *failure.Error
	switch {
	case b == nil && errors.As(err, &op) && exportCalls[op.Op] && !errors.Is(err, unix.ENOMEM):
		return answer{no, err.Error()}
	case b == nil:
		return answer{"", "no memory to export: " + err.Error()}
	}
	buf := b.Segments()[0].Buf
	out := answer{yes, fmt.Sprintf("a dma-buf of %d bytes", buf.Size())}
	if info, err := buf.Info(); err == nil && info.Exporter != "" {
		out.Detail += " of exporter " + info.Exporter
	}
	if err := errors.Join(err, b.Close()); err != nil {
		out.Detail += "; afterwards: " + err.Error()
	}
	return out
}

// child answers in a process of its own: it prints the answers of one library.
func child(name string, w io.Writer) error {
	v, err := chosen(name)
	if err != nil || len(v) != 1 {
		return errors.Join(err, errors.New("-ask wants one of cuda, rocm, levelzero"))
	}
	return json.NewEncoder(w).Encode(v[0].ask(context.Background()))
}

// askChild asks in a child.
func (h *hardware) askChild(ctx context.Context, v vendor) (answers, error) {
	var out answers
	self, err := os.Executable()
	if err != nil {
		return out, err
	}
	text, err := run(ctx, askLimit, program{path: self, args: []string{"-ask", v.name}})
	if err != nil {
		return out, err
	}
	if err := json.Unmarshal(text, &out); err != nil {
		return out, fmt.Errorf("%s -ask %s printed no answers: %w", self, v.name, err)
	}
	return out, nil
}
