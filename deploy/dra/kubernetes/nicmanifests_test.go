// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// The API server takes each object of the kustomization for NICs, and its pods get what they ask for.
func TestNICManifestsAccepted(t *testing.T) {
	ofNICs.use(t)
	kinds := accepted(t, nicsBase, nicsExamples)
	for kind, want := range map[string]int{
		"Namespace": 1, "ServiceAccount": 1, "ClusterRole": 2, "ClusterRoleBinding": 2, "ValidatingAdmissionPolicy": 2,
		"ValidatingAdmissionPolicyBinding": 2, "DaemonSet": 1, "DeviceClass": 2, "ResourceClaimTemplate": 3, "Pod": 3,
	} {
		if kinds[kind] != want {
			t.Errorf("%d of kind %s, want %d", kinds[kind], kind, want)
		}
	}
	for dir, want := range map[string]int{nicsBase: 6, nicsExamples: 4, listsBase: 2, listExamples: 2} {
		if files, err := filepath.Glob(filepath.Join(dir, "*.yaml")); err != nil || len(files) != want {
			t.Errorf("%s: %d files, %v: are all of them in the kustomization?", dir, len(files), err)
		}
	}
	m := addBeside(t, "nic-examples", topology(t, "dgx-h100"), time.Hour, false)
	runExamples(t, nicsExamples, m, map[string]int{"gpu-and-nic": 1, "by-root": 1, "two-and-two": 2})
	m.refusalsOnly(t)
	for _, name := range []string{"dra-p2p-own-slices", "dra-p2p-own-answers"} {
		policy, err := admin.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(t.Context(), name, meta.GetOptions{})
		if err != nil || policy.Status.TypeChecking == nil || len(policy.Status.TypeChecking.ExpressionWarnings) > 0 {
			t.Errorf("%s: %+v, %v", name, policy.Status, err)
		}
	}
}

// one returns the object of a kind and a name.
func one[T any](t *testing.T, list []*unstructured.Unstructured, kind, name string) (x T) {
	t.Helper()
	i := slices.IndexFunc(list, func(o *unstructured.Unstructured) bool { return o.GetKind() == kind && o.GetName() == name })
	if i < 0 {
		t.Fatalf("no %s %s", kind, name)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(list[i].Object, &x, true); err != nil {
		t.Fatal(err)
	}
	return x
}

// The driver's pod has the privileges of that for pairs, and of the API the rights that docs/how-to/dra-nics.md gives a reason for, and
// no others.
func TestNICLeastPrivilege(t *testing.T) {
	doc, err := os.ReadFile(file("docs/how-to/dra-nics.md"))
	if err != nil {
		t.Fatal(err)
	}
	section := string(doc)
	pairs, nics, lists := render(t, base), render(t, nicsBase), render(t, listsBase)
	was := one[apps.DaemonSet](t, pairs, "DaemonSet", "dra-p2p")
	for args, now := range map[string]apps.DaemonSet{
		"[--dev-dir=/host/dev --publish=nics]":         one[apps.DaemonSet](t, nics, "DaemonSet", "dra-p2p"),
		"[--dev-dir=/host/dev --publish=nics --lists]": one[apps.DaemonSet](t, lists, "DaemonSet", "dra-p2p"),
	} {
		c := &now.Spec.Template.Spec.Containers[0]
		if fmt.Sprint(c.Args) != args {
			t.Errorf("%v, want %s", c.Args, args)
		}
		c.Args = was.Spec.Template.Spec.Containers[0].Args
		if !equality.Semantic.DeepEqual(was, now) {
			t.Errorf("the DaemonSets differ in more than their arguments: %+v, %+v", was, now)
		}
	}
	if !equality.Semantic.DeepEqual(one[rbac.ClusterRole](t, pairs, "ClusterRole", "dra-p2p"), one[rbac.ClusterRole](t, nics, "ClusterRole", "dra-p2p")) {
		t.Error("the role that both have differs")
	}
	for _, r := range one[rbac.ClusterRole](t, nics, "ClusterRole", "dra-p2p-nics").Rules {
		for _, resource := range r.Resources {
			row := "| `" + strings.Join(r.Verbs, "`, `") + "` of `" + resource + "` |"
			if !strings.Contains(section, row) {
				t.Errorf("docs/how-to/dra-nics.md does not say what this is for: %s", row)
			}
		}
	}
	if rows := strings.Count(section, "` of `resourceclaims"); rows != 3 {
		t.Errorf("docs/how-to/dra-nics.md has %d rights, want 3", rows)
	}
	// The document has the claim of the example.
	for _, line := range []string{"deviceClassName: nic.p2p.gpurdma.github.io", "matchAttribute: p2p.gpurdma.github.io/partners", "pciBusID'}"} {
		text, err := os.ReadFile(filepath.Join(listExamples, "by-list.yaml"))
		if err != nil || !strings.Contains(string(text), line) || !strings.Contains(section, line) {
			t.Errorf("%q is not in the example and in docs/how-to/dra-nics.md; %v", line, err)
		}
	}
}

// The program itself, with the arguments and the rights of the DaemonSet's pod, publishes NICs and answers the scheduler.
func TestNICCommand(t *testing.T) {
	ofNICs.use(t)
	w := addWay(t, byAnswers("nic-command"))
	addGPUClass(t)
	m := addTree(t, "nic-command", "dgx-h100")
	m.startGPUs(t)
	args := slices.DeleteFunc(slices.Clone(m.pod.Spec.Containers[0].Args), func(a string) bool { return strings.HasPrefix(a, "--dev-dir=") })
	if len(args) != 1 {
		t.Errorf("the DaemonSet's pod has the arguments %q", m.pod.Spec.Containers[0].Args)
	}
	d := m.run(t, m.pod.UID, args...)
	p := w.pod(t, m, "first", "")
	w.arrives(t, m, p)
	d.end(t) // while a pod waits for it
	q := w.pod(t, m, "second", "")
	wait(t, "the second pod has devices", func() (bool, string) {
		c := get(t, q).Status.ResourceClaimStatuses
		return len(c) == 1 && c[0].ResourceClaimName != nil && claimOf(t, q).Status.Allocation != nil, fmt.Sprint(get(t, q).Status)
	})
	if agreed(claimOf(t, q)) || get(t, q).Spec.NodeName != "" {
		t.Error("the second pod has an answer, and no driver runs")
	}
	d = m.run(t, m.pod.UID, args...)
	w.arrives(t, m, q)
	remove(t, p, false)
	remove(t, q, false)
	if left := m.specifications(t); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
	d.end(t)
	if strings.Contains(d.log.String(), "level=ERROR") {
		t.Errorf("the driver said:\n%s", &d.log)
	}
}
