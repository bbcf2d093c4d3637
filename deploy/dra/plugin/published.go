// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"

	api "k8s.io/api/resource/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	client "k8s.io/client-go/kubernetes/typed/resource/v1"
)

// PublishedFor returns a function for [Beside] that reads what all drivers publish for a node.
func PublishedFor(node string, c client.ResourceSlicesGetter) func(context.Context) ([]api.ResourceSlice, error) {
	of := meta.ListOptions{FieldSelector: fields.OneTermEqualSelector(api.ResourceSliceSelectorNodeName, node).String()}
	return func(ctx context.Context) ([]api.ResourceSlice, error) {
		list, err := c.ResourceSlices().List(ctx, of)
		if err != nil {
			return nil, err
		}
		return list.Items, nil
	}
}
