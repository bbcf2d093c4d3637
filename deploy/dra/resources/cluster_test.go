// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	api "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/dynamic-resource-allocation/structured"
)

const nodeName = "node-1"

// patience is how long the scheduler lets a node try.
const patience = 10 * time.Second

// features are those of the scheduler of Kubernetes 1.37 with its default gates.
var features = structured.Features{
	AdminAccess: true, PrioritizedList: true, PartitionableDevices: true, DeviceTaints: true,
	ConsumableCapacity: true, DeviceBindingAndStatus: true, FractionalCapacityRange: true,
}

// cluster is the scheduler's part of a cluster with one node.
type cluster struct {
	slices []*api.ResourceSlice
	used   sets.Set[structured.DeviceID]
	cache  *cel.Cache
	claims int
}

func newCluster() *cluster {
	return &cluster{used: sets.New[structured.DeviceID](), cache: cel.NewCache(10, cel.Features{})}
}

// publish makes a driver's pool the only one that it has, as the apiserver would have it.
func (c *cluster) publish(driver string, pool resourceslice.Pool) {
	c.slices = slices.DeleteFunc(c.slices, func(s *api.ResourceSlice) bool { return s.Spec.Driver == driver })
	node := nodeName
	for i, s := range pool.Slices {
		c.slices = append(c.slices, &api.ResourceSlice{
			ObjectMeta: meta.ObjectMeta{Name: fmt.Sprintf("%02x-%s-%s", i, driver, nodeName)},
			Spec: api.ResourceSliceSpec{
				Driver: driver, NodeName: &node, Devices: s.Devices, SharedCounters: s.SharedCounters,
				Pool: api.ResourcePool{Name: nodeName, Generation: 1, ResourceSliceCount: int64(len(pool.Slices))},
			},
		})
	}
}

// classes has one class for each driver: all of its devices.
type classes struct{}

func (classes) List() ([]*api.DeviceClass, error) { return nil, nil }

func (classes) Get(name string) (*api.DeviceClass, error) {
	if !strings.Contains(name, ".") {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "deviceclasses"}, name)
	}
	return &api.DeviceClass{
		ObjectMeta: meta.ObjectMeta{Name: name},
		Spec:       api.DeviceClassSpec{Selectors: []api.DeviceSelector{{CEL: &api.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == %q", name)}}}},
	}, nil
}

// request asks for devices of a driver.
func request(name, driver string, count int, expressions ...string) api.DeviceRequest {
	exact := &api.ExactDeviceRequest{DeviceClassName: driver, AllocationMode: api.DeviceAllocationModeExactCount, Count: int64(count)}
	for _, e := range expressions {
		exact.Selectors = append(exact.Selectors, api.DeviceSelector{CEL: &api.CELDeviceSelector{Expression: e}})
	}
	return api.DeviceRequest{Name: name, Exactly: exact}
}

// ofSize selects devices of some pairs.
func ofSize(n int) string { return fmt.Sprintf("device.attributes[%q].size == %d", Driver, n) }

// allocate places one claim. Without a place it returns nothing.
func (c *cluster) allocate(t *testing.T, constraints []api.DeviceConstraint, requests ...api.DeviceRequest) (got []structured.DeviceID) {
	t.Helper()
	c.claims++
	claim := &api.ResourceClaim{
		ObjectMeta: meta.ObjectMeta{Name: fmt.Sprint("claim-", c.claims), Namespace: "default", UID: types.UID(fmt.Sprint(c.claims))},
		Spec:       api.ResourceClaimSpec{Devices: api.DeviceClaim{Requests: requests, Constraints: constraints}},
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	a, err := structured.NewAllocator(ctx, features, structured.AllocatedState{
		AllocatedDevices: c.used, AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](), AggregatedCapacity: structured.NewConsumedCapacityCollection(),
	}, classes{}, c.slices, c.cache)
	if err != nil {
		t.Fatal(err)
	}
	results, err := a.Allocate(ctx, &core.Node{ObjectMeta: meta.ObjectMeta{Name: nodeName}}, []*api.ResourceClaim{claim})
	if err != nil {
		t.Fatalf("claim %d: %v", c.claims, err)
	}
	for _, r := range results {
		for _, d := range r.Devices.Results {
			id := structured.MakeDeviceID(d.Driver, d.Pool, d.Device)
			c.used.Insert(id)
			got = append(got, id)
		}
	}
	return got
}

// release gives devices back.
func (c *cluster) release(list []structured.DeviceID) { c.used.Delete(list...) }
