// SPDX-License-Identifier: Apache-2.0

package human

import (
	"fmt"
	"strings"
)

// Plural writes a count and the noun that it counts: "1 pair", "2 pairs".
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// First lists the first n names, and says how many more there are.
func First(names []string, n int) string {
	if len(names) > n {
		return strings.Join(names[:n], ", ") + fmt.Sprintf(" and %d more", len(names)-n)
	}
	return strings.Join(names, ", ")
}
