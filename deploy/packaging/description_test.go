// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// Debian allows 80 columns for a line of a package's description, the space before it included.
func TestDescriptions(t *testing.T) {
	files, err := filepath.Glob("*.yaml")
	if err != nil || len(files) != 3 {
		t.Fatalf("%q, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		var pkg struct{ Description string }
		if err == nil {
			err = yaml.Unmarshal(text, &pkg)
		}
		if err != nil || strings.Count(pkg.Description, "\n") < 2 {
			t.Errorf("%s: %q, %v", file, pkg.Description, err)
		}
		for line := range strings.Lines(pkg.Description) {
			if line = strings.TrimSpace(line); len(line) >= 80 {
				t.Errorf("%s: %d columns: %s", file, len(line)+1, line)
			}
		}
	}
}
