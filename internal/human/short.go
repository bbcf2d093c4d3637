// SPDX-License-Identifier: Apache-2.0

package human

import (
	"strings"
	"unicode/utf8"
)

// Short is the beginning of a text that has more than n bytes, and a sign that there was more.
func Short(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return strings.Clone(text[:n]) + "…"
}
