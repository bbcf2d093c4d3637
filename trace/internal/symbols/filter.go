// SPDX-License-Identifier: Apache-2.0

package symbols

import "bytes"

// nameFilter picks the symbols that are worth parsing: a few hundred of two hundred
// thousand. It passes every symbol that is one of its names or has one of its words in
// its name, and few others. bpf/symbols.bpf.c does the same.
//
// Words are found by an automaton that looks at each byte once (Aho and Corasick,
// "Efficient string matching", 1975).
type nameFilter struct {
	next   [256][256]uint8 // by state and byte; state 0 is the start
	found  [256]bool       // by state: a word ends here
	states int             // in use
	names  [256]uint64     // by first byte: a bit for the length of each name, modulo 64
}

func newNameFilter(names map[string]bool, words [][]byte) *nameFilter {
	f := &nameFilter{states: 1}
	for name := range names {
		if name == "" {
			continue
		}
		f.names[name[0]] |= 1 << (len(name) % 64)
	}
	for _, w := range words {
		f.add(w)
	}
	f.link()
	return f
}

// add adds a word's path to the tree of all words, in which 0 is "no child". All words
// together have less than 256 letters.
func (f *nameFilter) add(word []byte) {
	state := uint8(0)
	for _, c := range word {
		child := f.next[state][c]
		if child == 0 {
			child = uint8(f.states)
			f.next[state][c] = child
			f.states++
		}
		state = child
	}
	f.found[state] = true
}

// link makes the tree an automaton: where a state has no child for a byte, the next state is that
// of its longest suffix that is also the beginning of a word.
func (f *nameFilter) link() {
	var back [256]uint8
	var queue []uint8
	for _, child := range f.next[0] {
		if child != 0 {
			queue = append(queue, child)
		}
	}
	for len(queue) > 0 {
		state := queue[0]
		queue = queue[1:]
		f.found[state] = f.found[state] || f.found[back[state]]
		for c, child := range f.next[state] {
			other := f.next[back[state]][c]
			if child == 0 {
				f.next[state][c] = other
				continue
			}
			back[child] = other
			queue = append(queue, child)
		}
	}
}

// nameAt is where the name begins in a line with a 64-bit address.
const nameAt = len("ffffffffc0a01230 t ")

// passes reports whether a line is worth parsing. A line of another shape is.
func (f *nameFilter) passes(line []byte) bool {
	if len(line) <= nameAt || line[16] != ' ' || line[18] != ' ' {
		return true
	}
	name := line[nameAt:]
	state := uint8(0)
	for i, c := range name {
		if c == '\t' {
			name = name[:i]
			break
		}
		state = f.next[state][c]
		if f.found[state] {
			return true
		}
	}
	return len(name) > 0 && f.names[name[0]]&(1<<(len(name)%64)) != 0
}

func (f *nameFilter) question() map[string]any {
	return map[string]any{"wanted": uint64(0), "next": f.next, "found": f.found, "lengths": f.names}
}

// addressFilter picks the symbols of one address.
type addressFilter struct {
	addr uint64
	text [16]byte
}

func newAddressFilter(addr uint64) *addressFilter {
	f := &addressFilter{addr: addr}
	for i := range f.text {
		f.text[i] = hexDigits[addr>>(60-4*i)&0xf]
	}
	return f
}

func (f *addressFilter) passes(line []byte) bool {
	return len(line) < nameAt || line[16] != ' ' || bytes.Equal(line[:16], f.text[:])
}

func (f *addressFilter) question() map[string]any { return map[string]any{"wanted": f.addr} }
