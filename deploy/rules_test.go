// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

// rules are Prometheus' file of rules, as far as it is used here.
type rules struct {
	Groups []struct {
		Name  string `json:"name"`
		Rules []struct {
			Alert       string            `json:"alert"`
			Expr        string            `json:"expr"`
			For         string            `json:"for"`
			Labels      map[string]string `json:"labels"`
			Annotations map[string]string `json:"annotations"`
		} `json:"rules"`
	} `json:"groups"`
}

// Alerts are on metrics and labels that p2pcheck has.
func TestRules(t *testing.T) {
	text, err := os.ReadFile("prometheus/p2pcheck.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	var r rules
	if err := yaml.UnmarshalStrict(text, &r); err != nil {
		t.Fatal(err)
	}
	out, _ := exec.CommandContext(t.Context(), filepath.Join(staticImage(t), "usr/bin/p2pcheck"), "--root", testenv.Machines["small-hgx"]().Write(t), "--format", "prometheus").Output()
	metrics := string(out)
	n := 0
	for _, group := range r.Groups {
		for _, rule := range group.Rules {
			n++
			if rule.Alert == "" || rule.For == "" || rule.Labels["severity"] == "" || rule.Annotations["summary"] == "" {
				t.Errorf("%+v", rule)
			}
			names := regexp.MustCompile(`p2pcheck_\w+`).FindAllString(rule.Expr, -1)
			if len(names) == 0 {
				t.Errorf("%s is on no metric", rule.Alert)
			}
			labels := regexp.MustCompile(`(\w+)=~?"`).FindAllStringSubmatch(rule.Expr, -1)
			labels = append(labels, regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(rule.Annotations["summary"], -1)...)
			for _, on := range regexp.MustCompile(`\bon \(([^)]*)\)`).FindAllStringSubmatch(rule.Expr, -1) {
				for name := range strings.SplitSeq(on[1], ", ") {
					labels = append(labels, []string{"", name})
				}
			}
			for _, name := range names {
				if !strings.Contains(metrics, "# TYPE "+name+" gauge\n") {
					t.Errorf("%s: there is no metric %s", rule.Alert, name)
				}
				for _, label := range labels {
					if label[1] != "instance" && !regexp.MustCompile(`(?m)^`+name+`\{(.*,)?`+label[1]+`="`).MatchString(metrics) {
						t.Errorf("%s: %s has no label %s", rule.Alert, name, label[1])
					}
				}
			}
			if strings.Count(rule.Expr, "(") != strings.Count(rule.Expr, ")") || strings.Count(rule.Expr, "{") != strings.Count(rule.Expr, "}") {
				t.Errorf("%s: %s", rule.Alert, rule.Expr)
			}
		}
	}
	if n == 0 {
		t.Error("no rule")
	}
}

// The alerts on pairs name each outcome that is bad and no other, as the metrics have it.
func TestRulesNameOutcomes(t *testing.T) {
	text, err := os.ReadFile("prometheus/p2pcheck.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	alerts := regexp.MustCompile(`p2pcheck_pair_outcome\{outcome=~"([^"]*)"\} == 1`).FindAllStringSubmatch(string(text), -1)
	if len(alerts) != 2 {
		t.Fatalf("%d alerts on bad pairs: %q", len(alerts), alerts)
	}
	for o := range machinesByOutcome(t) { // by the metrics
		for _, alert := range alerts {
			if got := regexp.MustCompile("^(?:" + alert[1] + ")$").MatchString(o); got != outcomes[o] {
				t.Errorf("%s matches %s: %t", alert[0], o, got)
			}
		}
	}
}
