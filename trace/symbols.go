// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"bufio"
	"bytes"
	"os"
	"strconv"
	"strings"
	"sync"
)

// symbol is a line of /proc/kallsyms.
type symbol struct {
	name   string
	addr   uint64 // 0: hidden by kernel.kptr_restrict
	module string // "" for vmlinux
	code   bool
}

// symbols reads /proc/kallsyms again whenever it has a question: the table is
// large, changes with every module, and is asked rarely.
type symbols struct {
	path string

	mu    sync.Mutex
	named map[uint64]symbol // answers; an address without a name has an empty one
}

func newSymbols(proc string) *symbols {
	if proc == "" {
		proc = "/proc"
	}
	return &symbols{path: proc + "/kallsyms", named: map[uint64]symbol{}}
}

// each calls fn for every symbol until it returns false.
func (s *symbols) each(fn func(symbol) bool) error {
	f, err := os.Open(s.path)
	if err != nil {
		return err
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		sym, ok := parseSymbol(sc.Bytes())
		if ok && !fn(sym) {
			break
		}
	}
	return sc.Err()
}

// parseSymbol reads "ffffffffc0a01230 t ib_dereg_mr_user\t[ib_core]".
func parseSymbol(line []byte) (symbol, bool) {
	addr, rest, ok := bytes.Cut(line, []byte{' '})
	if !ok || len(rest) < 3 || rest[1] != ' ' {
		return symbol{}, false
	}
	n, err := strconv.ParseUint(string(addr), 16, 64)
	if err != nil {
		return symbol{}, false
	}
	name, module, _ := bytes.Cut(rest[2:], []byte{'\t'})
	switch string(module) {
	case "[bpf]", "[__builtin__ftrace]", "[__builtin__kprobes]":
		return symbol{}, false
	}
	kind := rest[0] | 0x20
	return symbol{
		name: string(name), addr: n,
		module: strings.Trim(string(module), "[]"), code: kind == 't' || kind == 'w',
	}, true
}

// find looks up names. The first symbol of a name wins, as in the kernel.
func (s *symbols) find(want func(name string) bool) (map[string]symbol, error) {
	out := map[string]symbol{}
	err := s.each(func(sym symbol) bool {
		if _, dup := out[sym.name]; !dup && want(sym.name) {
			out[sym.name] = sym
		}
		return true
	})
	return out, err
}

// name names the function at an address, "" if it has none or if addresses
// are hidden.
func (s *symbols) name(addr uint64) symbol {
	if addr == 0 {
		return symbol{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if sym, ok := s.named[addr]; ok {
		return sym
	}
	if len(s.named) > 4<<10 { // modules that come and go
		clear(s.named)
	}
	var found symbol
	err := s.each(func(sym symbol) bool {
		if sym.addr == addr {
			found = sym
		}
		return found.name == ""
	})
	if err == nil {
		s.named[addr] = found
	}
	return found
}

// forget drops the answers: a module came or went.
func (s *symbols) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.named)
}
