// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"

	"github.com/gpurdma/gpurdma/deploy/dra/checkpoint"
	"github.com/gpurdma/gpurdma/deploy/dra/node"
	"github.com/gpurdma/gpurdma/deploy/dra/pairs"
	"github.com/gpurdma/gpurdma/deploy/dra/resources"
)

// pairsOf finds the pairs of a device by its name: among those that were published, those of the same claim before
// the machine was started again, and the pairs that are on the machine now, in case the file with the others is
// lost. A set's name does not say which pairs it has.
func pairsOf(n *node.Node, s *checkpoint.State, uid, name string) ([]pairs.Pair, error) {
	if known := s.Known[name]; len(known) > 0 {
		return known, nil
	}
	for _, d := range s.Claims[uid].Devices {
		if d.Name == name {
			return d.Pairs, nil
		}
	}
	for _, x := range n.Pairs {
		p := pairs.Pair{GPU: x.GPU, NIC: x.NIC}
		if resources.Name(p) == name {
			return []pairs.Pair{p}, nil
		}
	}
	return nil, fmt.Errorf("device %s is not known here: it is no pair of this node, and no set that this node has published; delete the pod, so that it is placed again", name)
}
