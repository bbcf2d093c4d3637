// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"bytes"
	_ "embed" // the objects that `make generate` builds
	"fmt"
	"maps"
	"slices"

	"github.com/cilium/ebpf"
)

var (
	//go:embed bpf/core.o
	coreObject []byte
	//go:embed bpf/rdma.o
	rdmaObject []byte
	//go:embed bpf/rdma_kprobe.o
	rdmaKprobeObject []byte
	//go:embed bpf/exporter.o
	exporterObject []byte
	//go:embed bpf/iter.o
	iterObject []byte
	//go:embed bpf/symbols.o
	symbolsObject []byte
)

// all are the objects by the names of their sources.
var all = map[string][]byte{
	"core": coreObject, "rdma": rdmaObject, "rdma_kprobe": rdmaKprobeObject,
	"exporter": exporterObject, "iter": iterObject, "symbols": symbolsObject,
}

// Spec describes the programs and maps of an object: "core", "rdma", "rdma_kprobe",
// "exporter", "iter" or "symbols".
func Spec(name string) (*ebpf.CollectionSpec, error) {
	s, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(all[name]))
	if err != nil {
		return nil, fmt.Errorf("trace: embedded object %s: %w", name, err)
	}
	return s, nil
}

// Keep removes all other programs from a description.
func Keep(cs *ebpf.CollectionSpec, programs ...string) {
	maps.DeleteFunc(cs.Programs, func(name string, _ *ebpf.ProgramSpec) bool { return !slices.Contains(programs, name) })
}
