// SPDX-License-Identifier: Apache-2.0

package symbols

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"

	"github.com/gpurdma/gpurdma/trace/internal/fault"
	"github.com/gpurdma/gpurdma/trace/internal/objects"
)

// kernelList asks the kernel for the symbols that pass a filter, by a BPF
// iterator over them (Linux 6.0 and later). The iterator shows addresses whatever
// kernel.kptr_restrict is.
type kernelList struct {
	coll *ebpf.Collection
	iter *link.Iter
}

// errNoKernelList means that this kernel has no iterator over symbols.
var errNoKernelList = errors.New("no BPF iterator over symbols")

func newKernelList(cache *btf.Cache, kernel *btf.Spec) (_ *kernelList, err error) {
	var fn *btf.Func
	if kernel.TypeByName("bpf_iter_ksym", &fn) != nil {
		return nil, errNoKernelList
	}
	cs, err := objects.Spec("symbols")
	if err != nil {
		return nil, err
	}
	l := &kernelList{}
	l.coll, err = ebpf.NewCollectionWithOptions(cs, ebpf.CollectionOptions{
		Cache: cache, Programs: ebpf.ProgramOptions{KernelTypes: kernel},
	})
	if err != nil {
		return nil, fault.Load(err)
	}
	l.iter, err = link.AttachIter(link.IterOptions{Program: l.coll.Programs["list_symbols"]})
	if err != nil {
		l.coll.Close()
		return nil, err
	}
	return l, nil
}

// foundSymbol is struct found_symbol of bpf/symbols.bpf.c.
type foundSymbol struct {
	Addr   uint64
	Type   uint8
	Name   [128]uint8
	Module [56]uint8
	_      [7]uint8
}

const foundSymbolSize = 8 + 1 + 128 + 56 + 7

// each is [Table.each] by the iterator instead of the text.
func (l *kernelList) each(pick filter, fn func(raw) bool) error {
	for name, value := range pick.question() {
		if err := l.coll.Variables[name].Set(value); err != nil {
			return fmt.Errorf("trace: symbols: %s: %w", name, err)
		}
	}
	rd, err := l.iter.Open()
	if err != nil {
		return err
	}
	defer rd.Close()
	var buf [64 * foundSymbolSize]byte
	for {
		n, err := io.ReadFull(rd, buf[:])
		for data := buf[:n]; len(data) >= foundSymbolSize; data = data[foundSymbolSize:] {
			if r, ok := decodeSymbol(data); ok && !fn(r) {
				return nil
			}
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// decodeSymbol reads a struct found_symbol. The slices that it returns are parts of data.
func decodeSymbol(data []byte) (raw, bool) {
	text := func(b []byte) []byte {
		b, _, _ = bytes.Cut(b, []byte{0})
		return b
	}
	r := raw{
		addr: binary.NativeEndian.Uint64(data), kind: data[8],
		name: text(data[9:][:128]), module: text(data[9+128:][:56]),
	}
	return r, !generated(r.module)
}

func (l *kernelList) close() {
	_ = l.iter.Close()
	l.coll.Close()
}
