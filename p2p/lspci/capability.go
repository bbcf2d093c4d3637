// SPDX-License-Identifier: Apache-2.0

package lspci

import (
	"math/bits"
	"regexp"
	"slices"
	"strings"
)

// capabilities are those of a function that package p2p reads.
type capabilities struct {
	listed   int  // how many the text names
	extended int  // those in the extended configuration space
	denied   bool // "<access denied>": the registers behind the first 64 bytes were not read
	broken   bool // a list that lspci gave up, or a capability that is there twice

	express *express
	acs     *acs
	ats     *ats
	rebar   *rebar
	sriov   *sriov

	now detail // whose lines come
}

// detail is a capability that reads the lines below its own.
type detail interface {
	add(text string)
	// read reports that all its registers were in the text.
	read() bool
}

// begun reports that the lines of the capabilities have begun.
func (c *capabilities) begun() bool { return c.listed > 0 || c.denied }

func (c *capabilities) add(text string) {
	if c.now != nil {
		c.now.add(text)
	}
}

// extendedFrom is where the extended configuration space begins.
const extendedFrom = 0x100

var capabilityLine = regexp.MustCompile(`^\[([0-9a-f]{2,3})(?: v\d+)?\] (.*)$`)

// begin reads the first line of a capability.
func (c *capabilities) begin(text string) {
	c.now = nil
	if text == "<access denied>" {
		c.denied = true
		return
	}
	var at, name string
	c.listed++
	if !match(capabilityLine, text, &at, &name) || strings.HasPrefix(name, "<chain ") {
		c.broken = true
		return
	}
	extended := number[uint16](at, 16) >= extendedFrom
	if extended {
		c.extended++
	}
	twice := false
	switch {
	case !extended && strings.HasPrefix(name, "Express "):
		twice, c.express = c.express != nil, expressOf(name)
		c.now = c.express
	case !extended:
	case name == "Access Control Services":
		twice, c.acs = c.acs != nil, &acs{}
		c.now = c.acs
	case strings.HasPrefix(name, "Address Translation Service"):
		twice, c.ats = c.ats != nil, &ats{}
		c.now = c.ats
	case strings.HasPrefix(name, "Physical Resizable BAR"), strings.HasPrefix(name, "Resizable BAR"):
		twice, c.rebar = c.rebar != nil, &rebar{}
		c.now = c.rebar
	case strings.HasPrefix(name, "Single Root I/O Virtualization"):
		twice, c.sriov = c.sriov != nil, &sriov{}
		c.now = c.sriov
	}
	c.broken = c.broken || twice
}

// flags reads "Name+ Other-" as bits, the first name's the lowest. All names must
// be there, in this order.
func flags(text string, names ...string) (set uint16, ok bool) {
	fields := strings.Fields(text)
	if len(fields) < len(names) {
		return 0, false
	}
	for i, name := range names {
		switch fields[i] {
		case name + "+":
			set |= 1 << i
		case name + "-":
		default:
			return 0, false
		}
	}
	return set, true
}

// flag reads one of the flags of a line.
func flag(text, name string) (set, ok bool) {
	fields := strings.Fields(text)
	set = slices.Contains(fields, name+"+")
	return set, set || slices.Contains(fields, name+"-")
}

// acs is Access Control Services.
type acs struct {
	can, control         uint16
	canRead, controlRead bool
}

// acsFlags are in the order of the register's bits, from the lowest.
var acsFlags = []string{"SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans"}

func (a *acs) add(text string) {
	if rest, ok := strings.CutPrefix(text, "ACSCap:"); ok {
		a.can, a.canRead = flags(rest, acsFlags...)
	}
	if rest, ok := strings.CutPrefix(text, "ACSCtl:"); ok {
		a.control, a.controlRead = flags(rest, acsFlags...)
	}
}

func (a *acs) read() bool { return a.canRead && a.controlRead }

// ats is the Address Translation Service.
type ats struct{ enabled, enabledRead bool }

func (a *ats) add(text string) {
	if rest, ok := strings.CutPrefix(text, "ATSCtl:"); ok {
		a.enabled, a.enabledRead = flag(strings.ReplaceAll(rest, ",", " "), "Enable")
	}
}

func (a *ats) read() bool { return a.enabledRead }

// rebar is the capability of BARs that have several sizes.
type rebar struct {
	bars  []resizable
	wrong bool // a line that is not understood
}

// resizable is a BAR and its sizes, a bit each, the lowest of 1 MiB.
type resizable struct {
	index uint8
	sizes uint64
}

var (
	resizableLine = regexp.MustCompile(`^BAR ([0-5]): current size: \d+[MGTPE]B(?:, supported:((?: \d+[MGTPE]B)+))?$`)
	aSize         = regexp.MustCompile(`(\d{1,4})([MGTPE])B`)
	megabytes     = map[string]int{"M": 0, "G": 10, "T": 20, "P": 30, "E": 40}
)

func (r *rebar) add(text string) {
	var index, sizes string
	if !match(resizableLine, text, &index, &sizes) || len(r.bars) == standardBARs {
		r.wrong = true
		return
	}
	b := resizable{index: number[uint8](index, 10)}
	for _, m := range aSize.FindAllStringSubmatch(sizes, -1) {
		n := number[uint64](m[1], 10)
		bit := bits.Len64(n) - 1 + megabytes[m[2]]
		if bits.OnesCount64(n) != 1 || bit >= 28 { // 28 sizes are in the first register, of which package pci reads the largest
			r.wrong = true
			return
		}
		b.sizes |= 1 << bit
	}
	r.bars = append(r.bars, b)
}

func (r *rebar) read() bool { return len(r.bars) > 0 && !r.wrong }

// sriov is a physical function's account of its virtual ones.
type sriov struct {
	enabled       bool
	count         uint16
	offset        uint16
	stride        uint16
	enabledRead   bool
	countRead     bool
	placementRead bool
}

var (
	virtualCount = regexp.MustCompile(`Number of VFs: (\d{1,5}),`)
	virtualPlace = regexp.MustCompile(`^VF offset: (\d{1,5}), stride: (\d{1,5}),`)
)

func (s *sriov) add(text string) {
	var first, second string
	switch {
	case strings.HasPrefix(text, "IOVCtl:"):
		s.enabled, s.enabledRead = flag(strings.TrimPrefix(text, "IOVCtl:"), "Enable")
	case match(virtualCount, text, &first):
		s.count, s.countRead = number[uint16](first, 10), true
	case match(virtualPlace, text, &first, &second):
		s.offset, s.stride, s.placementRead = number[uint16](first, 10), number[uint16](second, 10), true
	}
}

func (s *sriov) read() bool { return s.enabledRead && s.countRead && s.placementRead }
