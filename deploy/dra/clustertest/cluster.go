// SPDX-License-Identifier: Apache-2.0

package clustertest

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

	"github.com/gpurdma/gpurdma/deploy/dra/resources"
)

// Node is the name of the node.
const Node = "node-1"

// patience is how long the scheduler lets a node try.
const patience = 10 * time.Second

// Features returns those of the scheduler of Kubernetes 1.37: with its default gates, or also with the ones that are
// off by default by which a NIC may list its partners.
func Features(lists bool) structured.Features {
	return structured.Features{
		AdminAccess: true, PrioritizedList: true, PartitionableDevices: true, DeviceTaints: true,
		ConsumableCapacity: true, DeviceBindingAndStatus: true, FractionalCapacityRange: true,
		ListTypeAttributes: lists, DerivedAttributes: lists,
	}
}

// Cluster is the scheduler's part of a cluster with one node.
type Cluster struct {
	slices []*api.ResourceSlice
	used   sets.Set[structured.DeviceID]
	cache  *cel.Cache
	claims int
	with   structured.Features
}

// New makes a cluster with the default gates in which nothing is published.
func New() *Cluster { return NewWith(Features(false)) }

// NewWith makes one with other gates.
func NewWith(f structured.Features) *Cluster {
	return &Cluster{used: sets.New[structured.DeviceID](), cache: cel.NewCache(10, cel.Features{}), with: f}
}

// Slices are what all drivers have published.
func (c *Cluster) Slices() (list []api.ResourceSlice) {
	for _, s := range c.slices {
		list = append(list, *s)
	}
	return list
}

// Publish makes a driver's pool the only one that it has, as the apiserver would have it.
func (c *Cluster) Publish(driver string, pool resourceslice.Pool) {
	c.slices = slices.DeleteFunc(c.slices, func(s *api.ResourceSlice) bool { return s.Spec.Driver == driver })
	node := Node
	for i, s := range pool.Slices {
		c.slices = append(c.slices, &api.ResourceSlice{
			ObjectMeta: meta.ObjectMeta{Name: fmt.Sprintf("%02x-%s-%s", i, driver, Node)},
			Spec: api.ResourceSliceSpec{
				Driver: driver, NodeName: &node, Devices: s.Devices, SharedCounters: s.SharedCounters,
				Pool: api.ResourcePool{Name: Node, Generation: 1, ResourceSliceCount: int64(len(pool.Slices))},
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

// Request asks for devices of a driver.
func Request(name, driver string, count int, expressions ...string) api.DeviceRequest {
	exact := &api.ExactDeviceRequest{DeviceClassName: driver, AllocationMode: api.DeviceAllocationModeExactCount, Count: int64(count)}
	for _, e := range expressions {
		exact.Selectors = append(exact.Selectors, api.DeviceSelector{CEL: &api.CELDeviceSelector{Expression: e}})
	}
	return api.DeviceRequest{Name: name, Exactly: exact}
}

// OfSize selects devices of some pairs.
func OfSize(n int) string {
	return fmt.Sprintf("device.attributes[%q].size == %d", resources.Driver, n)
}

// Allocate places one claim. If there is no place, the claim has no allocation.
func (c *Cluster) Allocate(t *testing.T, constraints []api.DeviceConstraint, requests ...api.DeviceRequest) *api.ResourceClaim {
	t.Helper()
	c.claims++
	claim := &api.ResourceClaim{
		ObjectMeta: meta.ObjectMeta{Name: fmt.Sprint("claim-", c.claims), Namespace: "default", UID: types.UID(fmt.Sprint(c.claims))},
		Spec:       api.ResourceClaimSpec{Devices: api.DeviceClaim{Requests: requests, Constraints: constraints}},
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	a, err := structured.NewAllocator(ctx, c.with, structured.AllocatedState{
		AllocatedDevices: c.used, AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](), AggregatedCapacity: structured.NewConsumedCapacityCollection(),
	}, classes{}, c.slices, c.cache)
	if err != nil {
		t.Fatal(err)
	}
	results, err := a.Allocate(ctx, &core.Node{ObjectMeta: meta.ObjectMeta{Name: Node}}, []*api.ResourceClaim{claim})
	if err != nil {
		t.Fatalf("claim %d: %v", c.claims, err)
	}
	if len(results) > 0 {
		claim.Status.Allocation = &results[0]
		c.used.Insert(devices(claim)...)
	}
	return claim
}

// Names are the names of the devices of a claim.
func Names(claim *api.ResourceClaim) (list []string) {
	for _, id := range devices(claim) {
		list = append(list, id.Device.String())
	}
	return list
}

func devices(claim *api.ResourceClaim) (list []structured.DeviceID) {
	if claim.Status.Allocation == nil {
		return nil
	}
	for _, d := range claim.Status.Allocation.Devices.Results {
		list = append(list, structured.MakeDeviceID(d.Driver, d.Pool, d.Device))
	}
	return list
}

// Release gives the devices of a claim back.
func (c *Cluster) Release(claim *api.ResourceClaim) { c.used.Delete(devices(claim)...) }
