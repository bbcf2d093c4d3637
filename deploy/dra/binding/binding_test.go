// SPDX-License-Identifier: Apache-2.0

package binding

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	api "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/gpurdma/gpurdma/deploy/dra/resources"
)

func claim(name, pool string, conditions ...string) *api.ResourceClaim {
	return &api.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"a": "b"}},
		Status: api.ResourceClaimStatus{Allocation: &api.AllocationResult{Devices: api.DeviceAllocationResult{Results: []api.DeviceRequestAllocationResult{
			{Request: "gpu", Driver: "gpu.example.com", Pool: pool, Device: "gpu-0"},
			{Request: "nic", Driver: resources.Driver, Pool: pool, Device: "nic-0", BindingConditions: conditions, BindingFailureConditions: []string{resources.NoPartner}},
			{Request: "nic", Driver: resources.Driver, Pool: pool, Device: "nic-1", BindingConditions: conditions, BindingFailureConditions: []string{resources.NoPartner}},
		}}}},
	}
}

// wait returns a claim as soon as it is as a test wants it.
func wait(t *testing.T, client *fake.Clientset, name string, ready func(*api.ResourceClaim) bool) *api.ResourceClaim {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		c, err := client.ResourceV1().ResourceClaims("default").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if ready(c) {
			return c
		}
		if time.Now().After(end) {
			t.Fatalf("%s has %+v", name, c.Status.Devices)
		}
	}
}

// The scheduler gets one answer for each NIC of a claim of this node, also after an error of the API server or of
// Agree. Claims of other nodes, and those that wait for nothing, are as they were.
func TestAnswers(t *testing.T) {
	client := fake.NewClientset(claim("good", "node-1", resources.Partner), claim("other-node", "node-2", resources.Partner), claim("old-cluster", "node-1"))
	fails := 2
	client.PrependReactor("update", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		if fails--; fails == 1 {
			return true, nil, apierrors.NewConflict(api.Resource("resourceclaims"), "good", errors.New("changed meanwhile"))
		} else if fails == 0 {
			return true, nil, errors.New("the API server is down")
		}
		return false, nil, nil
	})
	asked := make(chan string, 100)
	down := true
	c := Controller{Client: client, Pool: "node-1", Log: slog.New(slog.DiscardHandler), Agree: func(_ context.Context, c *api.ResourceClaim) (no, err error) {
		asked <- c.Name
		if c.Name == "bad" {
			if down {
				down = false
				return nil, errors.New("the machine could not be read")
			}
			return errors.New("NIC mlx5_0 reaches no GPU of the claim directly" + strings.Repeat("ä", mostBytes)), nil
		}
		return nil, nil
	}}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()

	has := func(condition string) func(*api.ResourceClaim) bool {
		return func(c *api.ResourceClaim) bool {
			return len(c.Status.Devices) == 2 && meta.IsStatusConditionTrue(c.Status.Devices[0].Conditions, condition) && meta.IsStatusConditionTrue(c.Status.Devices[1].Conditions, condition)
		}
	}
	good := wait(t, client, "good", has(resources.Partner))
	if d := good.Status.Devices[1]; d.Driver != resources.Driver || d.Pool != "node-1" || d.Device != "nic-1" || len(d.Conditions) != 1 || good.Labels["a"] != "b" {
		t.Errorf("%+v", good)
	}
	if _, err := client.ResourceV1().ResourceClaims("default").Create(ctx, claim("bad", "node-1", resources.Partner), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	bad := wait(t, client, "bad", has(resources.NoPartner))
	if x := bad.Status.Devices[0].Conditions[0]; !strings.HasPrefix(x.Message, "NIC mlx5_0 reaches no GPU") || len(x.Message) > mostBytes || x.Reason != Refused {
		t.Errorf("%+v", x)
	}
	// An answered claim is not asked about again, whatever changes in it.
	bad.Labels = map[string]string{"a": "c"}
	if _, err := client.ResourceV1().ResourceClaims("default").Update(ctx, bad, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.ResourceV1().ResourceClaims("default").Create(ctx, claim("last", "node-1", resources.Partner), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	wait(t, client, "last", has(resources.Partner))
	for _, name := range []string{"other-node", "old-cluster"} {
		if c := wait(t, client, name, func(*api.ResourceClaim) bool { return true }); len(c.Status.Devices) > 0 {
			t.Errorf("%s has %+v", name, c.Status.Devices)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	close(asked)
	count := map[string]int{}
	for name := range asked {
		count[name]++
	}
	// good: at first, after the conflict, after the error. bad: after the error, and then.
	if count["good"] != 3 || count["bad"] != 2 || count["last"] != 1 || len(count) != 3 {
		t.Errorf("asked %v", count)
	}
}

// Without the right to see claims the driver says so, and answers when it has the right.
func TestNoRights(t *testing.T) {
	client := fake.NewClientset(claim("good", "node-1", resources.Partner))
	var refused atomic.Bool
	refused.Store(true)
	no := func(a clienttesting.Action) (bool, runtime.Object, error) {
		return refused.Load(), nil, apierrors.NewForbidden(api.Resource("resourceclaims"), "", errors.New("no rights"))
	}
	client.PrependReactor("list", "resourceclaims", no)
	client.PrependWatchReactor("resourceclaims", func(a clienttesting.Action) (bool, watch.Interface, error) {
		refused, _, err := no(a)
		return refused, nil, err
	})
	said := make(chan string, 100)
	c := Controller{Client: client, Pool: "node-1", Log: slog.New(slog.NewTextHandler(lines(said), nil)), Agree: func(context.Context, *api.ResourceClaim) (no, err error) { return nil, nil }}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	select {
	case text := <-said:
		if !strings.Contains(text, "level=ERROR") || !strings.Contains(text, "no rights") {
			t.Error(text)
		}
	case <-time.After(time.Minute):
		t.Error("it says nothing")
	}
	refused.Store(false)
	wait(t, client, "good", func(c *api.ResourceClaim) bool {
		return len(c.Status.Devices) == 2 && meta.IsStatusConditionTrue(c.Status.Devices[0].Conditions, resources.Partner)
	})
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A claim that goes while it is looked at, as with its pod, is no error and is not looked at again.
func TestClaimGoes(t *testing.T) {
	client := fake.NewClientset(claim("goes", "node-1", resources.Partner))
	client.PrependReactor("update", "resourceclaims", func(a clienttesting.Action) (bool, runtime.Object, error) {
		c := a.(clienttesting.UpdateAction).GetObject().(*api.ResourceClaim)
		return c.Name == "goes", nil, apierrors.NewNotFound(api.Resource("resourceclaims"), c.Name)
	})
	said := make(chan string, 100)
	asked := make(chan string, 100)
	c := Controller{Client: client, Pool: "node-1", Log: slog.New(slog.NewTextHandler(lines(said), nil)), Agree: func(_ context.Context, c *api.ResourceClaim) (no, err error) {
		asked <- c.Name
		return nil, nil
	}}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	if name := <-asked; name != "goes" {
		t.Error(name)
	}
	for _, name := range []string{"a", "b"} { // after which a second try would have come
		if _, err := client.ResourceV1().ResourceClaims("default").Create(ctx, claim(name, "node-1", resources.Partner), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		wait(t, client, name, func(c *api.ResourceClaim) bool { return len(c.Status.Devices) == 2 })
		time.Sleep(2 * firstRetry)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if len(said) > 0 || len(asked) != 2 {
		t.Errorf("it was asked %d times more, and has said %d things", len(asked)-2, len(said))
	}
}

// lines sends what is written to it.
type lines chan<- string

func (l lines) Write(text []byte) (int, error) {
	l <- string(text)
	return len(text), nil
}

// However often it has failed, a claim is asked about again soon.
func TestLimiter(t *testing.T) {
	l, name := limiter(), cache.NewObjectName("default", "claim")
	var last time.Duration
	for range 100 {
		last = l.When(name)
	}
	if last <= 0 || last > time.Minute {
		t.Errorf("a claim waits for %v", last)
	}
}
