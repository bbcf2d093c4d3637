// SPDX-License-Identifier: Apache-2.0

package placement

// Count has the bytes and the range of addresses of one kind of memory.
type Count struct {
	Bytes uint64 `json:"bytes"`
	Low   uint64 `json:"low"`  // lowest address
	High  uint64 `json:"high"` // first address behind the highest
}

// View has the addresses of a mapping of one kind: those given to the device,
// those of the pages, or those that the exporter asked the kernel to map.
type View struct {
	// Ranges are the first merged ranges, in order.
	Ranges []Range `json:"ranges,omitempty"`
	// Dropped says that Ranges lacks some ranges, because there were too many.
	// Counts and Bytes are of all of them.
	Dropped bool `json:"dropped,omitempty"`
	// Counts are sums over all addresses that the watcher has read, by Kind.
	Counts [Kinds]Count `json:"counts"`
	// Bytes is the sum over all addresses that the watcher has read.
	Bytes uint64 `json:"bytes"`
	// Unread says that the watcher has not read all addresses. Nothing is known
	// of the others.
	Unread bool `json:"unread,omitempty"`
}

// Empty reports whether the view has no addresses.
func (v View) Empty() bool { return v.Bytes == 0 }

// places sums the view up by place. If ranges were dropped, the counts that
// the kernel made against the same tables stand in for them: a BAR is then
// named if all its bytes lie in one.
func (v View) places(m *Machine) []Place {
	if !v.Dropped {
		return m.sum(v.Ranges)
	}
	var out []Place
	for k, c := range v.Counts {
		if c.Bytes == 0 {
			continue
		}
		p := Place{Kind: Kind(k), Bytes: c.Bytes, Low: c.Low, High: c.High}
		whole := Range{c.Low, c.High - c.Low}
		if q, n := m.at(whole); q.Kind == p.Kind && n == whole.Size {
			p.Device, p.BAR, p.GPU = q.Device, q.BAR, q.GPU
		}
		out = append(out, p)
	}
	return out
}

// has adds up the bytes of one kind.
func has(places []Place, k Kind) (bytes uint64) {
	for _, p := range places {
		if p.Kind == k {
			bytes += p.Bytes
		}
	}
	return bytes
}

// only reports that all bytes are of one kind, and that there are some.
func only(places []Place, k Kind) bool {
	for _, p := range places {
		if p.Kind != k {
			return false
		}
	}
	return len(places) > 0
}
