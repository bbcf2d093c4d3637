// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
)

// symbolList asks the kernel for the symbols that pass a filter, by a BPF
// iterator over them (Linux 6.0 and later). It tells addresses whatever
// kernel.kptr_restrict says.
type symbolList struct {
	coll *ebpf.Collection
	iter *link.Iter
}

// errNoSymbolList: this kernel has no iterator over symbols.
var errNoSymbolList = errors.New("no BPF iterator over symbols")

func newSymbolList(cache *btf.Cache, kernel *btf.Spec) (_ *symbolList, err error) {
	var fn *btf.Func
	if kernel.TypeByName("bpf_iter_ksym", &fn) != nil {
		return nil, errNoSymbolList
	}
	cs, err := spec("symbols")
	if err != nil {
		return nil, err
	}
	l := &symbolList{}
	l.coll, err = ebpf.NewCollectionWithOptions(cs, ebpf.CollectionOptions{
		Cache: cache, Programs: ebpf.ProgramOptions{KernelTypes: kernel},
	})
	if err != nil {
		return nil, explainLoad(err)
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

// each is [symbols.each] without the text.
func (l *symbolList) each(filter symbolFilter, fn func(rawSymbol) bool) error {
	for name, value := range filter.question() {
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
			if raw, ok := decodeSymbol(data); ok && !fn(raw) {
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

// decodeSymbol reads a struct found_symbol. What it returns is part of data.
func decodeSymbol(data []byte) (rawSymbol, bool) {
	text := func(b []byte) []byte {
		b, _, _ = bytes.Cut(b, []byte{0})
		return b
	}
	r := rawSymbol{
		addr: binary.NativeEndian.Uint64(data), kind: data[8],
		name: text(data[9:][:128]), module: text(data[9+128:][:56]),
	}
	return r, !generated(r.module)
}

func (l *symbolList) close() {
	_ = l.iter.Close()
	l.coll.Close()
}
