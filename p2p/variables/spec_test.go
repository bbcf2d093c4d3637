// SPDX-License-Identifier: Apache-2.0

package variables

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"testing"
)

// The forms are those of the OCI runtime specification (config.md), of Kubernetes' API
// (Pod v1, PodTemplateSpec) and of docker inspect.
const (
	ociSpec    = `{"ociVersion":"1.1.0","process":{"args":["sh"],"env":["PATH=/bin","NCCL_NET_GDR_C2C=0","A=b=c","NCCL_NET_GDR_C2C=1","EMPTY=","NOVALUE"]},"root":{"path":"rootfs"}}`
	dockerSpec = `[{"Id":"4f","Name":"/trainer","Config":{"Hostname":"x","Env":["UCX_TLS=^gga_mlx5","FI_PROVIDER=efa"]},"State":{"Pid":12}}]`
	podSpecs   = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"job-0"},"spec":{
		"initContainers":[{"name":"wait","image":"i"}],
		"containers":[
			{"name":"trainer","env":[{"name":"RANK","value":"3"},{"name":"NCCL_IB_HCA","value":"mlx5_$(RANK)"},{"name":"KEEP","value":"$(NONE)$$(RANK)$"},
				{"name":"NODE","valueFrom":{"fieldRef":{"fieldPath":"spec.nodeName"}}}],"envFrom":[{"configMapRef":{"name":"nccl"}}]},
			{"name":"sidecar","env":[{"name":"UCX_TLS","value":"tcp"}]}]}}`
	listSpec = `{"kind":"List","items":[
		{"kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"main","env":[{"name":"X","value":"1"}]}]}},
		{"kind":"Pod","metadata":{"name":"b"},"spec":{"containers":[{"name":"main","env":[{"name":"X","value":"2"}]}]}}]}`
	deploymentSpec = `{"kind":"Deployment","metadata":{"name":"d"},"spec":{"replicas":2,"template":{"metadata":{},"spec":{"containers":[{"name":"main","env":[{"name":"X","value":"3"}]}]}}}}`
	cronJobSpec    = `{"kind":"CronJob","spec":{"jobTemplate":{"spec":{"template":{"spec":{"containers":[{"name":"main","env":[{"name":"X","value":"4"}]}]}}}}}}`
)

func TestFromSpec(t *testing.T) {
	for _, c := range []struct {
		what, spec, name string
		want             map[string]string
		err              string
	}{
		{what: "OCI", spec: ociSpec, want: map[string]string{"PATH": "/bin", "NCCL_NET_GDR_C2C": "1", "A": "b=c", "EMPTY": ""}},
		{what: "docker", spec: dockerSpec, want: map[string]string{"UCX_TLS": "^gga_mlx5", "FI_PROVIDER": "efa"}},
		{what: "docker by name", spec: dockerSpec, name: "trainer", want: map[string]string{"UCX_TLS": "^gga_mlx5", "FI_PROVIDER": "efa"}},
		{what: "pod", spec: podSpecs, name: "trainer", want: map[string]string{"RANK": "3", "NCCL_IB_HCA": "mlx5_3", "KEEP": "$(NONE)$(RANK)$"}},
		{what: "another container", spec: podSpecs, name: "sidecar", want: map[string]string{"UCX_TLS": "tcp"}},
		{what: "a container without variables", spec: podSpecs, name: "wait", want: map[string]string{}},
		{what: "no name, several containers", spec: podSpecs, err: "wait, trainer, sidecar"},
		{what: "no such name", spec: podSpecs, name: "train", err: `"train"`},
		{what: "list", spec: listSpec, name: "b/main", want: map[string]string{"X": "2"}},
		{what: "list, several fit", spec: listSpec, name: "main", err: "a/main, b/main"},
		{what: "deployment", spec: deploymentSpec, want: map[string]string{"X": "3"}},
		{what: "cron job", spec: cronJobSpec, want: map[string]string{"X": "4"}},
		{what: "process without variables", spec: `{"process":{}}`, want: map[string]string{}},
		{what: "a list with other values", spec: `[1,null,"x",{"process":{"env":["A=b"]}}]`, want: map[string]string{"A": "b"}},
		{what: "a service", spec: `{"kind":"Service","spec":{"ports":[]}}`, err: "no container"},
		{what: "an empty list", spec: `[]`, err: "no container"},
		{what: "nothing", spec: ``, err: "not the JSON"},
		{what: "null", spec: `null`, err: "no container"},
		{what: "YAML", spec: "apiVersion: v1\nkind: Pod\n", err: "kubectl get pod NAME -o json"},
		{what: "cut short", spec: podSpecs[:200], err: "not the JSON"},
		{what: "other types", spec: `{"process":{"env":{"A":"b"}}}`, err: "not the JSON"},
		{what: "values that are no strings", spec: `{"process":{"env":[1,2]}}`, err: "not the JSON"},
		{what: "lists in lists", spec: strings.Repeat("[", 1000) + strings.Repeat("]", 1000), err: "no container"},
		{what: "depth", spec: strings.Repeat(`{"spec":`, 100000), err: "not the JSON"},
		{what: "items in items", spec: `{"items":[{"items":[{"process":{"env":["A=b"]}}]}]}`, err: "no container"},
		{what: "names that no environment has", spec: `{"process":{"env":["=x","A\u0000B=1","C=1\u00002","D=3"]}}`, want: map[string]string{"D": "3"}},
	} {
		got, err := FromSpec(strings.NewReader(c.spec), c.name)
		switch {
		case c.err == "" && (err != nil || !maps.Equal(got, c.want)):
			t.Errorf("%s: %q, %v; want %q", c.what, got, err, c.want)
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%s: %q, %v; want an error with %q", c.what, got, err, c.err)
		}
	}
}

func TestUnreadVariables(t *testing.T) {
	all, err := Containers(strings.NewReader(podSpecs))
	if err != nil || len(all) != 3 {
		t.Fatalf("%+v, %v", all, err)
	}
	if got := strings.Join(all[1].Unread, " "); got != "envFrom NODE" {
		t.Errorf("unread: %q", got)
	}
	again := `{"spec":{"containers":[{"name":"c","env":[{"name":"A","value":"1"},{"name":"A","valueFrom":{}},{"name":"B","valueFrom":{}},{"name":"B","value":"2"}]}]}}`
	all, err = Containers(strings.NewReader(again))
	if err != nil || len(all[0].Env) != 1 || all[0].Env["B"] != "2" || strings.Join(all[0].Unread, " ") != "A" {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestSpecBounds holds that hostile specifications end early.
func TestSpecBounds(t *testing.T) {
	doubling := func() string {
		var b strings.Builder
		b.WriteString(`{"spec":{"containers":[{"name":"c","env":[{"name":"A0","value":"xxxxxxxxxxxxxxxx"}`)
		for i := 1; i < 60; i++ {
			fmt.Fprintf(&b, `,{"name":"A%d","value":"$(A%d)$(A%d)"}`, i, i-1, i-1)
		}
		return b.String() + `]}]}}`
	}
	fanout := func() string { // many values of the largest size
		var b strings.Builder
		fmt.Fprintf(&b, `{"spec":{"containers":[{"name":"c","env":[{"name":"A","value":%q}`, strings.Repeat("x", maxValue))
		for i := range 2000 {
			fmt.Fprintf(&b, `,{"name":"B%d","value":"$(A)"}`, i)
		}
		return b.String() + `]}]}}`
	}
	for what, spec := range map[string]io.Reader{
		"endless":         io.MultiReader(strings.NewReader(`{"process":{"env":["A=`), endless{}),
		"doubling":        strings.NewReader(doubling()),
		"fan-out":         strings.NewReader(fanout()),
		"many containers": strings.NewReader(`{"spec":{"containers":[{}` + strings.Repeat(`,{}`, maxContainers) + `]}}`),
		"many variables":  strings.NewReader(`{"process":{"env":["A=b"` + strings.Repeat(`,"A=b"`, maxVariables) + `]}}`),
		"a large value":   strings.NewReader(`{"process":{"env":["A=` + strings.Repeat("x", maxValue+1) + `"]}}`),
	} {
		if got, err := Containers(spec); !errors.Is(err, ErrSpecTooLarge) {
			t.Errorf("%s: %d containers, %v", what, len(got), err)
		}
	}
	if _, err := Containers(failing{}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a reader that fails: %v", err)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func FuzzFromSpec(f *testing.F) {
	for _, spec := range []string{ociSpec, dockerSpec, podSpecs, listSpec, deploymentSpec, cronJobSpec, `[]`, `{"items":[[{}]]}`} {
		f.Add([]byte(spec), "main")
	}
	f.Fuzz(func(t *testing.T, data []byte, name string) {
		all, err := Containers(bytes.NewReader(data))
		if (err == nil) != (len(all) > 0) {
			t.Fatalf("%d containers, %v", len(all), err)
		}
		if err == nil && !json.Valid(data) {
			t.Fatalf("%q is no JSON, and has containers", data)
		}
		for _, c := range all {
			for key, value := range c.Env {
				if key == "" || strings.ContainsAny(key, "=\x00") || strings.Contains(value, "\x00") || len(value) > maxValue {
					t.Fatalf("%q=%q", key, value)
				}
			}
			Judge(dgx(), c.Env)
		}
		env, err := FromSpec(bytes.NewReader(data), name)
		if (env == nil) != (err != nil) {
			t.Fatalf("%v, %v", env, err)
		}
	})
}
