// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/gpurdma/gpurdma/deploy/dra/resources"
)

// base is the kustomization that one deploys for pairs, nicsBase that for NICs, listsBase that for NICs with lists; examples are
// the pods to copy from.
var (
	base         = file("deploy/kubernetes/dra")
	examples     = file("deploy/kubernetes/dra/examples")
	nicsBase     = file("deploy/kubernetes/dra-nics")
	nicsExamples = file("deploy/kubernetes/dra-nics/examples")
	listsBase    = file("deploy/kubernetes/dra-nics-lists")
	listExamples = file("deploy/kubernetes/dra-nics-lists/examples")
)

// render returns the objects of a kustomization, as `kubectl kustomize` prints them.
func render(t *testing.T, dir string) (list []*unstructured.Unstructured) {
	t.Helper()
	all, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all.Resources() {
		text, err := r.MarshalJSON()
		o := &unstructured.Unstructured{}
		if err == nil {
			err = json.Unmarshal(text, &o.Object)
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, o)
	}
	return list
}

// apply applies an object on the server's side, as `kubectl apply --server-side` does. A field that the API does not
// have is an error. With dry the server does all but keep it.
func apply(ctx context.Context, o *unstructured.Unstructured, dry bool) error {
	known, err := discovery.NewDiscoveryClientForConfig(cluster.Admin())
	if err != nil {
		return err
	}
	groups, err := restmapper.GetAPIGroupResources(known)
	if err != nil {
		return err
	}
	kind := o.GroupVersionKind()
	mapping, err := restmapper.NewDiscoveryRESTMapper(groups).RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(cluster.Admin())
	if err != nil {
		return err
	}
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	how := meta.PatchOptions{FieldManager: "test", FieldValidation: meta.FieldValidationStrict}
	if dry {
		how.DryRun = []string{meta.DryRunAll}
	}
	_, err = client.Resource(mapping.Resource).Namespace(o.GetNamespace()).Patch(ctx, o.GetName(), types.ApplyPatchType, text, how)
	return err
}

// accepted counts the objects of kustomizations by their kind. The API server takes each of them as it is.
func accepted(t *testing.T, dirs ...string) map[string]int {
	t.Helper()
	kinds := map[string]int{}
	for _, dir := range dirs {
		for _, o := range render(t, dir) {
			kinds[o.GetKind()]++
			if err := apply(t.Context(), o, true); err != nil {
				t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
			}
			if err := unstructured.SetNestedField(o.Object, "x", "spec", "noSuchField"); err != nil {
				t.Fatal(err)
			}
			if err := apply(t.Context(), o, true); err == nil {
				t.Errorf("%s %s: a field that no object has is taken", o.GetKind(), o.GetName())
			}
		}
	}
	return kinds
}

// The API server takes each object of the base and of the examples as it is.
func TestManifestsAccepted(t *testing.T) {
	useCluster(t)
	kinds := accepted(t, base, examples)
	for kind, want := range map[string]int{
		"Namespace": 1, "ServiceAccount": 1, "ClusterRole": 1, "ClusterRoleBinding": 1, "ValidatingAdmissionPolicy": 1,
		"ValidatingAdmissionPolicyBinding": 1, "DaemonSet": 1, "DeviceClass": 6, "ResourceClaimTemplate": 2, "ResourceClaim": 1, "Pod": 3,
	} {
		if kinds[kind] != want {
			t.Errorf("%d of kind %s, want %d", kinds[kind], kind, want)
		}
	}
	if files, err := filepath.Glob(filepath.Join(base, "*.yaml")); err != nil || len(files) != 6 {
		t.Errorf("%d files, %v: are all of them in the kustomization?", len(files), err)
	}
	if files, err := filepath.Glob(filepath.Join(examples, "*.yaml")); err != nil || len(files) != 4 {
		t.Errorf("%d examples, %v: are all of them in the kustomization?", len(files), err)
	}
}

// The pods of the examples get what they ask for, and the policy's expressions have no mistakes of types.
func TestExamples(t *testing.T) {
	useCluster(t)
	m := addMachine(t, "examples", topology(t, "oci-bm-gpu-h100-8"), time.Hour) // 8 GPUs, 16 NICs
	m2 := addMachine(t, "examples-2", topology(t, "dgx-h100"), time.Hour)
	wait(t, "the service account", func() (bool, string) {
		_, err := admin.CoreV1().ServiceAccounts("default").Get(t.Context(), "default", meta.GetOptions{})
		return err == nil, fmt.Sprint(err)
	})
	var pods []*core.Pod
	for _, o := range render(t, examples) {
		if err := apply(t.Context(), o, false); err != nil {
			t.Fatal(err)
		}
		if o.GetKind() == "Pod" {
			pods = append(pods, get(t, &core.Pod{ObjectMeta: meta.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName()}}))
		}
	}
	for _, p := range pods {
		placed(t, p, true)
		on := m
		if get(t, p).Spec.NodeName == m2.name {
			on = m2
		}
		runs(t, p, on)
		want := map[string]int{"pair": 1, "eight-pairs": 8, "two-pairs": 2}[p.Name]
		if got := devicesOf(t, p); len(got) != 1 || len(on.known(t, got[0])) != want {
			t.Errorf("%s has %v, want %d pairs", p.Name, got, want)
		}
	}
	given(t, m)
	given(t, m2)
	policy, err := admin.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(t.Context(), "dra-p2p-own-slices", meta.GetOptions{})
	if err != nil || policy.Status.TypeChecking == nil || len(policy.Status.TypeChecking.ExpressionWarnings) > 0 {
		t.Errorf("%+v, %v", policy.Status, err)
	}
	for _, p := range pods {
		remove(t, p, false)
	}
	for _, o := range render(t, examples) {
		if o.GetKind() == "ResourceClaim" {
			if err := admin.ResourceV1().ResourceClaims(o.GetNamespace()).Delete(t.Context(), o.GetName(), meta.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		}
	}
	m.quiet(t)
	m2.quiet(t)
}

// With an overlay a site puts its image into the base, or into what is made of the base.
func TestOverlay(t *testing.T) {
	above := t.TempDir()
	if err := os.CopyFS(filepath.Join(above, "kubernetes"), os.DirFS(file("deploy/kubernetes"))); err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile(file("docs/how-to/dra-pairs.md"))
	if err != nil {
		t.Fatal(err)
	}
	digest := "sha256:" + strings.Repeat("1", 64)
	_, text, _ := bytes.Cut(doc, []byte("<!-- overlay -->\n"))
	text, _, found := bytes.Cut(text, []byte("\n<!-- -->"))
	if !found {
		t.Fatal("docs/how-to/dra-pairs.md has no overlay")
	}
	for _, name := range []string{"dra", "dra-nics", "dra-nics-lists"} {
		dir := filepath.Join(above, "overlay-"+name)
		overlay := strings.NewReplacer("\n    ", "\n", "github.com/gpurdma/gpurdma/deploy/kubernetes/dra", "../kubernetes/"+name, "sha256:DIGEST", digest, "REGISTRY", "registry.test:5000").Replace("\n" + string(text))
		err := os.Mkdir(dir, 0o755)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(overlay), 0o600)
		}
		if err != nil || !strings.Contains(overlay, digest) {
			t.Fatalf("%q, %v", overlay, err)
		}
		text, err := json.Marshal(one[apps.DaemonSet](t, render(t, dir), "DaemonSet", "dra-p2p"))
		if err != nil || !bytes.Contains(text, []byte(`"registry.test:5000/dra-p2p@`+digest+`"`)) {
			t.Errorf("%s: %s, %v", name, text, err)
		}
	}
}

// The driver's pod has the privileges and the paths that docs/how-to/dra-pairs.md gives a reason for, and no others.
func TestLeastPrivilege(t *testing.T) {
	doc, err := os.ReadFile(file("docs/how-to/dra-pairs.md"))
	if err != nil {
		t.Fatal(err)
	}
	set := one[apps.DaemonSet](t, render(t, base), "DaemonSet", "dra-p2p")
	named := func(what string) {
		if !strings.Contains(string(doc), "`"+what+"`") {
			t.Errorf("docs/how-to/dra-pairs.md does not say what `%s` is for", what)
		}
	}
	pod := &set.Spec.Template.Spec
	c := &pod.Containers[0]
	s := c.SecurityContext
	if pod.HostNetwork || pod.HostPID || pod.HostIPC || *s.Privileged || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem ||
		!slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}) || pod.SecurityContext.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault {
		t.Errorf("%+v, %+v", pod, s)
	}
	for _, name := range s.Capabilities.Add {
		named(string(name))
	}
	writable := []string{"/var/lib/kubelet/plugins_registry", "/var/lib/kubelet/plugins/" + resources.Driver, "/var/run/cdi"}
	for _, mount := range c.VolumeMounts {
		i := slices.IndexFunc(pod.Volumes, func(v core.Volume) bool { return v.Name == mount.Name })
		if i < 0 || pod.Volumes[i].HostPath == nil {
			t.Fatalf("%s is no volume of the host", mount.Name)
		}
		host := pod.Volumes[i].HostPath.Path
		named(host)
		if at := mount.MountPath; at != host && (at != "/host"+host || !slices.Contains(c.Args, "--dev-dir="+at)) {
			t.Errorf("%s is %s in the pod: the driver looks for it in its own place", host, at)
		}
		if mount.ReadOnly == slices.Contains(writable, host) {
			t.Errorf("%s is read-only: %v", host, mount.ReadOnly)
		}
	}
	if len(c.VolumeMounts) != len(pod.Volumes) {
		t.Errorf("%d mounts of %d volumes", len(c.VolumeMounts), len(pod.Volumes))
	}
	for _, want := range []string{"NODE_NAME", "POD_UID"} {
		if !slices.ContainsFunc(c.Env, func(e core.EnvVar) bool { return e.Name == want && e.ValueFrom.FieldRef != nil }) {
			t.Errorf("no %s", want)
		}
	}
	if u := set.Spec.UpdateStrategy.RollingUpdate; u.MaxSurge.IntValue() != 1 || u.MaxUnavailable.IntValue() != 0 {
		t.Errorf("%+v", u)
	}
}
