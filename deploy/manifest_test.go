// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// zeros is the digest that no image has.
var zeros = strings.Repeat("0", 64)

// manifest reads the manifest by Kubernetes' own types. A field that they do not have
// is an error, as it is for kubectl.
func manifest(t *testing.T) (*corev1.Namespace, *appsv1.DaemonSet) {
	t.Helper()
	text, err := os.ReadFile("kubernetes/p2pcheck.yaml")
	if err != nil {
		t.Fatal(err)
	}
	documents := bytes.Split(text, []byte("\n---\n"))
	if len(documents) != 2 {
		t.Fatalf("%d documents", len(documents))
	}
	var space corev1.Namespace
	var set appsv1.DaemonSet
	for i, into := range []any{&space, &set} {
		if err := yaml.UnmarshalStrict(documents[i], into); err != nil {
			t.Fatal(err)
		}
	}
	return &space, &set
}

// container is the only one of the DaemonSet.
func container(t *testing.T, set *appsv1.DaemonSet) *corev1.Container {
	t.Helper()
	pod := &set.Spec.Template.Spec
	if len(pod.Containers) != 1 || len(pod.InitContainers) != 0 {
		t.Fatalf("%d containers", len(pod.Containers))
	}
	return &pod.Containers[0]
}

// The parts of the manifest fit together, as the API server wants them to.
func TestManifest(t *testing.T) {
	space, set := manifest(t)
	if space.Kind != "Namespace" || space.APIVersion != "v1" || set.Kind != "DaemonSet" || set.APIVersion != "apps/v1" || set.Namespace != space.Name {
		t.Errorf("%s %s, %s %s in %s", space.APIVersion, space.Kind, set.APIVersion, set.Kind, set.Namespace)
	}
	for key, value := range set.Spec.Selector.MatchLabels {
		if set.Spec.Template.Labels[key] != value {
			t.Errorf("the selector's %s=%s is no label of the pods", key, value)
		}
	}
	pod, c := &set.Spec.Template.Spec, container(t, set)
	operators := []corev1.NodeSelectorOperator{corev1.NodeSelectorOpIn, corev1.NodeSelectorOpExists}
	for _, term := range pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, e := range term.MatchExpressions {
			if !slices.Contains(operators, e.Operator) || (e.Operator == corev1.NodeSelectorOpExists) != (len(e.Values) == 0) {
				t.Errorf("%+v", e)
			}
		}
	}
	for _, want := range []string{"nvidia.com/gpu", "amd.com/gpu"} {
		if !slices.ContainsFunc(pod.Tolerations, func(x corev1.Toleration) bool {
			return x.Key == want && x.Operator == corev1.TolerationOpExists && x.Effect == corev1.TaintEffectNoSchedule && x.Value == ""
		}) {
			t.Errorf("a node with the taint %s is left out", want)
		}
	}
	for _, p := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
		if p == nil || p.HTTPGet == nil || p.HTTPGet.Path != "/healthz" || !slices.ContainsFunc(c.Ports, func(port corev1.ContainerPort) bool { return port.Name == p.HTTPGet.Port.StrVal }) {
			t.Errorf("%+v", p)
		}
	}
	if c.Ports[0].ContainerPort != 9838 || !slices.Contains(c.Args, "--listen=:9838") || set.Spec.Template.Annotations["prometheus.io/port"] != "9838" {
		t.Errorf("%+v %q", c.Ports, c.Args)
	}
}

// Each privilege is one that docs/how-to/kubernetes.md gives a reason for.
func TestLeastPrivilege(t *testing.T) {
	_, set := manifest(t)
	pod, c := &set.Spec.Template.Spec, container(t, set)
	if pod.HostNetwork || pod.HostPID || pod.HostIPC || *pod.AutomountServiceAccountToken || pod.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("%+v", pod)
	}
	s := c.SecurityContext
	if *s.Privileged || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) {
		t.Errorf("%+v", s)
	}
	doc, err := os.ReadFile("../docs/how-to/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	named := func(what string) {
		if !strings.Contains(string(doc), "`"+what+"`") {
			t.Errorf("docs/how-to/kubernetes.md does not say what `%s` is for", what)
		}
	}
	// A user who runs p2pcheck by hand skips the same checks.
	report, err := os.ReadFile("../docs/how-to/fleet-report.md")
	if skip := skipped(c.Args); err != nil || !strings.Contains(string(report), "--skip "+skip+" ") {
		t.Errorf("docs/how-to/fleet-report.md has no --skip %s; %v", skip, err)
	}
	for _, name := range s.Capabilities.Add {
		named(string(name))
	}
	if len(c.VolumeMounts) != len(pod.Volumes) {
		t.Errorf("%d mounts of %d volumes", len(c.VolumeMounts), len(pod.Volumes))
	}
	writable := 0
	for _, m := range hostMounts(t, set) {
		named(m.Source)
		if !m.ReadOnly {
			writable++
		}
	}
	if writable != 1 {
		t.Errorf("%d places can be written to", writable)
	}
}

// hostMounts are the mounts of the manifest.
func hostMounts(t *testing.T, set *appsv1.DaemonSet) []mount {
	t.Helper()
	var out []mount
	for _, m := range container(t, set).VolumeMounts {
		i := slices.IndexFunc(set.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		if i < 0 || set.Spec.Template.Spec.Volumes[i].HostPath == nil {
			t.Fatalf("%s is no volume of the host", m.Name)
		}
		host := set.Spec.Template.Spec.Volumes[i].HostPath
		if host.Path != m.MountPath {
			t.Errorf("%s is %s in the pod: p2pcheck looks for it in its own place", host.Path, m.MountPath)
		}
		if m.ReadOnly != (m.RecursiveReadOnly != nil && *m.RecursiveReadOnly == corev1.RecursiveReadOnlyIfPossible) {
			t.Errorf("%+v", m)
		}
		out = append(out, mount{Source: host.Path, Target: m.MountPath, ReadOnly: m.ReadOnly})
	}
	return out
}

// images are the images that a text of YAML or JSON names.
var images = regexp.MustCompile(`(?m)^[\s\-{"]*image"?:\s*"?([^\s",}#]+)`)

// byDigest is an image by its digest alone: a tag beside it would be taken for what counts.
var byDigest = regexp.MustCompile(`^[^:@]+(:[0-9]+)?/[^:@]+@sha256:([0-9a-f]{64})$`)

// Nothing here names an image by what it is called today, and what is in the repository
// cannot be deployed by mistake: no image has been published.
func TestImagesByDigest(t *testing.T) {
	n := 0
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(name) == ".go" {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		found := images.FindAllSubmatch(text, -1)
		if base := strings.ToLower(filepath.Base(name)); strings.Contains(base, "containerfile") || strings.Contains(base, "dockerfile") {
			found = regexp.MustCompile(`(?m)^FROM\s+(\S+)`).FindAllSubmatch(text, -1)
		}
		for _, image := range found {
			n++
			m := byDigest.FindSubmatch(image[1])
			if m == nil {
				t.Errorf("%s: %s is not by a digest alone", name, image[1])
				continue
			}
			if registry, _, _ := strings.Cut(string(image[1]), "/"); !strings.HasSuffix(registry, ".example") || strings.Trim(string(m[2]), "0") != "" {
				t.Errorf("%s: %s could be pulled", name, image[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n == 0 {
		t.Error("no image is named")
	}
	for _, text := range []string{"image: a.example/p", "image: a.example/p:latest", "- image: a.example/p:v1@sha256:" + zeros, `{"image": "a.example/p@sha256:1"}`, "  image: p@sha256:" + zeros} {
		if m := images.FindStringSubmatch(text); m == nil || byDigest.MatchString(m[1]) {
			t.Errorf("%s: %q is let through", text, m)
		}
	}
}

// The manifest that is written has the digest that a registry knows the image by, and
// differs from that of the repository in nothing else.
func TestManifestOfImage(t *testing.T) {
	dir := t.TempDir()
	tree, archive := filepath.Join(dir, "tree"), filepath.Join(dir, "image.tar")
	if err := os.MkdirAll(tree, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(tree, "program"), []byte("program"), 0o755); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "go", append([]string{"run"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	_, said, _ := strings.Cut(strings.TrimSpace(run("./cmd/oci-image", "-o", archive, "linux/amd64="+tree, "linux/arm64="+tree)), " ")
	run("./cmd/manifests", "-archive", archive, "-image", "registry.test:5000/tools/p2pcheck", "-o", dir, "kubernetes/p2pcheck.yaml")
	written, err := os.ReadFile(filepath.Join(dir, "p2pcheck.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	ours, err := os.ReadFile("kubernetes/p2pcheck.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, set := manifest(t)
	image := "registry.test:5000/tools/p2pcheck@" + said
	if want := strings.Replace(string(ours), container(t, set).Image, image, 1); string(written) != want || !byDigest.MatchString(image) || strings.HasSuffix(image, zeros) {
		t.Errorf("%s: got\n%s", image, written)
	}
}
