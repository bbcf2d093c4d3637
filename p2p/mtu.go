// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"errors"
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
	byMTU, byPacket := mtus{}, mtus{} // of network devices, and of InfiniBand's ports
	told := map[string]bool{}
	for _, n := range l.s.NICs {
		for _, p := range n.Ports {
			switch {
			case n.Software:
			case p.LinkLayer == ibvfd.LinkInfiniBand:
				if a, ok := l.active(n, p); ok {
					byPacket = append(byPacket, mtu{portName(n, p), uint64(a.MTU)})
				}
			case l.kind(n).isIWARP():
				l.say(ResultSkip, portName(n, p), l.kind(n).at(), "iWARP, whose packets are TCP's")
			default:
				var room uint64
				for _, dev := range netDevs(n, p) {
					r := l.read("sys/class/net", dev, "mtu")
					size, ok := r.number()
					room = max(room, size)
					if told[dev] {
						continue
					}
					told[dev] = true
					if !ok {
						l.unknown(dev, r.at(), "%s", orText(r))
						continue
					}
					byMTU = append(byMTU, mtu{dev, size})
				}
				l.smaller(n, p, packets(room))
			}
		}
	}
	at := []string{"/sys/class/net/*/mtu"}
	switch sizes := byMTU.sizes(); {
	case len(sizes) > 1 && packets(sizes[0]) == packets(sizes[len(sizes)-1]):
		l.pass("", at, "%v%s on all", byMTU, inPackets(sizes[0]))
	case len(sizes) > 1:
		l.warn("", at, "%v; with the first of %d%s", byMTU, sizes[0], inPackets(sizes[0]))
	case len(sizes) == 1:
		l.pass("", at, "%d%s", sizes[0], inPackets(sizes[0]))
	}
	asked := []string{"/dev/infiniband"}
	switch sizes := byPacket.sizes(); {
	case len(sizes) > 1:
		l.warn("", asked, "InfiniBand's packets: %v", byPacket).fix("give the partition one MTU, in the subnet manager's configuration", "", "")
	case len(sizes) == 1:
		l.pass("", asked, "InfiniBand's packets have %d bytes", sizes[0])
	}
	if len(l.found) == 0 {
		l.skip("no network device of an RDMA NIC, and no device to ask for InfiniBand's MTU")
	}
}

// mtu is that of a network device or a port, in bytes.
type mtu struct {
	of   string
	size uint64
}

type mtus []mtu

// sizes are in order, each once.
func (all mtus) sizes() []uint64 {
	var out []uint64
	for _, x := range all {
		out = append(out, x.size)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (all mtus) String() string {
	var words []string
	for _, x := range all {
		words = append(words, fmt.Sprintf("%s %d", x.of, x.size))
	}
	return strings.Join(words, ", ")
}

// active asks for the state of a port; what cannot be asked or is not active has
// no MTU in use.
func (l *look) active(n NIC, p ibvfd.PortInfo) (ibvfd.PortAttr, bool) {
	if l.s.Live.Port == nil || n.Uverbs == "" {
		return ibvfd.PortAttr{}, false
	}
	a, err := l.s.Live.Port(n.Name, p.Num)
	if err != nil && !errors.Is(err, ErrNotAsked) {
		l.unknown(portName(n, p), []string{n.Uverbs}, "the MTU in use: %v", err).aside()
	}
	return a, err == nil && a.State == ibvfd.PortActive
}

// smaller tells a port whose packets are smaller than its network device and the
// NIC let them be.
func (l *look) smaller(n NIC, p ibvfd.PortInfo, room uint64) {
	a, ok := l.active(n, p)
	if room = min(room, uint64(a.MaxMTU)); ok && uint64(a.MTU) < room {
		l.warn(portName(n, p), []string{n.Uverbs}, "its packets have %d bytes, and its network device has room for %d", a.MTU, room).
			fix("set the network device down and up, so that the driver reads its MTU anew", "", "ends the port's connections")
	}
}
