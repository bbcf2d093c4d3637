// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	api "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gpurdma/gpurdma/deploy/dra/resources"
)

// slice is a slice that a driver might publish.
func slice(driver, node string) *api.ResourceSlice {
	s := &api.ResourceSlice{ObjectMeta: meta.ObjectMeta{GenerateName: "rights-"}, Spec: api.ResourceSliceSpec{
		Driver: driver, Pool: api.ResourcePool{Name: "rights", Generation: 1, ResourceSliceCount: 1},
	}}
	if everywhere := true; node == "" {
		s.Spec.AllNodes = &everywhere
	} else {
		s.Spec.NodeName = &node
	}
	return s
}

// right is something that a driver may do, or not.
type right struct {
	what string
	why  string // of the refusal; "" if it is allowed
	do   func() error
}

func checkRights(t *testing.T, list []right) {
	t.Helper()
	for _, c := range list {
		err := c.do()
		switch {
		case c.why == "" && err != nil:
			t.Errorf("%s: %v", c.what, err)
		case c.why != "" && (err == nil || !strings.Contains(err.Error(), c.why) || !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err)):
			t.Errorf("%s: got %v, want a refusal that says %q", c.what, err, c.why)
		}
	}
}

// The driver's pod may do what the driver does, on its own node, and nothing else.
func TestRights(t *testing.T) {
	useCluster(t)
	addNamespace(t, "rights", classes())
	m := addMachine(t, "rights", topology(t, "hgx"), time.Hour)
	addNode(t, "rights-other", nil)
	p := m.tries(t, "rights", "pod")
	claim := claimOf(t, p)
	ctx, dry := t.Context(), []string{meta.DryRunAll}
	theirs, err := admin.ResourceV1().ResourceSlices().Create(ctx, slice(resources.Driver, "rights-other"), meta.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	loose, err := kubernetes.NewForConfig(cluster.Token(token(t, nil)))
	if err != nil {
		t.Fatal(err)
	}
	made := func(c kubernetes.Interface, driver, node string) func() error {
		return func() error {
			_, err := c.ResourceV1().ResourceSlices().Create(ctx, slice(driver, node), meta.CreateOptions{DryRun: dry})
			return err
		}
	}
	d := m.client
	wait(t, "the policy is in force", func() (bool, string) {
		return made(d, resources.Driver, "rights-other")() != nil, "the driver may publish on another node"
	})
	checkRights(t, []right{
		{"read a claim", "", func() error {
			_, err := d.ResourceV1().ResourceClaims("rights").Get(ctx, claim.Name, meta.GetOptions{})
			return err
		}},
		{"read its node", "", func() error {
			_, err := d.CoreV1().Nodes().Get(ctx, m.name, meta.GetOptions{})
			return err
		}},
		{"list slices", "", func() error {
			_, err := d.ResourceV1().ResourceSlices().List(ctx, meta.ListOptions{})
			return err
		}},
		{"publish on its node", "", made(d, resources.Driver, m.name)},
		{"publish on another node", "may not change slices of rights-other", made(d, resources.Driver, "rights-other")},
		{"publish for all nodes", "may not change slices of the whole cluster", made(d, resources.Driver, "")},
		{"publish for another driver", "may not change slices of gpu.nvidia.com", made(d, "gpu.nvidia.com", m.name)},
		{"publish with a token of no pod", "names no node", made(loose, resources.Driver, m.name)},
		{"delete another node's slice", "may not change slices of rights-other", func() error {
			return d.ResourceV1().ResourceSlices().Delete(ctx, theirs.Name, meta.DeleteOptions{DryRun: dry})
		}},
		{"change another node's slice", "may not change slices of rights-other", func() error {
			s := theirs.DeepCopy()
			s.Spec.Pool.Generation++
			_, err := d.ResourceV1().ResourceSlices().Update(ctx, s, meta.UpdateOptions{DryRun: dry})
			return err
		}},
		{"delete all slices", "cannot deletecollection", func() error {
			return d.ResourceV1().ResourceSlices().DeleteCollection(ctx, meta.DeleteOptions{DryRun: dry}, meta.ListOptions{})
		}},
		{"list claims", "cannot list", func() error {
			_, err := d.ResourceV1().ResourceClaims("rights").List(ctx, meta.ListOptions{})
			return err
		}},
		{"change a claim's status", "cannot update", func() error {
			_, err := d.ResourceV1().ResourceClaims("rights").UpdateStatus(ctx, claim, meta.UpdateOptions{DryRun: dry})
			return err
		}},
		{"delete a claim", "cannot delete", func() error {
			return d.ResourceV1().ResourceClaims("rights").Delete(ctx, claim.Name, meta.DeleteOptions{DryRun: dry})
		}},
		{"list nodes", "cannot list", func() error {
			_, err := d.CoreV1().Nodes().List(ctx, meta.ListOptions{})
			return err
		}},
		{"change its node", "cannot patch", func() error {
			_, err := d.CoreV1().Nodes().Patch(ctx, m.name, "application/merge-patch+json", []byte("{}"), meta.PatchOptions{DryRun: dry})
			return err
		}},
		{"read secrets", "cannot list", func() error {
			_, err := d.CoreV1().Secrets("dra-p2p").List(ctx, meta.ListOptions{})
			return err
		}},
		{"make a pod", "cannot create", func() error {
			_, err := d.CoreV1().Pods("dra-p2p").Create(ctx, &core.Pod{ObjectMeta: meta.ObjectMeta{Name: "x"}}, meta.CreateOptions{DryRun: dry})
			return err
		}},
	})
	if err := admin.ResourceV1().ResourceSlices().Delete(ctx, theirs.Name, meta.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	remove(t, p, false)
	m.quiet(t)
}
