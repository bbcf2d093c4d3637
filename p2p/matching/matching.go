// SPDX-License-Identifier: Apache-2.0

package matching

// Pair is a GPU and a NIC, by their names, and the cost of using the two together.
type Pair struct {
	GPU, NIC string
	Cost     int
}

// Best returns the indices of a matching's pairs: as many pairs as possible without a GPU or a NIC in two of
// them. Of all such sets it is one with the lowest sum of costs. The same pairs in the same order give the
// same set.
func Best(all []Pair) map[int]bool {
	m := &matching{all: all, gpu: map[string]int{}, nic: map[string]int{}}
	for m.augment() {
	}
	chosen := map[int]bool{}
	for _, i := range m.gpu {
		chosen[i] = true
	}
	return chosen
}

// matching is built by shortest augmenting paths.
type matching struct {
	all  []Pair
	gpu  map[string]int // index of the pair that has a GPU
	nic  map[string]int // index of the pair that has a NIC
	dist map[string]int // cost of the shortest path to a NIC
	last map[string]int // index of the pair by which that path reaches the NIC
}

// augment adds a pair to the matching, by the path that costs least.
func (m *matching) augment() bool {
	m.search()
	best, found := "", false
	for _, p := range m.all { // in their order, so that the result does not depend on that of a map
		d, reached := m.dist[p.NIC]
		if _, taken := m.nic[p.NIC]; reached && !taken && (!found || d < m.dist[best]) {
			best, found = p.NIC, true
		}
	}
	for nic := best; found; {
		i := m.last[nic]
		before, had := m.gpu[m.all[i].GPU]
		m.gpu[m.all[i].GPU], m.nic[nic] = i, i
		if !had {
			break
		}
		nic = m.all[before].NIC // which the path has reached before
	}
	return found
}

// search finds the shortest paths from the GPUs that are free to all NICs. A path goes from a GPU to a
// NIC by a pair outside the matching, and back by one of the matching, whose cost it saves.
func (m *matching) search() {
	m.dist, m.last = map[string]int{}, map[string]int{}
	for changed := true; changed; {
		changed = false
		for i, p := range m.all {
			from := 0
			if own, taken := m.gpu[p.GPU]; taken {
				d, reached := m.dist[m.all[own].NIC]
				if own == i || !reached {
					continue
				}
				from = d - m.all[own].Cost
			}
			if d, reached := m.dist[p.NIC]; !reached || from+p.Cost < d {
				m.dist[p.NIC], m.last[p.NIC], changed = from+p.Cost, i, true
			}
		}
	}
}
