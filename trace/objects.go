// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"bytes"
	_ "embed" // the objects that `make generate` builds
	"fmt"

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

// objects are all of them, by the name of their source.
var objects = map[string][]byte{
	"core": coreObject, "rdma": rdmaObject, "rdma_kprobe": rdmaKprobeObject,
	"exporter": exporterObject, "iter": iterObject, "symbols": symbolsObject,
}

func spec(name string) (*ebpf.CollectionSpec, error) {
	s, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(objects[name]))
	if err != nil {
		return nil, fmt.Errorf("trace: embedded object %s: %w", name, err)
	}
	return s, nil
}
