// SPDX-License-Identifier: Apache-2.0

package lspci

import (
	"io"
	"regexp"
	"strings"

	"github.com/gpurdma/gpurdma/pciaddr"
)

// bus is a bus of a domain.
type bus struct {
	domain uint32
	number uint8
}

func busOf(a pciaddr.Addr) bus { return bus{a.Domain, a.Bus} }

// Tree is the parsed output of `lspci -t`, with -v or without: it says which bridge leads to a
// bus.
type Tree struct {
	above     map[bus]pciaddr.Addr
	roots     map[bus]bool
	functions map[pciaddr.Addr]bool
}

// treeRoot matches the beginning of a line with a root bus.
var treeRoot = regexp.MustCompile(`^[-\\+ |]{0,3}\[[0-9a-f]{4,8}:[0-9a-f]{2}\]-`)

// ParseTree reads the output of `lspci -tv`, or of `lspci -t`. It returns ErrFormat for another text, and the errors
// of r.
func ParseTree(r io.Reader) (*Tree, error) {
	p := treeParser{Tree: &Tree{above: map[bus]pciaddr.Addr{}, roots: map[bus]bool{}, functions: map[pciaddr.Addr]bool{}}}
	if err := eachLine(r, TreeCommand, p.line); err != nil {
		return nil, err
	}
	if len(p.functions) == 0 {
		return nil, refuse(TreeCommand, "no line begins a tree, as “-[0000:00]-+-00.0” does")
	}
	return p.Tree, nil
}

// branch is the column of a "+" or "\" in the lines, and what is below it.
type branch struct {
	column int
	// bus is the bus of the functions below the branch. It is nil if root buses, or several buses of the
	// bridge, are below it.
	bus    *bus
	bridge *pciaddr.Addr
}

type treeParser struct {
	*Tree
	branches []branch // those that are open, from the left
}

var (
	treeBus    = regexp.MustCompile(`^\[([0-9a-f]{4,8}):([0-9a-f]{2})\]`)
	treeDevice = regexp.MustCompile(`^([0-1][0-9a-f])\.([0-7])`)
	treeBridge = regexp.MustCompile(`^-\[([0-9a-f]{2})(?:-[0-9a-f]{2})?\]`)
)

// line reads a line: a branch of one that came before, and what hangs on it.
func (p *treeParser) line(n int, line string, whole bool) error {
	at := strings.IndexFunc(line, func(c rune) bool { return c != ' ' && c != '|' })
	if at < 0 || !whole && strings.TrimSpace(line) == "" {
		return nil
	}
	var on branch
	switch {
	case strings.HasPrefix(line, "-"):
		p.branches = nil
		on = branch{column: -1}
	case line[at] == '+' || line[at] == '\\':
		for len(p.branches) > 0 && p.branches[len(p.branches)-1].column > at {
			p.branches = p.branches[:len(p.branches)-1]
		}
		if len(p.branches) == 0 || p.branches[len(p.branches)-1].column != at {
			return refuse(TreeCommand, "line %d has a branch in column %d, where no line before has one", n, at+1)
		}
		on = p.branches[len(p.branches)-1]
		if line[at] == '\\' {
			p.branches = p.branches[:len(p.branches)-1]
		}
	default:
		return nil // a prompt, or a warning
	}
	return p.hang(n, line, at, on)
}

// hang reads what is below a branch, from a column on.
func (p *treeParser) hang(n int, line string, at int, on branch) error {
	for depth := 0; ; depth++ {
		if depth > 2*depthLimit {
			return refuse(TreeCommand, "line %d is deeper than %d bridges", n, depthLimit)
		}
		for at < len(line) && (line[at] == '-' || line[at] == '+' || line[at] == '\\') {
			if line[at] == '+' && (len(p.branches) == 0 || p.branches[len(p.branches)-1].column < at) {
				p.branches = append(p.branches, branch{at, on.bus, on.bridge})
			}
			at++
		}
		rest := line[at:]
		switch m := treeBus.FindStringSubmatch(rest); {
		case strings.TrimSpace(rest) == "":
			return nil // a bus without a function
		case m != nil:
			next := bus{uint32(number[uint64](m[1], 16)), number[uint8](m[2], 16)}
			if err := p.lead(n, next, on.bridge); err != nil {
				return err
			}
			on = branch{bus: &next}
			at += len(m[0])
			continue
		}
		m := treeDevice.FindStringSubmatch(rest)
		if m == nil || on.bus == nil {
			return refuse(TreeCommand, "line %d has %.20q, where a function or a bus was expected", n, rest)
		}
		a := pciaddr.Addr{Domain: on.bus.domain, Bus: on.bus.number, Device: number[uint8](m[1], 16), Function: number[uint8](m[2], 8)}
		if p.functions[a] || len(p.functions) == functionLimit {
			return refuse(TreeCommand, "line %d has %v, which is there twice or is one too many", n, a)
		}
		p.functions[a] = true
		at += len(m[0])
		b := treeBridge.FindStringSubmatch(line[at:])
		if b == nil {
			return nil // its name, or nothing, is behind it
		}
		next := bus{a.Domain, number[uint8](b[1], 16)}
		if err := p.lead(n, next, &a); err != nil {
			return err
		}
		on = branch{bus: &next, bridge: &a}
		at += len(b[0])
	}
}

// lead notes what is above a bus: a bridge, or the root.
func (p *treeParser) lead(n int, b bus, bridge *pciaddr.Addr) error {
	if bridge == nil {
		p.roots[b] = true
		return nil
	}
	before, there := p.above[b]
	if there && before != *bridge || b.domain == bridge.Domain && b.number <= bridge.Bus {
		return refuse(TreeCommand, "line %d has bus %02x below %v, which cannot be", n, b.number, *bridge)
	}
	p.above[b] = *bridge
	return nil
}
