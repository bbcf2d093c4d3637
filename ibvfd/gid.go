// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ErrNoGID: the port's GID table has no entry that a connection could use.
var ErrNoGID = errors.New("no usable GID")

// ChooseGID picks a port's GID and says why. On Ethernet it prefers RoCE v2
// over v1, and a routable IPv4 address over a routable IPv6 one over a
// link-local one; on InfiniBand it takes the first entry.
func ChooseGID(table []GID, link LinkLayer) (GID, string, error) {
	best, score := GID{}, 0
	for _, g := range table {
		if s := gidScore(g, link); s > score {
			best, score = g, s
		}
	}
	if score == 0 {
		if link == LinkInfiniBand {
			return GID{}, "", fmt.Errorf("%w: %w", ErrNoGID, unix.EADDRNOTAVAIL)
		}
		return GID{}, "", fmt.Errorf("%w of type RoCE: %w", ErrNoGID, unix.EADDRNOTAVAIL)
	}
	if link == LinkInfiniBand {
		return best, "the port's own GID", nil
	}
	a, kind := best.Addr(), "routable IPv6"
	switch {
	case a.Is4():
		kind = "IPv4"
	case a.IsLinkLocalUnicast():
		kind = "link-local IPv6, the only kind there is"
	}
	return best, fmt.Sprintf("%v with a %s address", best.Type, kind), nil
}

// gidScore ranks a GID; 0 cannot be used.
func gidScore(g GID, link LinkLayer) int {
	if g.GID == ([16]byte{}) {
		return 0
	}
	if link == LinkInfiniBand {
		return 1
	}
	score := 0
	switch g.Type {
	case GIDRoCEv2:
		score = 10
	case GIDRoCEv1:
		score = 5
	case GIDInfiniBand: // iWARP and software devices call theirs so
		score = 1
	default:
		return 0
	}
	switch a := g.Addr(); {
	case a.Is4() && !a.IsLinkLocalUnicast():
		return score + 3
	case !a.IsLinkLocalUnicast():
		return score + 2
	}
	return score + 1
}
