// SPDX-License-Identifier: Apache-2.0

package fabrictest_test

import (
	"regexp"
	"testing"

	"github.com/gpurdma/gpurdma/internal/pagetest"
)

var goTest = regexp.MustCompile(`^go test -v -run '([^']*)' \./fabrictest$`)

// The tutorial's command runs the examples of this package, and prints what it says.
func TestTutorial(t *testing.T) {
	dir, n := t.TempDir(), 0
	pagetest.Program(t, dir, "bin/fabrictest.test", "FABRICTEST_TEST_AS_TEST")
	for _, s := range pagetest.Read(t, "../docs/tutorials/test-without-a-card.md").Steps() {
		m := goTest.FindStringSubmatch(s.Command)
		if m == nil {
			continue
		}
		n++
		if err := s.Check(pagetest.Run(t, "fabrictest.test -test.v -test.run '"+m[1]+"'", dir)); err != nil {
			t.Error(err)
		}
	}
	if n != 1 {
		t.Errorf("%d commands", n)
	}
}
