// SPDX-License-Identifier: Apache-2.0

package proving

import (
	"context"
	"errors"
	"fmt"
	"time"

	api "k8s.io/api/resource/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	client "k8s.io/client-go/kubernetes/typed/resource/v1"

	"github.com/gpurdma/gpurdma/deploy/dra/pairs"
	"github.com/gpurdma/gpurdma/deploy/dra/resources"
)

// Slices are those of a node's pool in the API server.
type Slices struct {
	Client client.ResourceSlicesGetter
	Node   string
	Every  time.Duration // between two requests; 0 means half a second
}

// Tainted returns when all devices with the GPU or the NIC of a pair have the taint of a proof.
func (s *Slices) Tainted(ctx context.Context, x pairs.Pair) error {
	every := s.Every
	if every == 0 {
		every = 500 * time.Millisecond
	}
	for {
		list, err := s.Client.ResourceSlices().List(ctx, meta.ListOptions{FieldSelector: fields.SelectorFromSet(fields.Set{
			api.ResourceSliceSelectorNodeName: s.Node, api.ResourceSliceSelectorDriver: resources.Driver,
		}).String()})
		if err == nil {
			err = s.tainted(list.Items, x)
		}
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(every):
		}
	}
}

// tainted returns an error for slices with a device that has no taint, or that are not all there.
func (s *Slices) tainted(list []api.ResourceSlice, x pairs.Pair) error {
	var newest, count, want int64
	var open string // a device without the taint
	for _, r := range list {
		if r.Spec.Driver != resources.Driver || r.Spec.NodeName == nil || *r.Spec.NodeName != s.Node || r.Spec.Pool.Generation < newest {
			continue
		}
		if r.Spec.Pool.Generation > newest {
			newest, count, open = r.Spec.Pool.Generation, 0, ""
		}
		count, want = count+1, r.Spec.Pool.ResourceSliceCount
		for i := range r.Spec.Devices {
			if d := &r.Spec.Devices[i]; resources.Has(d, x) && !resources.Occupied(d) {
				open = d.Name
			}
		}
	}
	switch {
	case open != "":
		return fmt.Errorf("device %s is still open to pods", open)
	case count == 0 || count != want:
		return fmt.Errorf("the API server has %d slices of this node, and they say %d", count, want)
	}
	return nil
}
