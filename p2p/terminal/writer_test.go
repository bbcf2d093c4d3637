// SPDX-License-Identifier: Apache-2.0

package terminal

import "testing"

func TestWriter(t *testing.T) {
	p := Writer{Mark: "M"}
	for text, want := range map[string]string{
		"plain “…”\tx\n": "plain “…”\tx\n", "\x1b[31mred": `\x1b[31mred`, "\x1bM[31mours\x1bM[0m": "\x1b[31mours\x1b[0m",
		"\r\a\x9b\u009b": `\r\a\x9b\u009b`, "\u202e": `\u202e`, "\x00": `\x00`,
	} {
		if got := p.text(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}
