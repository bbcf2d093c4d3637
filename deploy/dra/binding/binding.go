// SPDX-License-Identifier: Apache-2.0

package binding

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	api "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
	"k8s.io/client-go/util/workqueue"

	"github.com/gpurdma/gpurdma/deploy/dra/resources"
)

// Reasons of the conditions.
const (
	Direct  = "Direct"
	Refused = "NotDirect"
)

// Controller answers for the claims that have NICs of one node.
type Controller struct {
	Client kubernetes.Interface
	Pool   string // of this node
	// Agree returns why the NICs of a claim are no partners of its GPUs, or nil; with an error it is asked again later.
	Agree func(context.Context, *api.ResourceClaim) (no, err error)
	Log   *slog.Logger
}

// Run answers until the context ends. It watches all claims of the cluster, since a claim has no label by which
// those of a node could be chosen; it keeps only those that wait for an answer.
func (c *Controller) Run(ctx context.Context) error {
	queue := workqueue.NewTypedRateLimitingQueue(limiter())
	defer queue.ShutDown()
	factory := informers.NewSharedInformerFactoryWithOptions(c.Client, 0, informers.WithTransform(c.reduce))
	informer := factory.Resource().V1().ResourceClaims().Informer()
	add := func(x any) {
		if claim, ok := x.(*api.ResourceClaim); ok && len(c.waiting(claim)) > 0 {
			queue.Add(cache.MetaObjectToName(claim))
		}
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: func(_, x any) { add(x) }}); err != nil {
		return err
	}
	if err := informer.SetWatchErrorHandlerWithContext(c.watchFailed); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	go func() {
		<-ctx.Done()
		queue.ShutDown()
	}()
	for {
		name, end := queue.Get()
		if end {
			return nil
		}
		err := c.answer(ctx, name)
		switch {
		case err == nil:
			queue.Forget(name)
		case ctx.Err() == nil:
			c.Log.Error("answer the scheduler about a claim", "claim", name.String(), "error", err)
			queue.AddRateLimited(name)
		}
		queue.Done(name)
	}
}

// limiter says after how long a claim is asked about again after an error. The scheduler gives up after ten minutes, so that
// no claim may wait for long after the end of an outage.
func limiter() workqueue.TypedRateLimiter[cache.ObjectName] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](firstRetry, lastRetry)
}

const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 10 * time.Second
)

// watchFailed says why the claims are not seen, for which otherwise nothing else speaks: the informer tries again.
func (c *Controller) watchFailed(ctx context.Context, _ *cache.Reflector, err error) {
	switch {
	case ctx.Err() != nil, errors.Is(err, io.EOF), apierrors.IsResourceExpired(err), apierrors.IsGone(err): // a watch that ends
	default:
		c.Log.Error("watch the claims: meanwhile the scheduler gets no answer, and no pod with a NIC of this node is bound", "error", err)
	}
}

// reduce takes out of a claim what is not looked at, before it is kept.
func (c *Controller) reduce(x any) (any, error) {
	claim, ok := x.(*api.ResourceClaim)
	if !ok {
		return x, nil
	}
	claim.ManagedFields, claim.Annotations, claim.Labels = nil, nil, nil
	claim.Spec = api.ResourceClaimSpec{}
	if len(c.waiting(claim)) == 0 {
		claim.Status = api.ResourceClaimStatus{}
	}
	return claim, nil
}

// waiting returns the NICs of this node in a claim about which the scheduler waits for an answer.
func (c *Controller) waiting(claim *api.ResourceClaim) (list []api.DeviceRequestAllocationResult) {
	if claim.Status.Allocation == nil || claim.DeletionTimestamp != nil {
		return nil
	}
	for _, r := range claim.Status.Allocation.Devices.Results {
		if r.Driver == resources.Driver && r.Pool == c.Pool && slices.Contains(r.BindingConditions, resources.Partner) && !c.answered(claim, r) {
			list = append(list, r)
		}
	}
	return list
}

// answered reports whether a device of a claim has one of the two conditions.
func (c *Controller) answered(claim *api.ResourceClaim, r api.DeviceRequestAllocationResult) bool {
	i := at(claim, r)
	return i >= 0 && (meta.IsStatusConditionTrue(claim.Status.Devices[i].Conditions, resources.Partner) ||
		meta.IsStatusConditionTrue(claim.Status.Devices[i].Conditions, resources.NoPartner))
}

// at is the index of a device's status in a claim, or -1.
func at(claim *api.ResourceClaim, r api.DeviceRequestAllocationResult) int {
	return slices.IndexFunc(claim.Status.Devices, func(d api.AllocatedDeviceStatus) bool {
		return d.Driver == r.Driver && d.Pool == r.Pool && d.Device == r.Device && d.ShareID == nil
	})
}

// answer asks about a claim, and writes the answer into its status. All NICs of a claim have the same one.
func (c *Controller) answer(ctx context.Context, name cache.ObjectName) error {
	claims := c.Client.ResourceV1().ResourceClaims(name.Namespace)
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		claim, err := claims.Get(ctx, name.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		devices := c.waiting(claim)
		if len(devices) == 0 {
			return nil
		}
		condition := metav1.Condition{
			Type: resources.Partner, Status: metav1.ConditionTrue, Reason: Direct, ObservedGeneration: claim.Generation,
			Message: "the claim's NICs and GPUs reach each other directly", LastTransitionTime: metav1.NewTime(time.Now()),
		}
		no, err := c.Agree(ctx, claim)
		if err != nil {
			return err
		}
		if no != nil {
			condition.Type, condition.Reason, condition.Message = resources.NoPartner, Refused, short(no.Error())
			c.Log.Info("the scheduler is to choose again", "claim", name.String(), "reason", no)
		}
		for _, r := range devices {
			i := at(claim, r)
			if i < 0 {
				i = len(claim.Status.Devices)
				claim.Status.Devices = append(claim.Status.Devices, api.AllocatedDeviceStatus{Driver: r.Driver, Pool: r.Pool, Device: r.Device})
			}
			meta.SetStatusCondition(&claim.Status.Devices[i].Conditions, condition)
		}
		_, err = claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{})
		switch {
		case apierrors.IsNotFound(err): // its pod is deleted
			return nil
		case err != nil && !apierrors.IsConflict(err):
			return fmt.Errorf("write the answer %s into the claim: %w", condition.Type, err)
		}
		return err
	})
}

// mostBytes bounds the message of a condition.
const mostBytes = 4 << 10

func short(s string) string {
	if len(s) <= mostBytes {
		return s
	}
	return strings.ToValidUTF8(s[:mostBytes-3], "") + "..."
}
