// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"io"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"

	"github.com/gpurdma/gpurdma/trace/internal/abi"
	"github.com/gpurdma/gpurdma/trace/internal/fault"
	"github.com/gpurdma/gpurdma/trace/internal/objects"
)

// Lister is the iterator that this kernel has: over all dma-bufs (6.16 and later),
// else over the descriptors of all processes.
type Lister struct {
	coll *ebpf.Collection
	it   *link.Iter
	All  bool // dma-bufs, and not those that descriptors lead to
}

// OpenLister loads the iterator.
func (l *Loader) OpenLister() (*Lister, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	cs, err := objects.Spec("iter")
	if err != nil {
		return nil, err
	}
	kernel, err := l.types.Kernel()
	if err != nil {
		return nil, err
	}
	program := "list_files"
	var fn *btf.Func
	if kernel.TypeByName("bpf_iter_dmabuf", &fn) == nil {
		program = "list_dmabufs"
	}
	objects.Keep(cs, program)
	if err := cs.Variables["windows"].Set(abi.WindowBytes(l.machine.Windows())); err != nil {
		return nil, err
	}
	coll, err := ebpf.NewCollectionWithOptions(cs, ebpf.CollectionOptions{
		Cache: l.types, MapReplacements: l.shared(cs), Programs: ebpf.ProgramOptions{KernelTypes: kernel},
	})
	if err != nil {
		return nil, fault.Load(err)
	}
	it, err := link.AttachIter(link.IterOptions{Program: coll.Programs[program]})
	if err != nil {
		coll.Close()
		return nil, err
	}
	return &Lister{coll: coll, it: it, All: program == "list_dmabufs"}, nil
}

// Close detaches the iterator.
func (l *Lister) Close() {
	l.it.Close()
	l.coll.Close()
}

// Pass lists the attachments of each buffer from number first on, as many as the program writes
// at once, and after the attachments the buffer itself: see inventory.Passes.
func (l *Lister) Pass(first uint32) ([]*abi.Record, error) {
	if err := l.coll.Variables["first"].Set(first); err != nil {
		return nil, err
	}
	return listed(l.it)
}

// listed reads an iterator to its end, or as far as the kernel lets it.
func listed(it *link.Iter) (out []*abi.Record, err error) {
	rd, err := it.Open()
	if err != nil {
		return nil, err
	}
	defer rd.Close()
	data, readErr := io.ReadAll(rd)
	for ; len(data) >= abi.RecordSize; data = data[abi.RecordSize:] {
		ev, err := abi.Decode(data[:abi.RecordSize])
		if err != nil {
			return out, errors.Join(readErr, err)
		}
		if w, ok := ev.(*abi.Record); ok {
			out = append(out, w)
		}
	}
	return out, readErr
}
