// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"slices"
	"sync"

	"github.com/cilium/ebpf/btf"
)

// symbol is one of the kernel's, as in /proc/kallsyms.
type symbol struct {
	name   string
	addr   uint64 // 0: hidden by kernel.kptr_restrict
	module string // "" for vmlinux
	code   bool
}

// symbols looks through all of the kernel's symbols again whenever it has a
// question: they are many, change with every module, and are asked for rarely.
// The kernel looks, where it has an iterator over them; else /proc/kallsyms is read.
type symbols struct {
	path string

	reading sync.Mutex  // while all of them are looked through; before mu
	list    *symbolList // nil: read path

	mu    sync.Mutex
	named map[uint64]symbol // answers; an address without a name has an empty one
}

func newSymbols(proc string) *symbols {
	if proc == "" {
		proc = "/proc"
	}
	return &symbols{path: proc + "/kallsyms", named: map[uint64]symbol{}}
}

// use makes the kernel look from now on, until close. A kernel that cannot is
// no error.
func (s *symbols) use(cache *btf.Cache, kernel *btf.Spec) error {
	list, err := newSymbolList(cache, kernel)
	if errors.Is(err, errNoSymbolList) {
		return nil
	}
	s.reading.Lock()
	defer s.reading.Unlock()
	s.list = list
	return err
}

func (s *symbols) close() {
	s.reading.Lock()
	defer s.reading.Unlock()
	if s.list != nil {
		s.list.close()
		s.list = nil
	}
}

// rawSymbol is a symbol that has been taken apart and not copied: there are two
// hundred thousand.
type rawSymbol struct {
	name, module []byte
	addr         uint64
	kind         byte
}

func (r rawSymbol) symbol() symbol {
	kind := r.kind | 0x20
	return symbol{
		name: string(r.name), addr: r.addr,
		module: string(r.module), code: kind == 't' || kind == 'w',
	}
}

// symbolFilter picks the symbols that are worth taking apart.
type symbolFilter interface {
	passes(line []byte) bool  // a line of /proc/kallsyms
	question() map[string]any // the variables of bpf/symbols.bpf.c
}

// each calls fn for every symbol that passes the filter, until it returns
// false.
func (s *symbols) each(filter symbolFilter, fn func(rawSymbol) bool) error {
	if s.list != nil {
		return s.list.each(filter, fn)
	}
	f, err := os.Open(s.path)
	if err != nil {
		return err
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		if !filter.passes(sc.Bytes()) {
			continue
		}
		if raw, ok := parseSymbol(sc.Bytes()); ok && !fn(raw) {
			break
		}
	}
	return sc.Err()
}

// parseSymbol reads "ffffffffc0a01230 t ib_dereg_mr_user\t[ib_core]".
func parseSymbol(line []byte) (r rawSymbol, ok bool) {
	addr, rest, ok := bytes.Cut(line, []byte{' '})
	if !ok || len(rest) < 3 || rest[1] != ' ' {
		return r, false
	}
	for _, c := range addr {
		digit := bytes.IndexByte(hexDigits, c)
		if digit < 0 || r.addr>>60 != 0 {
			return r, false
		}
		r.addr = r.addr<<4 | uint64(digit)
	}
	r.kind = rest[0]
	r.name, r.module, _ = bytes.Cut(rest[2:], []byte{'\t'})
	r.module = bytes.Trim(r.module, "[]")
	return r, !generated(r.module)
}

// generated tells the modules of code that the kernel made while it ran.
func generated(module []byte) bool {
	switch string(module) {
	case "bpf", "__builtin__ftrace", "__builtin__kprobes":
		return true
	}
	return false
}

var hexDigits = []byte("0123456789abcdef")

// What importers' operations and callbacks have in their names.
var importerWords = words("dmabuf", "dma_buf")

// find looks up names, and exporters' operations if it is told to. The first
// symbol of a name wins, as in the kernel. What may be an importer's is
// remembered by its address: it will be asked for. Older answers are forgotten, since
// modules come and go, but not before: who asks meanwhile is not kept waiting.
func (s *symbols) find(names map[string]bool, exporters bool) (map[string]symbol, error) {
	hints := importerWords
	if exporters {
		hints = slices.Concat(importerWords, exporterWords)
	}
	s.reading.Lock()
	defer s.reading.Unlock()
	out, named := map[string]symbol{}, map[uint64]symbol{}
	err := s.each(newNameFilter(names, hints), func(raw rawSymbol) bool {
		if raw.addr != 0 && slices.ContainsFunc(importerWords, func(w []byte) bool { return bytes.Contains(raw.name, w) }) {
			named[raw.addr] = raw.symbol()
		}
		if names[string(raw.name)] || exporters && maybeExporterOp(raw.name) {
			if _, dup := out[string(raw.name)]; !dup {
				out[string(raw.name)] = raw.symbol()
			}
		}
		return true
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.named = named
	return out, err
}

// name names the function at an address, "" if it has none or if addresses
// are hidden.
func (s *symbols) name(addr uint64) symbol {
	if addr == 0 {
		return symbol{}
	}
	if sym, ok := s.known(addr); ok {
		return sym
	}
	s.reading.Lock()
	defer s.reading.Unlock()
	if sym, ok := s.known(addr); ok {
		return sym
	}
	var found symbol
	err := s.each(newAddressFilter(addr), func(raw rawSymbol) bool {
		if raw.addr == addr {
			found = raw.symbol()
		}
		return found.name == ""
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.named) > 4<<10 { // modules that come and go
		clear(s.named)
	}
	if err == nil {
		s.named[addr] = found
	}
	return found
}

func (s *symbols) known(addr uint64) (symbol, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sym, ok := s.named[addr]
	return sym, ok
}
