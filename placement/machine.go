// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"encoding"
	"encoding/json"
	"fmt"
)

// Range is a range of addresses, in bytes.
type Range struct {
	Start uint64 `json:"start"`
	Size  uint64 `json:"size"`
}

// End is the first address behind the range. A range that would wrap ends at
// the last address.
func (r Range) End() uint64 {
	if end := r.Start + r.Size; end >= r.Start {
		return end
	}
	return ^uint64(0)
}

// Contains reports whether all of other is in r.
func (r Range) Contains(other Range) bool {
	return other.Start >= r.Start && other.End() <= r.End() && other.Start+other.Size >= other.Start
}

// String writes the range as "0x1000+0x200".
func (r Range) String() string { return fmt.Sprintf("%#x+%#x", r.Start, r.Size) }

// Kind is the kind of memory at a physical address.
type Kind int

// The kinds of memory. The kernel programs count in the same order.
const (
	KindOther    Kind = iota // in no table: reserved, CXL, hot-added since
	KindRAM                  // "System RAM" of /proc/iomem
	KindBAR                  // a PCI BAR
	KindCoherent             // GPU memory in the CPU's memory map
	kinds
)

// Kinds is the number of kinds.
const Kinds = int(kinds)

var kindNames = []string{"other", "RAM", "BAR", "coherent GPU memory"}

// String returns the kind in words.
func (k Kind) String() string { return name(kindNames, int(k)) }

// MarshalText makes a Kind a string in JSON: that of String.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (k *Kind) UnmarshalText(text []byte) error {
	n, err := parse(kindNames, text)
	*k = Kind(n)
	return err
}

var _ encoding.TextUnmarshaler = (*Kind)(nil)

// BAR is a PCI function's memory BAR.
type BAR struct {
	Device string `json:"device"` // "0000:03:00.0"
	Index  int    `json:"bar"`
	GPU    bool   `json:"gpu"` // of a display controller or a processing accelerator
	Range
}

// Coherent is GPU memory that the CPU addresses as memory of its own.
type Coherent struct {
	Name string `json:"name"` // the platform's name for it: an iomem name, a NUMA node
	Range
}

// Machine is the physical memory map.
type Machine struct {
	BARs     []BAR      `json:"bars"`
	RAM      []Range    `json:"ram"` // empty: not readable, as /proc/iomem shows addresses only to root
	Coherent []Coherent `json:"coherent,omitempty"`
}

// Place is a number of bytes in one kind of memory.
type Place struct {
	Kind Kind `json:"kind"` // the kind of memory
	// Device is the PCI function of a BAR, or the name of coherent memory; "" if there are several.
	Device string `json:"device,omitempty"`
	BAR    int    `json:"bar"`           // the number of the BAR, if the place is one BAR
	GPU    bool   `json:"gpu,omitempty"` // the BAR is one of a GPU
	Bytes  uint64 `json:"bytes"`         // how many bytes lie there
	Low    uint64 `json:"low"`           // the lowest of the CPU's addresses
	High   uint64 `json:"high"`          // the first of the CPU's addresses behind the highest
}

// MarshalJSON leaves out the index unless the place is one BAR.
func (p Place) MarshalJSON() ([]byte, error) {
	type plain Place
	v := struct {
		plain
		BAR *int `json:"bar,omitempty"`
	}{plain: plain(p)}
	if p.Kind == KindBAR && p.Device != "" {
		v.BAR = &p.BAR
	}
	return json.Marshal(v)
}

// String names the place: "0000:03:00.0 BAR 2".
func (p Place) String() string {
	switch {
	case p.Kind == KindBAR && p.Device != "":
		return fmt.Sprintf("%s BAR %d", p.Device, p.BAR)
	case p.Kind == KindBAR:
		return "several BARs"
	case p.Kind == KindCoherent && p.Device != "":
		return p.Device
	}
	return p.Kind.String()
}

// at finds what lies at the start of r, and how many bytes of r it covers.
func (m *Machine) at(r Range) (Place, uint64) {
	inside := func(w Range) bool { return r.Start >= w.Start && r.Start < w.End() }
	clip := func(w Range) uint64 { return min(r.Size, w.End()-r.Start) }
	for _, b := range m.BARs {
		if inside(b.Range) {
			return Place{Kind: KindBAR, Device: b.Device, BAR: b.Index, GPU: b.GPU}, clip(b.Range)
		}
	}
	// Before RAM: some platforms list coherent GPU memory as System RAM too.
	for _, c := range m.Coherent {
		if inside(c.Range) {
			return Place{Kind: KindCoherent, Device: c.Name}, clip(c.Range)
		}
	}
	for _, w := range m.RAM {
		if inside(w) {
			return Place{Kind: KindRAM}, clip(w)
		}
	}
	return Place{Kind: KindOther}, m.gap(r)
}

// gap is how much of r lies in no table before the next one begins.
func (m *Machine) gap(r Range) uint64 {
	next := r.End()
	nearer := func(w Range) {
		if w.Start > r.Start && w.Start < next {
			next = w.Start
		}
	}
	for _, b := range m.BARs {
		nearer(b.Range)
	}
	for _, c := range m.Coherent {
		nearer(c.Range)
	}
	for _, w := range m.RAM {
		nearer(w)
	}
	return next - r.Start
}

// sum adds up what lies in ranges, by place, in order of appearance.
func (m *Machine) sum(ranges []Range) []Place {
	var out []Place
	for _, r := range ranges {
		for r.Size > 0 {
			p, n := m.at(r)
			if n == 0 { // a range that wraps around
				n = r.Size
			}
			p.Bytes, p.Low, p.High = n, r.Start, Range{r.Start, n}.End()
			out = addPlace(out, p)
			r.Start += n
			r.Size -= n
		}
	}
	return out
}

func addPlace(list []Place, p Place) []Place {
	for i := range list {
		q := &list[i]
		if q.Kind == p.Kind && q.Device == p.Device && q.BAR == p.BAR {
			q.Bytes += p.Bytes
			q.Low, q.High = min(q.Low, p.Low), max(q.High, p.High)
			return list
		}
	}
	return append(list, p)
}
