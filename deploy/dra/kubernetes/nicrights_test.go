// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	authorization "k8s.io/api/authorization/v1"
	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	api "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpurdma/gpurdma/deploy/dra/resources"
)

// changes returns a function that changes the status of a claim with the rights of a driver, and keeps nothing.
func (m *machine) changes(t *testing.T, c *api.ResourceClaim, change func(*api.ResourceClaim)) func() error {
	return func() error {
		now, err := admin.ResourceV1().ResourceClaims(c.Namespace).Get(t.Context(), c.Name, meta.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		change(now)
		_, err = m.client.ResourceV1().ResourceClaims(c.Namespace).UpdateStatus(t.Context(), now, meta.UpdateOptions{DryRun: []string{meta.DryRunAll}})
		return err
	}
}

// Changes of a claim's status that a driver may want.
func answerAgain(c *api.ResourceClaim) {
	for i, d := range c.Status.Devices {
		if d.Driver == resources.Driver {
			c.Status.Devices[i].Conditions[0].Message = "another one"
		}
	}
}

func takeAway(c *api.ResourceClaim) { c.Status.Allocation, c.Status.ReservedFor = nil, nil }

func giveTo(c *api.ResourceClaim) {
	c.Status.ReservedFor = append(c.Status.ReservedFor, api.ResourceClaimConsumerReference{Resource: "pods", Name: "x", UID: "x"})
}

func answerForGPU(c *api.ResourceClaim) {
	for _, r := range c.Status.Allocation.Devices.Results {
		if r.Driver == gpuDriver {
			c.Status.Devices = append(c.Status.Devices, api.AllocatedDeviceStatus{Driver: r.Driver, Pool: r.Pool, Device: r.Device, Conditions: []meta.Condition{
				{Type: "x", Status: meta.ConditionTrue, Reason: "X", LastTransitionTime: meta.Now()},
			}})
		}
	}
}

func forget(c *api.ResourceClaim) { c.Status.Devices = nil }

// The driver that publishes NICs may answer about the NICs of its own node, and change nothing else of a claim.
func TestNICRights(t *testing.T) {
	ofNICs.use(t)
	w := addWay(t, byAnswers("nic-rights"))
	m := addBeside(t, "nic-rights", topology(t, "dgx-h100"), time.Hour, false)
	m2 := addBeside(t, "nic-rights-2", topology(t, "dgx-h100"), time.Hour, false)
	p, q := w.pod(t, m, "here", ""), w.pod(t, m2, "there", "")
	w.arrives(t, m, p)
	w.arrives(t, m2, q)
	here, there := claimOf(t, p), claimOf(t, q)
	ctx, dry := t.Context(), []string{meta.DryRunAll}
	claims := m.client.ResourceV1().ResourceClaims("nic-rights")
	const binding, driver = `"resourceclaims/binding"`, `"resourceclaims/driver"`
	checkRights(t, []right{
		{"list claims", "", func() error {
			_, err := m.client.ResourceV1().ResourceClaims("").List(ctx, meta.ListOptions{})
			return err
		}},
		{"watch claims", "", func() error {
			w, err := m.client.ResourceV1().ResourceClaims("").Watch(ctx, meta.ListOptions{})
			if err == nil {
				w.Stop()
			}
			return err
		}},
		{"answer", "", m.changes(t, here, answerAgain)},
		{"forget an answer", "", m.changes(t, here, forget)},
		{"answer about a claim of another node", driver, m.changes(t, there, answerAgain)},
		{"answer for the driver of the GPUs", driver, m.changes(t, here, answerForGPU)},
		{"take the devices away", binding, m.changes(t, here, takeAway)},
		{"give the claim to another pod", binding, m.changes(t, here, giveTo)},
		{"patch an answer", "cannot patch", func() error {
			_, err := claims.Patch(ctx, here.Name, types.MergePatchType, []byte("{}"), meta.PatchOptions{DryRun: dry}, "status")
			return err
		}},
		{"change a claim", "cannot update", func() error {
			_, err := claims.Update(ctx, here, meta.UpdateOptions{DryRun: dry})
			return err
		}},
		{"make a claim", "cannot create", func() error {
			_, err := claims.Create(ctx, &api.ResourceClaim{ObjectMeta: meta.ObjectMeta{Name: "x"}}, meta.CreateOptions{DryRun: dry})
			return err
		}},
		{"delete a claim", "cannot delete", func() error {
			return claims.Delete(ctx, here.Name, meta.DeleteOptions{DryRun: dry})
		}},
		{"list pods", "cannot list", func() error {
			_, err := m.client.CoreV1().Pods("").List(ctx, meta.ListOptions{})
			return err
		}},
		{"bind a pod", "cannot create", func() error {
			return m.client.CoreV1().Pods("nic-rights").Bind(ctx, &core.Binding{ObjectMeta: meta.ObjectMeta{Name: p.Name}, Target: core.ObjectReference{Kind: "Node", Name: m.name}}, meta.CreateOptions{DryRun: dry})
		}},
	})
	remove(t, p, false)
	remove(t, q, false)
	m.refusalsOnly(t)
	m2.refusalsOnly(t)
}

// Where the API server does not ask for more than the right to update a claim's status, the policy refuses what the driver has
// no business to change.
func TestAnswersPolicy(t *testing.T) {
	ofLists.use(t)
	w := addWay(t, byAnswers("nic-policy"))
	m := addBeside(t, "nic-policy", topology(t, "dgx-h100"), time.Hour, true)
	m2 := addBeside(t, "nic-policy-2", topology(t, "dgx-h100"), time.Hour, true)
	p, q := w.pod(t, m, "here", ""), w.pod(t, m2, "there", "")
	w.arrives(t, m, p)
	w.arrives(t, m2, q)
	here, there := claimOf(t, p), claimOf(t, q)
	wait(t, "the policy is in force", func() (bool, string) {
		return m.changes(t, there, answerAgain)() != nil, "the driver may answer for another node"
	})
	const own, devices = "may change the status of no devices but its own", "may not change which devices a claim has"
	checkRights(t, []right{
		{"answer", "", m.changes(t, here, answerAgain)},
		{"forget an answer", "", m.changes(t, here, forget)},
		{"answer about a claim of another node", own, m.changes(t, there, answerAgain)},
		{"forget the answer of another node", own, m.changes(t, there, forget)},
		{"answer for the driver of the GPUs", own, m.changes(t, here, answerForGPU)},
		{"take the devices away", devices, m.changes(t, here, takeAway)},
		{"give the claim to another pod", devices, m.changes(t, here, giveTo)},
	})
	// The devices of a claim that no pod has, and that waits for no answer.
	claims := admin.ResourceV1().ResourceClaims(here.Namespace)
	alone, err := claims.Create(t.Context(), &api.ResourceClaim{ObjectMeta: meta.ObjectMeta{Name: "alone"}, Spec: here.Spec}, meta.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	alone.Status.Allocation = here.Status.Allocation.DeepCopy()
	for i := range alone.Status.Allocation.Devices.Results {
		r := &alone.Status.Allocation.Devices.Results[i]
		r.BindingConditions, r.BindingFailureConditions = nil, nil
	}
	if alone, err = claims.UpdateStatus(t.Context(), alone, meta.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	checkRights(t, []right{{"take the devices away", devices, m.changes(t, alone, takeAway)}})
	if err := claims.Delete(t.Context(), alone.Name, meta.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	remove(t, p, false)
	remove(t, q, false)
}

// Each right of the driver is needed: without it no pod is bound, or the driver says which one is missing. With it, the pod that
// waits is bound.
func TestNICRightsNeeded(t *testing.T) {
	ofNICs.use(t)
	w := addWay(t, byAnswers("nic-without"))
	m := addBeside(t, "nic-without", topology(t, "dgx-h100"), time.Hour, false)
	roles := admin.RbacV1().ClusterRoles()
	for i, c := range []struct {
		role, resource string
		verbs          []string
		bound          bool // all the same, if late
	}{
		{"dra-p2p-nics", "resourceclaims", []string{"list", "watch"}, false},
		{"dra-p2p-nics", "resourceclaims", []string{"watch"}, true},
		{"dra-p2p-nics", "resourceclaims/status", []string{"update"}, false},
		{"dra-p2p-nics", "resourceclaims/driver", []string{"associated-node:update"}, false},
		{"dra-p2p", "resourceclaims", []string{"get"}, false},
		{"dra-p2p", "resourceslices", []string{"list"}, false},
	} {
		name := c.resource + " " + strings.Join(c.verbs, " ")
		m.stop()
		was, err := roles.Get(t.Context(), c.role, meta.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		less := was.DeepCopy()
		for j := range less.Rules {
			if r := &less.Rules[j]; slices.Contains(r.Resources, c.resource) {
				r.Verbs = slices.DeleteFunc(r.Verbs, func(v string) bool { return slices.Contains(c.verbs, v) })
			}
		}
		less.Rules = slices.DeleteFunc(less.Rules, func(r rbac.PolicyRule) bool { return len(r.Verbs) == 0 })
		changeRole(t, less)
		restore := func() {
			now, err := roles.Get(context.Background(), c.role, meta.GetOptions{})
			if err == nil {
				now.Rules = was.Rules
				_, err = roles.Update(context.Background(), now, meta.UpdateOptions{})
			}
			if err != nil {
				t.Error(err)
			}
		}
		t.Cleanup(restore)
		m.mayNot(t, c.resource, c.verbs[0])
		m.startDriver(t)
		p := w.pod(t, m, strings.Map(func(r rune) rune {
			if r >= 'a' && r <= 'z' {
				return r
			}
			return '-'
		}, c.resource)+string(rune('a'+i)), "")
		var said string
		wait(t, "without "+name+" the driver says so", func() (bool, string) {
			said += strings.Join(m.said(), "\n")
			return strings.Contains(said, "cannot ") || strings.Contains(said, "requires resource"), said
		})
		t.Logf("without %s: %.300s", name, said)
		if now := get(t, p); !c.bound && now.Spec.NodeName != "" {
			t.Errorf("without %s the pod is bound", name)
		}
		restore()
		w.arrives(t, m, p)
		remove(t, p, false)
		m.said()
	}
}

func changeRole(t *testing.T, r *rbac.ClusterRole) {
	t.Helper()
	if _, err := admin.RbacV1().ClusterRoles().Update(t.Context(), r, meta.UpdateOptions{}); err != nil && !apierrors.IsConflict(err) {
		t.Fatal(err)
	}
}

// mayNot waits until the API server has seen that a driver has lost a right.
func (m *machine) mayNot(t *testing.T, resource, verb string) {
	t.Helper()
	resource, sub, _ := strings.Cut(resource, "/")
	a := &authorization.ResourceAttributes{Group: "resource.k8s.io", Resource: resource, Subresource: sub, Verb: verb, Namespace: "nic-without"}
	if sub == "driver" {
		a.Name = resources.Driver
	}
	wait(t, "the right is away", func() (bool, string) {
		r, err := m.client.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), &authorization.SelfSubjectAccessReview{
			Spec: authorization.SelfSubjectAccessReviewSpec{ResourceAttributes: a},
		}, meta.CreateOptions{})
		return err == nil && !r.Status.Allowed, "it is there"
	})
}
