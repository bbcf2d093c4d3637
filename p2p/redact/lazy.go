// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"regexp"
	"strings"
	"sync"
)

// pattern is a regular expression that is compiled when it is first used: most runs of a program that imports this
// package take no snapshot.
type pattern struct{ compiled func() *regexp.Regexp }

func expression(text string) pattern {
	return pattern{sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })}
}

func (p pattern) MatchString(s string) bool              { return p.compiled().MatchString(s) }
func (p pattern) Match(b []byte) bool                    { return p.compiled().Match(b) }
func (p pattern) FindString(s string) string             { return p.compiled().FindString(s) }
func (p pattern) FindStringSubmatch(s string) []string   { return p.compiled().FindStringSubmatch(s) }
func (p pattern) FindAllString(s string, n int) []string { return p.compiled().FindAllString(s, n) }
func (p pattern) FindAllStringIndex(s string, n int) [][]int {
	return p.compiled().FindAllStringIndex(s, n)
}
func (p pattern) ReplaceAllString(s, by string) string { return p.compiled().ReplaceAllString(s, by) }
func (p pattern) ReplaceAllStringFunc(s string, by func(string) string) string {
	return p.compiled().ReplaceAllStringFunc(s, by)
}

// set is a set of words, made when it is first used.
type set struct{ words func() map[string]bool }

// setOf has the words of a text, and others.
func setOf(text string, others ...string) set {
	return set{sync.OnceValue(func() map[string]bool {
		out := map[string]bool{}
		for _, word := range append(strings.Fields(text), others...) {
			out[word] = true
		}
		return out
	})}
}

func (s set) has(word string) bool { return s.words()[word] }
