// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
)

// parseAllowed reads lines of a name and a reason. A line that begins with # is a comment.
func parseAllowed(text string) (map[string]string, error) {
	allowed := map[string]string{}
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, reason, _ := strings.Cut(line, " ")
		if reason = strings.TrimSpace(reason); reason == "" {
			return nil, fmt.Errorf("line %d: %s has no reason", n, name)
		}
		if _, ok := allowed[name]; ok {
			return nil, fmt.Errorf("line %d: %s is there twice", n, name)
		}
		allowed[name] = reason
	}
	return allowed, nil
}

// compare returns a line for each dead function that is not allowed, and for each allowed one that is not dead.
func compare(found findings, allowed map[string]string) []string {
	var lines []string
	dead := map[string]bool{}
	for _, f := range found.dead {
		dead[f.name] = true
		if _, ok := allowed[f.name]; !ok {
			lines = append(lines, fmt.Sprintf("%s: %s is reached by no command and by no public package: remove it, or use it", f.place, f.name))
		}
	}
	for name := range allowed {
		if !dead[name] {
			lines = append(lines, fmt.Sprintf("the allow-list has %s, which is not dead, or does not exist: take it off the list", name))
		}
	}
	slices.Sort(lines)
	return lines
}
