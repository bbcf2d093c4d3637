// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

var flagInPage = regexp.MustCompile("(?m)^\\| `--([a-z-]+)` \\| (?:`([^`|]*)` )?\\|")

// docs/reference/dra-p2p.md has each flag with its default, and no other.
func TestFlagsAreDocumented(t *testing.T) {
	t.Setenv("NODE_NAME", "$NODE_NAME")
	t.Setenv("POD_UID", "$POD_UID")
	page, err := os.ReadFile("../../../../docs/reference/dra-p2p.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for _, row := range flagInPage.FindAllStringSubmatch(string(page), -1) {
		documented[row[1]] = row[2]
	}
	command().Flags().VisitAll(func(f *pflag.Flag) {
		got, ok := documented[f.Name]
		want := strings.Trim(f.DefValue, "[]")
		if f.Value.Type() == "duration" {
			if d, err := time.ParseDuration(got); err == nil {
				got = d.String()
			}
		}
		if !ok || got != want {
			t.Errorf("docs/reference/dra-p2p.md has --%s with the default %q, and the program has %q", f.Name, got, want)
		}
		delete(documented, f.Name)
	})
	for name := range documented {
		t.Errorf("docs/reference/dra-p2p.md has --%s, which the program does not have", name)
	}
}
