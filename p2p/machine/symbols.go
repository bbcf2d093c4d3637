// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bufio"
	"bytes"
	"errors"
	"io/fs"
	"strings"

	"github.com/gpurdma/gpurdma/internal/files"
	"github.com/gpurdma/gpurdma/internal/procfs"
	"github.com/gpurdma/gpurdma/placement"
)

// probeSymbols looks among the kernel's symbols for the function of the peer-to-peer decision.
func probeSymbols(proc procfs.FS, missing string) (p2pdma placement.Answer, source string) {
	name := proc.Path("kallsyms")
	if strings.HasPrefix(name, noFiles+"/") {
		return placement.AnswerUnknown, missing + ", and no procfs was given: add --proc DIR"
	}
	answer, err := HasSymbol(proc, "pci_p2pdma_distance_many", "_etext")
	switch {
	case errors.Is(err, fs.ErrNotExist): // the error has the path in the copy, and the machine has another
		return answer, missing + ", and no list of the kernel's symbols"
	case err != nil:
		return answer, missing + ", and symbols cannot be read: " + err.Error()
	case answer == placement.AnswerUnknown:
		return answer, missing + ", and " + name + " does not have the kernel's symbols"
	}
	return answer, name
}

// HasSymbol says whether /proc/kallsyms has a symbol. neighbour is a symbol that every kernel of this kind
// has; in a list that may be cut, it comes after symbol. If both are missing, the list is incomplete,
// and the answer is unknown.
func HasSymbol(proc procfs.FS, symbol, neighbour string) (placement.Answer, error) {
	f, err := files.Open(proc.Path("kallsyms"))
	if err != nil {
		return placement.AnswerUnknown, err
	}
	defer f.Close()
	answer := placement.AnswerUnknown
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		switch string(symbolOf(lines.Bytes())) {
		case symbol:
			return placement.Yes, nil
		case neighbour:
			answer = placement.No
		}
	}
	if err := lines.Err(); err != nil {
		return placement.AnswerUnknown, err
	}
	return answer, nil
}

// moduleHasSymbol is HasSymbol of a module, whose symbols stand together, in the linker's order. A line
// after them shows that the list was not cut there.
func moduleHasSymbol(proc procfs.FS, module, symbol, neighbour string) (placement.Answer, error) {
	f, err := files.Open(proc.Path("kallsyms"))
	if err != nil {
		return placement.AnswerUnknown, err
	}
	defer f.Close()
	there, ended := false, false
	mark := []byte("\t[" + module + "]")
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if !bytes.HasSuffix(lines.Bytes(), mark) {
			ended = ended || there
			continue
		}
		switch string(symbolOf(lines.Bytes())) {
		case symbol:
			return placement.Yes, nil
		case neighbour:
			there = true
		}
	}
	if err := lines.Err(); err != nil || !ended {
		return placement.AnswerUnknown, err
	}
	return placement.No, nil
}

// symbolOf is the name in "ffffffff81000000 T name" and "… t name\t[module]".
func symbolOf(line []byte) []byte {
	_, kind, _ := bytes.Cut(line, []byte{' '})
	_, name, _ := bytes.Cut(kind, []byte{' '})
	name, _, _ = bytes.Cut(name, []byte{'\t'})
	return name
}
