// SPDX-License-Identifier: Apache-2.0

package niccheck

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/drivers"
)

// The sizes of RoCE's packets in bytes, and the bytes that the kernel keeps free for
// headers: GRH or IP, UDP, BTH, those of XRC and of atomic operations, and the checksum.
const (
	largestPacket  = 4 << 10
	smallestPacket = 256
	packetHeaders  = 40 + 8 + 12 + 4 + 28 + 4
)

// packets returns the number of bytes of RoCE's packets for the MTU of a network device: a power of
// two; 0 if the MTU is too small for the smallest packets.
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

func netMTU(l *check.Look) {
	byMTU, byPacket := mtus{}, mtus{} // of network devices, and of InfiniBand's ports
	told := map[string]bool{}
	for _, n := range l.Subject.NICs {
		for _, p := range n.Ports {
			switch {
			case n.Software:
			case p.LinkLayer == ibdev.LinkInfiniBand:
				if a, ok := active(l, n, p); ok {
					byPacket = append(byPacket, mtu{drivers.PortName(n, p), uint64(a.MTU)})
				}
			case check.IsIWARP(check.Kind(l, n)):
				l.Say(p2p.ResultSkip, drivers.PortName(n, p), check.Kind(l, n).At(), "iWARP, whose packets are TCP's")
			case p.LinkLayer != ibdev.LinkEthernet:
				l.Unknown(drivers.PortName(n, p), []string{"/" + check.PortDir(n, p, "link_layer")}, "the kind of its network is not known")
			default:
				var room uint64
				for _, dev := range netDevs(n, p) {
					r := l.Read("sys/class/net", dev, "mtu")
					size, ok := r.Number()
					room = max(room, size)
					if told[dev] {
						continue
					}
					told[dev] = true
					if !ok {
						l.Unknown(dev, r.At(), "%s", check.OrText(r))
						continue
					}
					byMTU = append(byMTU, mtu{dev, size})
				}
				smaller(l, n, p, packets(room))
			}
		}
	}
	at := []string{"/sys/class/net/*/mtu"}
	switch sizes := byMTU.sizes(); {
	case len(sizes) > 1 && packets(sizes[0]) == packets(sizes[len(sizes)-1]):
		l.Pass("", at, "%v%s on all", byMTU, inPackets(sizes[0]))
	case len(sizes) > 1:
		l.Warn("", at, "%v; with the first of %d%s", byMTU, sizes[0], inPackets(sizes[0]))
	case len(sizes) == 1:
		l.Pass("", at, "%d%s", sizes[0], inPackets(sizes[0]))
	}
	asked := []string{"/dev/infiniband"}
	switch sizes := byPacket.sizes(); {
	case len(sizes) > 1:
		l.Warn("", asked, "InfiniBand's packets: %v", byPacket).Fix("give the partition one MTU, in the subnet manager's configuration", "", "")
	case len(sizes) == 1:
		l.Pass("", asked, "InfiniBand's packets have %d bytes", sizes[0])
	}
	if len(l.Found) == 0 {
		l.Skip("no network device of an RDMA NIC, and no device to ask for InfiniBand's MTU")
	}
}

// mtu is the MTU of a network device or a port, in bytes.
type mtu struct {
	of   string
	size uint64
}

type mtus []mtu

// sizes returns the MTUs in order, each once.
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

// active asks a NIC for the attributes of a port. It returns false if the port is not active, or if the NIC cannot
// be asked: the MTU in use is then not known.
func active(l *check.Look, n drivers.NIC, p ibdev.Port) (ibdev.PortAttr, bool) {
	if l.Subject.Live.Port == nil || n.Uverbs == "" {
		return ibdev.PortAttr{}, false
	}
	a, err := l.Subject.Live.Port(n.Name, p.Num)
	if err != nil && !errors.Is(err, check.ErrNotAsked) {
		l.Unknown(drivers.PortName(n, p), []string{n.Uverbs}, "the MTU in use: %v", err).SetAside()
	}
	return a, err == nil && a.State == ibdev.PortActive
}

// smaller warns about a port whose packets are smaller than its network device and the NIC allow. room is the
// packet size in bytes that the network device has room for.
func smaller(l *check.Look, n drivers.NIC, p ibdev.Port, room uint64) {
	a, ok := active(l, n, p)
	if room = min(room, uint64(a.MaxMTU)); ok && uint64(a.MTU) < room {
		l.Warn(drivers.PortName(n, p), []string{n.Uverbs}, "its packets have %d bytes, and its network device has room for %d", a.MTU, room).
			Fix("set the network device down and up, so that the driver reads its MTU anew", "", "ends the port's connections")
	}
}
