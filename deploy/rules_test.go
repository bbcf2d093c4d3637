// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"os"
	"regexp"
	"testing"

	"sigs.k8s.io/yaml"
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

// Alerts are on metrics and labels that p2pcheck has, and on values that these have.
func TestRules(t *testing.T) {
	text, err := os.ReadFile("prometheus/p2pcheck.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	var r rules
	if err := yaml.UnmarshalStrict(text, &r); err != nil {
		t.Fatal(err)
	}
	there := allSamples(t)
	n := 0
	for _, group := range r.Groups {
		for _, rule := range group.Rules {
			n++
			if rule.Alert == "" || rule.For == "" || rule.Labels["severity"] == "" || rule.Annotations["summary"] == "" {
				t.Errorf("%+v", rule)
			}
			expr, err := parse(rule.Expr)
			if err != nil {
				t.Errorf("%s: %v", rule.Alert, err)
				continue
			}
			for _, err := range there.check(expr) {
				t.Errorf("%s: %v", rule.Alert, err)
			}
			has := there.result(expr)
			for _, text := range rule.Annotations {
				for _, label := range ofTemplate.FindAllStringSubmatch(text, -1) {
					if !has[label[1]] {
						t.Errorf("%s has no label %s: %s", rule.Alert, label[1], text)
					}
				}
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
