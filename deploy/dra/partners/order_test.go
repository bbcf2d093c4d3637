// SPDX-License-Identifier: Apache-2.0

package partners

import (
	"strings"
	"testing"

	api "k8s.io/api/resource/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpurdma/gpurdma/deploy/dra/pairs"
)

func TestFirst(t *testing.T) {
	n := machine("a@1 b@1", "x@1 y@1 z@1", "a-y a-z b-y")
	for _, c := range []struct{ wait, order, taken, want string }{
		{"", "", "", "z y x"}, // a and b have one NIC each
		{"", "b a", "", "y z x"},
		{"", "b", "", "y z x"}, // a is not published
		{"a", "a b", "", "z y x"},
		{"b a", "a b", "", "y z x"},
		{"gone", "a b", "", "z y x"},
		{"", "a b", "a-z", "y x z"},
		{"a", "a b", "-z", "y z x"},
		{"a", "a b", "a-z", "y z x"}, // a part of a is taken, and another one waits
		{"", "b a", "-y", "z x y"},
	} {
		var taken []pairs.Pair
		for _, text := range strings.Fields(c.taken) {
			gpu, nic, _ := strings.Cut(text, "-")
			taken = append(taken, pairs.Pair{GPU: gpu, NIC: nic})
		}
		if got := strings.Join(First(n, strings.Fields(c.wait), strings.Fields(c.order), taken), " "); got != c.want {
			t.Errorf("%q, %q, %q: %s, want %s", c.wait, c.order, c.taken, got, c.want)
		}
	}
	// A claim for a and b takes the first two NICs.
	n = machine("a@1 b@1", "x@1 y@1 z@1", "a-x a-y b-z")
	if got := First(n, []string{"a", "b"}, []string{"a", "b"}, nil); Agree(n, []string{"a", "b"}, got[:2]) != nil {
		t.Error(got)
	}
}

// The order is that of Kubernetes' allocator: see sortPoolsByID and sortSlicesByName there.
func TestOrder(t *testing.T) {
	n := machine("a@1 b@1 c@1 d@1", "x@1", "")
	slice := func(name, driver string, generation int64, addresses ...string) api.ResourceSlice {
		s := api.ResourceSlice{ObjectMeta: meta.ObjectMeta{Name: name}, Spec: api.ResourceSliceSpec{Driver: driver, Pool: api.ResourcePool{Name: "node-1", Generation: generation}}}
		for _, a := range addresses {
			s.Spec.Devices = append(s.Spec.Devices, api.Device{Name: a, Attributes: map[api.QualifiedName]api.DeviceAttribute{"resource.kubernetes.io/pciBusID": {StringValue: &a}}})
		}
		return s
	}
	got := Order(n, "ours", []api.ResourceSlice{
		slice("0", "ours", 1, "0000:04:00.0"),
		slice("2", "gpu.b", 2, "0000:01:00.0"),
		slice("1", "gpu.b", 2, "0000:03:00.0", "0000:09:00.0", "0000:03:00.0"),
		slice("0", "gpu.b", 1, "0000:04:00.0"),
		slice("9", "gpu.a", 1, "0000:02:00.0"),
	})
	if text := strings.Join(got, " "); text != "b c a" {
		t.Error(text)
	}
}
