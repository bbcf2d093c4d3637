// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"bytes"
	"slices"
	"strings"

	"github.com/cilium/ebpf/btf"

	"github.com/gpurdma/gpurdma/trace/internal/symbols"
)

// Words of the name of a function that may be an exporter's attach, pin or map
// operation. Its prototype decides.
var (
	exporterWords = words("dma_buf", "dmabuf", "prime", "gem", "heap", "virtgpu")
	exporterVerbs = words("attach", "pin", "map")
	exporterNot   = words("detach", "unpin", "unmap", "mmap", "vmap")
	notAtFirst    = words("dma_buf_", "__", "bpf_")
)

func words(list ...string) (out [][]byte) {
	for _, w := range list {
		out = append(out, []byte(w))
	}
	return out
}

// WhatExporterOps is the Hook.What of exporters' own operations.
const WhatExporterOps = "refusals of the exporter itself"

// ExporterOps are the symbols that may be an exporter's operation.
var ExporterOps = symbols.Others{Words: exporterWords, Wanted: maybeExporterOp}

// maybeExporterOp is asked of every symbol that has one of exporterWords, and of
// some others.
func maybeExporterOp(name []byte) bool {
	in := func(w []byte) bool { return bytes.Contains(name, w) }
	return slices.ContainsFunc(exporterWords, in) && slices.ContainsFunc(exporterVerbs, in) && !slices.ContainsFunc(exporterNot, in) &&
		!slices.ContainsFunc(notAtFirst, func(w []byte) bool { return bytes.HasPrefix(name, w) })
}

// opOf says which operation of struct dma_buf_ops a function can be, by its
// prototype (include/linux/dma-buf.h).
func opOf(fn *btf.Func) string {
	proto, ok := fn.Type.(*btf.FuncProto)
	if !ok {
		return ""
	}
	params := make([]string, len(proto.Params))
	for i, p := range proto.Params {
		params[i] = typeWord(p.Type)
	}
	switch ret := typeWord(proto.Return); {
	case ret == "int" && slices.Equal(params, []string{"*dma_buf", "*dma_buf_attachment"}):
		return "attach"
	case ret == "int" && slices.Equal(params, []string{"*dma_buf_attachment"}):
		return "pin"
	case ret == "*sg_table" && slices.Equal(params, []string{"*dma_buf_attachment", "dma_data_direction"}):
		return "map"
	}
	return ""
}

func typeWord(t btf.Type) string {
	stars := ""
	for {
		t = btf.UnderlyingType(t)
		p, ok := t.(*btf.Pointer)
		if !ok {
			return stars + strings.TrimPrefix(t.TypeName(), "struct ")
		}
		stars += "*"
		t = p.Target
	}
}
