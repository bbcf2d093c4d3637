// SPDX-License-Identifier: Apache-2.0

package symbols

import (
	"bufio"
	"bytes"
	"errors"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/cilium/ebpf/btf"
)

// Symbol is one of the kernel's, as in /proc/kallsyms.
type Symbol struct {
	Name   string
	Addr   uint64 // 0: hidden by kernel.kptr_restrict
	Module string // "" for vmlinux
	Code   bool
}

// Table reads all of the kernel's symbols again for each question. It keeps no copy: they are
// many, change with every module, and are needed rarely. Where the kernel has an iterator over
// symbols, it filters them itself; else /proc/kallsyms is read.
type Table struct {
	path string

	reading sync.Mutex  // while all of them are looked through; before mu
	list    *kernelList // nil: read path

	mu    sync.Mutex
	named map[uint64]Symbol // earlier answers; an empty Symbol for an address without a name
}

// New returns a table that reads kallsyms of procfs, whose root is proc, "" for /proc.
func New(proc string) *Table {
	if proc == "" {
		proc = "/proc"
	}
	return &Table{path: proc + "/kallsyms", named: map[uint64]Symbol{}}
}

// Use makes the kernel list its symbols from now on, until Close. On a kernel without the iterator
// it does nothing, and returns no error.
func (s *Table) Use(cache *btf.Cache, kernel *btf.Spec) error {
	list, err := newKernelList(cache, kernel)
	if errors.Is(err, errNoKernelList) {
		return nil
	}
	s.reading.Lock()
	defer s.reading.Unlock()
	s.list = list
	return err
}

// Close frees what Use has loaded.
func (s *Table) Close() {
	s.reading.Lock()
	defer s.reading.Unlock()
	if s.list != nil {
		s.list.close()
		s.list = nil
	}
}

// Path is the file that is read where the kernel does not list its symbols.
func (s *Table) Path() string { return s.path }

// Listed reports whether the kernel lists its symbols: whether [Table.Use] had it do so.
func (s *Table) Listed() bool {
	s.reading.Lock()
	defer s.reading.Unlock()
	return s.list != nil
}

// raw is a symbol whose name and module are not copied yet, since there are two
// hundred thousand.
type raw struct {
	name, module []byte
	addr         uint64
	kind         byte
}

func (r raw) symbol() Symbol {
	kind := r.kind | 0x20
	return Symbol{
		Name: string(r.name), Addr: r.addr,
		Module: string(r.module), Code: kind == 't' || kind == 'w',
	}
}

// filter picks the symbols that are worth parsing.
type filter interface {
	passes(line []byte) bool  // a line of /proc/kallsyms
	question() map[string]any // the variables of bpf/symbols.bpf.c
}

// each calls fn for every symbol that passes the filter, until it returns
// false.
func (s *Table) each(pick filter, fn func(raw) bool) error {
	if s.list != nil {
		return s.list.each(pick, fn)
	}
	f, err := os.Open(s.path)
	if err != nil {
		return err
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		if !pick.passes(sc.Bytes()) {
			continue
		}
		if r, ok := parse(sc.Bytes()); ok && !fn(r) {
			break
		}
	}
	return sc.Err()
}

// parse reads "ffffffffc0a01230 t ib_dereg_mr_user\t[ib_core]".
func parse(line []byte) (r raw, ok bool) {
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

// generated reports whether a module stands for code that the kernel generates at run time.
func generated(module []byte) bool {
	switch string(module) {
	case "bpf", "__builtin__ftrace", "__builtin__kprobes":
		return true
	}
	return false
}

var hexDigits = []byte("0123456789abcdef")

// importerWords are parts of the names of importers' operations and callbacks.
var importerWords = [][]byte{[]byte("dmabuf"), []byte("dma_buf")}

// Others are symbols that [Table.Find] returns beside those whose names it is given.
type Others struct {
	Words  [][]byte               // the name has one of these words in it
	Wanted func(name []byte) bool // and this function accepts it
}

// Find looks up names, and the others. Where several symbols have one name it returns the
// first, as the kernel does. It remembers by address the symbols that may be operations of
// importers, because the tracer asks [Table.Name] for them. It forgets what it remembered
// before, since modules come and go, but only when it has the new answers, so that no caller
// of Name waits meanwhile.
func (s *Table) Find(names map[string]bool, others Others) (map[string]Symbol, error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	out, named := map[string]Symbol{}, map[uint64]Symbol{}
	err := s.each(newNameFilter(names, slices.Concat(importerWords, others.Words)), func(r raw) bool {
		if r.addr != 0 && slices.ContainsFunc(importerWords, func(w []byte) bool { return bytes.Contains(r.name, w) }) {
			named[r.addr] = r.symbol()
		}
		if names[string(r.name)] || others.Wanted != nil && others.Wanted(r.name) {
			if _, dup := out[string(r.name)]; !dup {
				out[string(r.name)] = r.symbol()
			}
		}
		return true
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.named = named
	return out, err
}

// Remembered returns a copy of what Find and Name have found by address.
func (s *Table) Remembered() map[uint64]Symbol {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.named)
}

// Name names the function at an address, "" if it has none or if addresses
// are hidden.
func (s *Table) Name(addr uint64) Symbol {
	if addr == 0 {
		return Symbol{}
	}
	if sym, ok := s.known(addr); ok {
		return sym
	}
	s.reading.Lock()
	defer s.reading.Unlock()
	if sym, ok := s.known(addr); ok {
		return sym
	}
	var found Symbol
	err := s.each(newAddressFilter(addr), func(r raw) bool {
		if r.addr == addr {
			found = r.symbol()
		}
		return found.Name == ""
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

func (s *Table) known(addr uint64) (Symbol, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sym, ok := s.named[addr]
	return sym, ok
}
