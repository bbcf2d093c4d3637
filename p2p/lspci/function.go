// SPDX-License-Identifier: Apache-2.0

package lspci

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/pciaddr"
)

// function has the facts that a text has about a PCI function. A field is empty if the text does not have
// the fact.
type function struct {
	addr pciaddr.Addr
	line int

	class          string // "0302"
	progIF         string // "00"
	vendor, device string // "10de", "2330"
	subVendor      string
	subDevice      string

	registers bool // "Status:", which -vv prints: the function's registers were read
	brief     bool // "Flags:", which -v prints in its place
	hasCaps   bool // by "Status:", the function has a list of capabilities
	silent    bool // it answers every read with ones

	numa    string
	group   string
	driver  string
	bridge  *buses
	regions []region
	// regionsUnread says that a region has no size, or a line that is not understood.
	regionsUnread bool

	caps capabilities

	ended   bool // the text goes on behind the function, or names its driver, which is last
	unknown bool // a line of it is foreign, or stands there twice: something may be missing
}

// buses are those of a bridge.
type buses struct{ secondary, subordinate uint8 }

// whole reports a function whose lines are all there. Only for such a function does a missing
// line prove that the function lacks something.
func (f *function) whole() bool { return f.ended && !f.unknown }

var (
	heading = regexp.MustCompile(`^((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-1][0-9a-f]\.[0-7]) (\S.*)$`)
	// tail is behind a function's name.
	tail = regexp.MustCompile(`(?: \(rev [0-9a-f]{2}\))?(?: \(prog-if ([0-9a-f]{2})(?: \[[^\]]*\])?\))?\s*$`)

	classAndNumber = regexp.MustCompile(`^(.*?) ?\[([0-9a-f]{4})\]: (.*)$`)
	classNumber    = regexp.MustCompile(`^(?:Class )?([0-9a-f]{4}): (.*)$`)
	className      = regexp.MustCompile(`^([^:]+): (.*)$`)

	numbersBehind = regexp.MustCompile(`\[([0-9a-f]{4}):([0-9a-f]{4})\]$`)
	numbersAlone  = regexp.MustCompile(`^(?:Device )?([0-9a-f]{4}):([0-9a-f]{4})$`)
)

// headed reads the first line of a function; nil if it is none.
func headed(line string) (f *function, domain bool) {
	m := heading.FindStringSubmatch(line)
	if m == nil {
		return nil, false
	}
	a, err := pciaddr.Parse(m[1])
	if err != nil {
		return nil, false
	}
	f = &function{addr: a}
	rest := m[2]
	behind := tail.FindStringSubmatchIndex(rest)
	if behind[2] >= 0 {
		f.progIF = rest[behind[2]:behind[3]]
	}
	rest = rest[:behind[0]]
	switch {
	case match(classAndNumber, rest, nil, &f.class, &rest):
	case match(classNumber, rest, &f.class, &rest):
	default:
		var name string
		if !match(className, rest, &name, &rest) {
			return nil, false
		}
		f.class = classOf(name)
	}
	f.vendor, f.device = numbers(rest)
	return f, strings.Count(m[1], ":") > 1
}

// match stores the groups that a pattern matched in variables. A nil variable skips its group.
func match(pattern *regexp.Regexp, text string, into ...*string) bool {
	m := pattern.FindStringSubmatch(text)
	if m == nil {
		return false
	}
	for i, p := range into {
		if p != nil {
			*p = m[i+1]
		}
	}
	return true
}

// numbers are those of vendor and device, behind their names or in place of them.
func numbers(name string) (vendor, device string) {
	if !match(numbersBehind, name, &vendor, &device) {
		match(numbersAlone, name, &vendor, &device)
	}
	return vendor, device
}

var (
	statusLine = regexp.MustCompile(`^Status: Cap([+-]) `)
	busLine    = regexp.MustCompile(`^Bus: primary=[0-9a-f]{2}, secondary=([0-9a-f]{2}), subordinate=([0-9a-f]{2}),`)
	nodeLine   = regexp.MustCompile(`^NUMA node: (\d{1,4})$`)
	groupLine  = regexp.MustCompile(`^IOMMU group: (\d{1,6})$`)
	driverLine = regexp.MustCompile(`^Kernel driver in use: ([A-Za-z0-9_.+-]{1,64})$`)
	nodeFlag   = regexp.MustCompile(`, NUMA node (\d{1,4})(?:,|$)`)
	groupFlag  = regexp.MustCompile(`, IOMMU group (\d{1,6})(?:,|$)`)
	// elided is a mark for lines that a person has taken out.
	elided = regexp.MustCompile(`^(\.{2,}|…|\[\.\.\.\]|\[…\]|[<\[(]snip[>\])])$`)
)

// add reads a line behind the first.
func (f *function) add(text string) {
	switch {
	case elided.MatchString(text):
		f.unknown = true
	case strings.HasPrefix(text, "Capabilities: "):
		f.caps.begin(strings.TrimPrefix(text, "Capabilities: "))
	case strings.HasPrefix(text, "Kernel driver in use: "):
		f.once(driverLine, text, &f.driver)
		if f.driver == "." || f.driver == ".." {
			f.driver, f.unknown = "", true
		}
		f.ended = true
	case strings.HasPrefix(text, "Kernel modules: "):
		f.ended = true
	case f.caps.begun():
		f.caps.add(text)
	default:
		f.attribute(text)
	}
}

// attribute reads a line in front of the capabilities, which have lines of the
// same names.
func (f *function) attribute(text string) {
	switch name, rest, _ := strings.Cut(text, ": "); name {
	case "Subsystem":
		f.subVendor, f.subDevice = numbers(rest)
	case "Status":
		var has string
		if match(statusLine, text, &has) {
			f.unknown = f.unknown || f.registers
			f.registers, f.hasCaps = true, has == "+"
		}
	case "Flags":
		f.brief = true
		match(nodeFlag, text, &f.numa)
		match(groupFlag, text, &f.group)
	case "NUMA node":
		f.once(nodeLine, text, &f.numa)
	case "IOMMU group":
		f.once(groupLine, text, &f.group)
	case "Bus":
		f.buses(text)
	default:
		switch {
		case strings.HasPrefix(text, "Region "):
			f.region(text)
		case strings.HasPrefix(text, "!!! Unknown header type 7f"):
			f.silent = true
		}
	}
}

// once reads a line that a function has once.
func (f *function) once(pattern *regexp.Regexp, text string, into *string) {
	if before := *into; !match(pattern, text, into) || before != "" {
		f.unknown = true
	}
}

func (f *function) buses(text string) {
	var first, last string
	if f.bridge != nil || !match(busLine, text, &first, &last) {
		f.unknown = true
		return
	}
	f.bridge = &buses{secondary: number[uint8](first, 16), subordinate: number[uint8](last, 16)}
}

// number reads digits that a pattern has checked.
func number[T uint8 | uint16 | uint64](digits string, base int) T {
	n, _ := strconv.ParseUint(digits, base, 64)
	return T(n)
}
