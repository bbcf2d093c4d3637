// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/product"
)

// Answers to a question.
const (
	yes = "yes"
	no  = "no"
)

// expected is a prediction of an answer: yes, no, or "" where there is none, with the reason.
type expected struct{ says, why string }

// question is one thing to ask a vendor's library about a GPU.
type question struct {
	key    string // of the answers: "dma_buf"
	text   string
	expect func(*machine.Machine, drivers.Exporter) expected
}

// vendor is a library, and what it is asked.
type vendor struct {
	name      string   // as HARDWARE has it
	library   string   // the file that is loaded
	drivers   []string // of the GPUs that it lists
	questions []question
	list      func() ([]listed, error)
}

// The keys of questions.
const (
	keyDMABuf = "dma_buf"
	keyRDMA   = "gpu_direct_rdma"
	keyExport = "export"
)

// exportSize is the size of the allocation that is exported.
const exportSize = 64 << 10

func exportBy(call string) question {
	return question{keyExport, fmt.Sprintf("an export of %d KiB (%s)", exportSize>>10, call), expectDMABuf}
}

// vendors are all that there are.
var vendors = []vendor{
	{
		name: "cuda", library: "libcuda.so.1", drivers: []string{"nvidia"}, list: listCUDA,
		questions: []question{
			{keyDMABuf, "CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED (124)", expectDMABuf},
			{keyRDMA, "CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED (116)", expectRDMA},
			exportBy("cuMemGetHandleForAddressRange"),
		},
	},
	{
		name: "rocm", library: "libhsa-runtime64.so.1", drivers: []string{"amdgpu"}, list: listROCm,
		questions: []question{exportBy("hsa_amd_portable_export_dmabuf")},
	},
	{
		name: "levelzero", library: "libze_loader.so.1", drivers: []string{"i915", "xe"}, list: listLevelZero,
		questions: []question{
			{keyDMABuf, "ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF", expectDMABuf},
			exportBy("zeMemGetAllocProperties"),
		},
	},
}

// chosen are the vendors whose names are in the list; all of them for an empty one.
func chosen(names string) ([]vendor, error) {
	words := strings.FieldsFunc(names, func(r rune) bool { return r == ',' || r == ' ' })
	if len(words) == 0 {
		return vendors, nil
	}
	var out []vendor
	for _, word := range words {
		i := slices.IndexFunc(vendors, func(v vendor) bool { return v.name == word })
		if i < 0 {
			return nil, fmt.Errorf("HARDWARE=%s: %q is none of cuda, rocm, levelzero", names, word)
		}
		out = append(out, vendors[i])
	}
	return out, nil
}

// asks lists the questions in one line.
func (v vendor) asks() string {
	var texts []string
	for _, q := range v.questions {
		texts = append(texts, q.text)
	}
	return strings.Join(texts, ", ")
}

// expectDMABuf predicts whether the library exports dma-bufs of the GPU.
func expectDMABuf(m *machine.Machine, e drivers.Exporter) expected {
	switch a := p2p.Exports(m, e); {
	case a.State == chain.NotAsked:
		return expected{"", fmt.Sprintf("no rule predicts a library's answer for a GPU of driver %q", e.Driver)}
	case a.State.Good():
		return expected{yes, p2p.Product(m, e).Why}
	case a.State == chain.Breaks && a.Outcome == chain.Refused:
		return expected{no, a.Text()}
	default:
		return expected{"", a.Text()}
	}
}

// expectRDMA predicts whether the GPU's memory can be had without a dma-buf, as nvidia-peermem
// has it.
func expectRDMA(m *machine.Machine, e drivers.Exporter) expected {
	if e.PCI == nil {
		return expected{"", "the GPU is no PCI function"}
	}
	said := p2p.Product(m, e)
	switch said.PeerMem {
	case product.Yes:
		return expected{yes, said.Why}
	case product.No:
		return expected{no, said.Why}
	}
	return expected{"", said.Why}
}
