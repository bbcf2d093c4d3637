// SPDX-License-Identifier: Apache-2.0

package pci

import (
	"fmt"
	"strings"

	"github.com/gpurdma/gpurdma/internal/sysfs"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// Distance counts the steps from a to b through the tree, and names the
// nearest common ancestor: a bridge ("0000:01:00.0"), a root bus
// ("pci0000:00"), or the function itself. Functions below different root buses
// meet at no place that sysfs knows: common is then "", and the way leads
// through one more step above both. It is false when one of them is not there.
//
// This is the tree's shape, not the kernel's decision on peer-to-peer.
func Distance(s sysfs.FS, a, b pciaddr.Addr) (hops int, common string, ok bool) {
	ca, err := Chain(s, a)
	if err != nil {
		return 0, "", false
	}
	cb, err := Chain(s, b)
	if err != nil {
		return 0, "", false
	}
	shared := 0
	for shared < len(ca) && shared < len(cb) && ca[shared] == cb[shared] {
		shared++
	}
	hops = len(ca) + len(cb) - 2*shared
	if shared == 0 {
		return hops, "", true
	}
	return hops, ca[shared-1], true
}

// Relation says in words how two functions lie to each other, for "nearest,
// because …".
func Relation(s sysfs.FS, a, b pciaddr.Addr) string {
	hops, common, ok := Distance(s, a, b)
	switch {
	case !ok:
		return "unknown: one of them is not in the PCI tree"
	case hops == 0:
		return "the same function"
	case common == "":
		return fmt.Sprintf("below different host bridges, %d hops%s", hops, numa(s, a, b))
	case strings.HasPrefix(common, "pci"):
		return fmt.Sprintf("below the host bridge of %s, %d hops", common, hops)
	}
	return fmt.Sprintf("below the bridge %s, %d hops", common, hops)
}

func numa(s sysfs.FS, a, b pciaddr.Addr) string {
	fa, err1 := ReadFunction(s, a)
	fb, err2 := ReadFunction(s, b)
	switch {
	case err1 != nil || err2 != nil || fa.NUMANode < 0 || fb.NUMANode < 0:
		return ""
	case fa.NUMANode == fb.NUMANode:
		return fmt.Sprintf(", both on NUMA node %d", fa.NUMANode)
	}
	return fmt.Sprintf(", NUMA nodes %d and %d", fa.NUMANode, fb.NUMANode)
}
