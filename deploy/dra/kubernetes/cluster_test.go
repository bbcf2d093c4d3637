// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	api "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gpurdma/gpurdma/deploy/dra/kubernetes/controlplane"
)

// patience is how long anything may take on a busy machine. No test is about time.
const patience = 4 * time.Minute

// The control plane of the test that runs, and a client that may do everything there.
var (
	cluster *controlplane.Cluster
	admin   kubernetes.Interface
)

// useCluster takes the control plane in which the driver publishes pairs.
func useCluster(t *testing.T) {
	t.Helper()
	ofPairs.use(t)
}

// wait waits until ok returns true. It fails the test with what ok said last.
func wait(t *testing.T, what string, ok func() (bool, string)) {
	t.Helper()
	end := time.Now().Add(patience)
	for {
		done, last := ok()
		if done {
			return
		}
		if err := cluster.Check(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if time.Now().After(end) || t.Context().Err() != nil {
			t.Fatalf("%s: not within %v: %s", what, patience, last)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// addNode adds a node, as its kubelet would, until the test ends.
func addNode(t *testing.T, name string, labels map[string]string) {
	t.Helper()
	all := map[string]string{"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
	for k, v := range labels {
		all[k] = v
	}
	nodes := admin.CoreV1().Nodes()
	n, err := nodes.Create(t.Context(), &core.Node{ObjectMeta: meta.ObjectMeta{Name: name, Labels: all}}, meta.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := nodes.Delete(context.Background(), name, meta.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	n.Status.Conditions = []core.NodeCondition{{Type: core.NodeReady, Status: core.ConditionTrue}}
	n.Status.Allocatable = core.ResourceList{"cpu": resource.MustParse("1k"), "memory": resource.MustParse("1Ti"), "pods": resource.MustParse("1000")}
	n.Status.Capacity = n.Status.Allocatable
	if n, err = nodes.UpdateStatus(t.Context(), n, meta.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	n.Spec.Taints = nil // "not ready", which another controller takes away from nodes that are
	if _, err = nodes.Update(t.Context(), n, meta.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// addNamespace adds a namespace with templates of claims, one for each class: "pair", "pairs-8".
func addNamespace(t *testing.T, name string, templates map[string]api.ResourceClaimSpec) {
	t.Helper()
	if _, err := admin.CoreV1().Namespaces().Create(t.Context(), &core.Namespace{ObjectMeta: meta.ObjectMeta{Name: name}}, meta.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for template, spec := range templates {
		addTemplate(t, name, template, spec)
	}
	wait(t, "the service account of "+name, func() (bool, string) {
		_, err := admin.CoreV1().ServiceAccounts(name).Get(t.Context(), "default", meta.GetOptions{})
		return err == nil, fmt.Sprint(err)
	})
}

func addTemplate(t *testing.T, namespace, name string, claim api.ResourceClaimSpec) {
	t.Helper()
	if _, err := admin.ResourceV1().ResourceClaimTemplates(namespace).Create(t.Context(), &api.ResourceClaimTemplate{
		ObjectMeta: meta.ObjectMeta{Name: name}, Spec: api.ResourceClaimTemplateSpec{Spec: claim},
	}, meta.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// ofClass asks for one device of a class of deploy/kubernetes/dra/classes.yaml: "pair", "pairs-8".
func ofClass(class string) api.ResourceClaimSpec {
	return api.ResourceClaimSpec{Devices: api.DeviceClaim{Requests: []api.DeviceRequest{{
		Name: "r", Exactly: &api.ExactDeviceRequest{DeviceClassName: class + ".p2p.gpurdma.github.io"},
	}}}}
}

// classes are templates of all sizes of pairs.
func classes() map[string]api.ResourceClaimSpec {
	return map[string]api.ResourceClaimSpec{"pair": ofClass("pair"), "pairs-2": ofClass("pairs-2"), "pairs-4": ofClass("pairs-4"), "pairs-8": ofClass("pairs-8"), "pairs-16": ofClass("pairs-16")}
}

// newPod makes a pod with a claim of a template. node is where it has to be; "" is anywhere.
func newPod(namespace, name, template, node string) *core.Pod {
	p := &core.Pod{
		ObjectMeta: meta.ObjectMeta{Namespace: namespace, Name: name},
		Spec: core.PodSpec{
			ResourceClaims: []core.PodResourceClaim{{Name: "c", ResourceClaimTemplateName: &template}},
			Containers:     []core.Container{{Name: "job", Image: "registry.example/job", Resources: core.ResourceRequirements{Claims: []core.ResourceClaim{{Name: "c"}}}}},
		},
	}
	if node != "" {
		p.Spec.NodeSelector = map[string]string{"kubernetes.io/hostname": node}
	}
	return p
}

func create(t *testing.T, p *core.Pod) *core.Pod {
	t.Helper()
	p, err := admin.CoreV1().Pods(p.Namespace).Create(t.Context(), p, meta.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// placed waits until the scheduler has answered, and reports whether it has placed the pod. If the answer has to be
// yes, it waits until it is.
func placed(t *testing.T, p *core.Pod, must bool) (ok bool) {
	t.Helper()
	wait(t, "pod "+p.Name+" is placed", func() (bool, string) {
		now, why := get(t, p), "the scheduler has not answered"
		for _, c := range now.Status.Conditions {
			if c.Type == core.PodScheduled && c.Status == core.ConditionFalse {
				why = c.Reason + ": " + c.Message
			}
		}
		ok = now.Spec.NodeName != ""
		return ok || !must && why[0] == 'U', why // "Unschedulable"
	})
	return ok
}

func get(t *testing.T, p *core.Pod) *core.Pod {
	t.Helper()
	now, err := admin.CoreV1().Pods(p.Namespace).Get(t.Context(), p.Name, meta.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return now
}

// runs waits until a pod runs.
func runs(t *testing.T, p *core.Pod, on *machine) {
	t.Helper()
	wait(t, "pod "+p.Name+" runs", func() (bool, string) {
		now := get(t, p)
		return now.Status.Phase == core.PodRunning, fmt.Sprint(now.Spec.NodeName, now.Status.Conditions, on.kubelet.Refused(p.UID))
	})
}

// claimOf returns the claim of a pod.
func claimOf(t *testing.T, p *core.Pod) *api.ResourceClaim {
	t.Helper()
	now := get(t, p)
	if name := now.Spec.ResourceClaims[0].ResourceClaimName; name != nil {
		now.Status.ResourceClaimStatuses = []core.PodResourceClaimStatus{{ResourceClaimName: name}}
	}
	if len(now.Status.ResourceClaimStatuses) != 1 || now.Status.ResourceClaimStatuses[0].ResourceClaimName == nil {
		t.Fatalf("%s has the claims %v", p.Name, now.Status.ResourceClaimStatuses)
	}
	c, err := admin.ResourceV1().ResourceClaims(p.Namespace).Get(t.Context(), *now.Status.ResourceClaimStatuses[0].ResourceClaimName, meta.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// devicesOf returns the names of the devices of a pod.
func devicesOf(t *testing.T, p *core.Pod) (list []string) {
	t.Helper()
	c := claimOf(t, p)
	if c.Status.Allocation == nil {
		t.Fatalf("claim %s has no devices", c.Name)
	}
	for _, r := range c.Status.Allocation.Devices.Results {
		list = append(list, r.Device)
	}
	return list
}

// remove deletes a pod, and waits until it and its claim are gone. With force no kubelet takes part.
func remove(t *testing.T, p *core.Pod, force bool) {
	t.Helper()
	o := meta.DeleteOptions{}
	if now := int64(0); force {
		o.GracePeriodSeconds = &now
	}
	if err := admin.CoreV1().Pods(p.Namespace).Delete(t.Context(), p.Name, o); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	wait(t, "pod "+p.Name+" ends", func() (bool, string) {
		_, err := admin.CoreV1().Pods(p.Namespace).Get(t.Context(), p.Name, meta.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return false, fmt.Sprint("the pod is there, ", err)
		}
		all, err := admin.ResourceV1().ResourceClaims(p.Namespace).List(t.Context(), meta.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		for _, c := range all.Items {
			if len(c.OwnerReferences) > 0 && c.OwnerReferences[0].UID == p.UID {
				return false, "its claim is there"
			}
		}
		return true, ""
	})
}

// file is a file of the repository.
func file(name string) string { return filepath.Join("..", "..", "..", name) }
