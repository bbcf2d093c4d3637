// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/gpurdma/gpurdma/deploy/dra/pairs"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// devices are the GPUs and NICs of a machine that a pod may be given.
func devices(m *machine.Machine, o Options) ([]drivers.GPU, []drivers.NIC, error) {
	gpus, err1 := drivers.GPUs(m)
	nics, err2 := drivers.NICs(m)
	gpus = slices.DeleteFunc(gpus, func(g drivers.GPU) bool {
		return g.Exporter.PCI == nil || g.Exporter.Class == drivers.ClassSystem
	})
	nics = slices.DeleteFunc(nics, func(n drivers.NIC) bool { return n.Importer.PCI == nil || n.Software && !o.Software })
	return gpus, nics, errors.Join(err1, err2)
}

// nicIDs are the IDs of NICs. Each is a part of the names of devices, which are DNS labels.
func nicIDs(nics []drivers.NIC) (ids []string) {
	for _, x := range nics {
		id := idOf(*x.Importer.PCI)
		if slices.Contains(ids, id) { // a function with two RDMA devices
			id += "-" + label(x.Name)
		}
		if slices.Contains(ids, id) || len(id) > longestID || strings.HasSuffix(id, "-") {
			h := fnv.New32a()
			_, _ = h.Write([]byte(x.Name))
			id = fmt.Sprintf("%s-%08x", idOf(*x.Importer.PCI), h.Sum32())
		}
		ids = append(ids, id)
	}
	return ids
}

// longestID leaves room for the ID of a GPU, and for the words between, in a label of 63 characters.
const longestID = 36

// Judge judges one pair of a machine, as Look does but without earlier proofs.
func Judge(m *machine.Machine, o Options, x pairs.Pair) (p2p.Pair, error) {
	gpus, nics, err := devices(m, o)
	g := slices.IndexFunc(gpus, func(g drivers.GPU) bool { return idOf(*g.Exporter.PCI) == x.GPU })
	n := slices.Index(nicIDs(nics), x.NIC)
	if g < 0 || n < 0 {
		return p2p.Pair{}, errors.Join(fmt.Errorf("GPU %s or NIC %s is not there", x.GPU, x.NIC), err)
	}
	return p2p.Judge(m, gpus[g], nics[n]), nil
}

// taken is when the proof was taken that decides about a pair.
func (o Options) taken(p p2p.Pair) (last time.Time) {
	if p.Verdict.Chain()[chain.Proof].State == chain.Unknown {
		return last
	}
	for _, r := range o.Kept.Records {
		if r.GPU == p.GPU.Name && r.NIC == p.NIC.Name && r.Taken.After(last) {
			last = r.Taken
		}
	}
	return last
}

// byTrial reports a verdict of which another proof may make another one.
func byTrial(v chain.Verdict) bool {
	l, ok := v.Decides()
	return ok && (l == chain.Proof || l == chain.Log)
}
