// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"errors"
	"io"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
)

// lister is the iterator that this kernel has: over all dma-bufs (6.16 and later),
// else over the descriptors of all processes.
type lister struct {
	coll *ebpf.Collection
	it   *link.Iter
	all  bool // dma-bufs, and not those that descriptors lead to
}

func (l *loader) openLister() (*lister, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	cs, err := spec("iter")
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
	keep(cs, []hook{{program: program}})
	if err := cs.Variables["windows"].Set(windowBytes(l.machine.windows())); err != nil {
		return nil, err
	}
	coll, err := ebpf.NewCollectionWithOptions(cs, ebpf.CollectionOptions{
		Cache: l.types, MapReplacements: l.shared(cs), Programs: ebpf.ProgramOptions{KernelTypes: kernel},
	})
	if err != nil {
		return nil, explainLoad(err)
	}
	it, err := link.AttachIter(link.IterOptions{Program: coll.Programs[program]})
	if err != nil {
		coll.Close()
		return nil, err
	}
	return &lister{coll: coll, it: it, all: program == "list_dmabufs"}, nil
}

func (l *lister) Close() {
	l.it.Close()
	l.coll.Close()
}

// list answers with all attachments, and after those of a buffer with the buffer.
func (l *lister) list() ([]*wireRecord, error) {
	return passes(func(first uint32) ([]*wireRecord, error) {
		if err := l.coll.Variables["first"].Set(first); err != nil {
			return nil, err
		}
		return listed(l.it)
	})
}

// listed reads an iterator to its end, or as far as the kernel lets it.
func listed(it *link.Iter) (out []*wireRecord, err error) {
	rd, err := it.Open()
	if err != nil {
		return nil, err
	}
	defer rd.Close()
	data, readErr := io.ReadAll(rd)
	for ; len(data) >= wireRecordSize; data = data[wireRecordSize:] {
		ev, err := decode(data[:wireRecordSize])
		if err != nil {
			return out, errors.Join(readErr, err)
		}
		if w, ok := ev.(*wireRecord); ok {
			out = append(out, w)
		}
	}
	return out, readErr
}
