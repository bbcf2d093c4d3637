// SPDX-License-Identifier: Apache-2.0

package proving

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	api "k8s.io/api/resource/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/gpurdma/gpurdma/deploy/dra/node"
	"github.com/gpurdma/gpurdma/deploy/dra/pairs"
	"github.com/gpurdma/gpurdma/deploy/dra/resources"
	"github.com/gpurdma/gpurdma/p2p/chain"
)

var tried = pairs.Pair{GPU: "g0", NIC: "n0"}

// published are the slices of two GPUs and two NICs, while a pair of them is tried or not.
func published(trying bool, generation int64) (list []api.ResourceSlice) {
	n := &node.Node{GPUs: []node.GPU{{ID: "g0"}, {ID: "g1"}}, NICs: []node.NIC{{ID: "n0"}, {ID: "n1"}}}
	for _, g := range n.GPUs {
		for _, x := range n.NICs {
			n.Pairs = append(n.Pairs, node.Pair{GPU: g.ID, NIC: x.ID, Outcome: chain.Direct})
		}
	}
	pool := resources.Pairs(n, pairs.Make(n.Direct(), pairs.Taken{}, 3), nil, nil)
	if trying {
		resources.Occupy(pool, tried)
	}
	name := "node-1"
	for i, s := range pool.Slices {
		list = append(list, api.ResourceSlice{ObjectMeta: meta.ObjectMeta{Name: fmt.Sprint(generation, "-", i)}, Spec: api.ResourceSliceSpec{
			Driver: resources.Driver, NodeName: &name, Devices: s.Devices, SharedCounters: s.SharedCounters,
			Pool: api.ResourcePool{Name: name, Generation: generation, ResourceSliceCount: int64(len(pool.Slices))},
		}})
	}
	return list
}

// A pair may be tried when the newest slices have the taint on all devices with its GPU or its NIC, and not sooner.
func TestTainted(t *testing.T) {
	name := "node-2"
	other := published(false, 9)
	for i := range other {
		other[i].Spec.NodeName = &name
	}
	without := published(true, 1)
	for i := range without {
		for j := range without[i].Spec.Devices {
			if d := &without[i].Spec.Devices[j]; strings.HasPrefix(d.Name, "pairs-2") {
				d.Taints = nil
			}
		}
	}
	for what, c := range map[string]struct {
		list []api.ResourceSlice
		says string
	}{
		"tainted":               {published(true, 1), ""},
		"and older ones not":    {append(published(false, 1), published(true, 2)...), ""},
		"not tainted":           {published(false, 1), "is still open to pods"},
		"not any more":          {append(published(false, 2), published(true, 1)...), "is still open to pods"},
		"of another node":       {append(published(true, 1), other...), ""},
		"none":                  {nil, "has 0 slices"},
		"not all":               {published(true, 1)[:1], "has 1 slices of this node, and they say 2"},
		"a set is open to pods": {without, "device pairs-2"},
	} {
		objects := fake.NewClientset()
		for i := range c.list {
			if _, err := objects.ResourceV1().ResourceSlices().Create(t.Context(), &c.list[i], meta.CreateOptions{}); err != nil {
				t.Fatal(what, err)
			}
		}
		s := &Slices{Client: objects.ResourceV1(), Node: "node-1", Every: time.Millisecond}
		ctx, stop := context.WithCancel(t.Context())
		if c.says != "" {
			stop()
		}
		err := s.Tainted(ctx, tried)
		stop()
		if (err != nil) != (c.says != "") || err != nil && (!strings.Contains(err.Error(), c.says) || !errors.Is(err, context.Canceled)) {
			t.Errorf("%s: %v, want %q", what, err, c.says)
		}
	}
}

// Devices that share nothing with the pair have no taint.
func TestOccupy(t *testing.T) {
	free := 0
	for _, s := range published(true, 1) {
		for i := range s.Spec.Devices {
			if d := &s.Spec.Devices[i]; resources.Occupied(d) != resources.Has(d, tried) {
				t.Errorf("%s: %v", d.Name, d.Taints)
			} else if !resources.Occupied(d) {
				free++
			}
		}
	}
	if free != 1 { // g1 with n1
		t.Errorf("%d devices have no taint", free)
	}
}
