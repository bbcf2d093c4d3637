// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/ibvfd"
)

// RoCE's packets, and what the kernel leaves for their headers: GRH or IP, UDP,
// BTH, those of XRC and of atomic operations, and the checksum.
const (
	largestPacket  = 4 << 10
	smallestPacket = 256
	packetHeaders  = 40 + 8 + 12 + 4 + 28 + 4
)

// packets is how many bytes RoCE's packets have on a network device: a power of
// two; 0 if not even the smallest fit.
func packets(mtu uint64) uint64 {
	for size := uint64(largestPacket); size >= smallestPacket; size /= 2 {
		if mtu >= size+packetHeaders {
			return size
		}
	}
	return 0
}

func inPackets(mtu uint64) string {
	if n := packets(mtu); n > 0 {
		return fmt.Sprintf(": RoCE's packets have %d bytes", n)
	}
	return ": RoCE's packets do not fit"
}

func (l *look) netMTU() {
	var sizes []uint64
	var names []string
	told := map[string]bool{}
	at := []string{"/sys/class/net/*/mtu"}
	for _, n := range l.s.NICs {
		for _, p := range n.Ports {
			if n.Software || p.LinkLayer == ibvfd.LinkInfiniBand {
				continue
			}
			if l.kind(n).isIWARP() {
				l.say(ResultSkip, portName(n, p), l.kind(n).at(), "iWARP, whose packets are TCP's")
				continue
			}
			for _, dev := range netDevs(n, p) {
				if told[dev] {
					continue
				}
				told[dev] = true
				r := l.read("sys/class/net", dev, "mtu")
				size, ok := r.number()
				if !ok {
					l.unknown(dev, r.at(), "%s", orText(r))
					continue
				}
				names = append(names, dev+" "+r.text)
				if !slices.Contains(sizes, size) {
					sizes = append(sizes, size)
				}
			}
		}
	}
	slices.Sort(sizes)
	switch {
	case len(sizes) > 1 && packets(sizes[0]) == packets(sizes[len(sizes)-1]):
		l.pass("", at, "%s%s on all", strings.Join(names, ", "), inPackets(sizes[0]))
	case len(sizes) > 1:
		l.warn("", at, "%s; with the first of %d%s", strings.Join(names, ", "), sizes[0], inPackets(sizes[0]))
	case len(sizes) == 1:
		l.pass("", at, "%d%s", sizes[0], inPackets(sizes[0]))
	case len(l.found) == 0:
		l.skip("no network device of an RDMA NIC")
	}
}
