// SPDX-License-Identifier: Apache-2.0

package lspci

import (
	"io"
	"regexp"
	"strings"

	"github.com/gpurdma/gpurdma/pciaddr"
)

// Text is the parsed output of lspci about a machine's functions.
type Text struct {
	functions []*function
	byAddr    map[pciaddr.Addr]*function
	noDomain  bool // an address is without its domain
	cut       bool // it ends inside a line, or inside a function
}

// Parse reads the output of lspci, with any flags but -m and -t. It returns ErrFormat for another text, and the
// errors of r.
func Parse(r io.Reader) (*Text, error) {
	p := lineParser{Text: &Text{byAddr: map[pciaddr.Addr]*function{}}}
	if err := eachLine(r, Command, p.line); err != nil {
		return nil, err
	}
	t := p.Text
	if p.now != nil && !p.now.ended && (p.now.registers || p.now.brief) {
		t.cut = true
	}
	classed := false
	for _, f := range t.functions {
		classed = classed || f.class != ""
	}
	switch {
	case p.last == 0:
		return nil, refuse(Command, "it is empty")
	case !classed && p.other != "":
		return nil, refuse(Command, "%s", p.other)
	case !classed:
		return nil, refuse(Command, "no line begins a function, as “0000:18:00.0 3D controller [0302]: …” does")
	}
	return t, nil
}

// lineParser keeps what the next line belongs to.
type lineParser struct {
	*Text
	now   *function // nil in front of the first, and behind an empty line
	last  int       // the number of the last line
	other string
}

// asides are lines that other programs and other flags put between the lines of a
// function: warnings of lspci and its library, and the bytes that -x prints.
var asides = regexp.MustCompile(`^(pcilib|lspci): |^[0-9a-f]{2,3}: [0-9a-f]{2}( |$)`)

func (p *lineParser) line(n int, line string, whole bool) error {
	p.last = n
	text := strings.TrimSpace(line)
	switch {
	case text == "":
		if p.now != nil && whole {
			p.now.ended = true
		}
		p.now = nil
		return nil
	case len(p.functions) == 0 && p.other == "":
		p.other = other(line)
	}
	// A last line may be cut off inside a word or a number: nothing is taken from it
	// but a function, whose numbers are of fixed lengths.
	p.cut = p.cut || !whole
	outside := line == strings.TrimLeft(line, " \t")
	if outside {
		if f, domain := headed(line); f != nil {
			return p.begin(n, f, domain)
		}
	}
	if !whole || p.now == nil || outside && asides.MatchString(line) {
		return nil
	}
	// A text may have lost the white space at the beginning of its lines.
	p.now.unknown = p.now.unknown || outside
	p.now.add(text)
	return nil
}

func (p *lineParser) begin(n int, f *function, domain bool) error {
	if before := p.byAddr[f.addr]; before != nil {
		return refuse(Command, "%v is there twice, in lines %d and %d: give what one run printed", f.addr, before.line, n)
	}
	if len(p.functions) == functionLimit {
		return refuse(Command, "it has more than %d functions", functionLimit)
	}
	if p.now != nil {
		p.now.ended = true
	}
	f.line = n
	p.noDomain = p.noDomain || !domain
	p.now = f
	p.functions = append(p.functions, f)
	p.byAddr[f.addr] = f
	return nil
}
