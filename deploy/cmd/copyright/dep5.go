// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// Debian has these licences in /usr/share/common-licenses, and asks that packages refer to them.
var common = map[string]string{"Apache-2.0": "Apache-2.0", "MPL-2.0": "MPL-2.0", "GPL-2.0": "GPL-2"}

// holders are the lines of a licence's text that name its holders.
var holders = regexp.MustCompile(`(?im)^\s*(?:copyright )?(?:\(c\)|©|copyright)\s.*\d{4}.*$`)

// write writes the file, and returns the licences as an SPDX expression.
func write(w io.Writer, modules []module) (spdx string, err error) {
	fmt.Fprint(w, `Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: gpurdma
Source: https://github.com/gpurdma/gpurdma
Comment: Beside its own code a program has that of the Go modules below, each
 under its path, and of Go's library and runtime (std). They are linked into it.

Files: *
Copyright: the authors of gpurdma
License: Apache-2.0
`)
	all := []string{"Apache-2.0"}
	bpf := false
	for _, m := range modules {
		if m.Main {
			if m.BPF {
				if err := objects(w, m.Dir); err != nil {
					return "", err
				}
				bpf = true
			}
			continue
		}
		ids, err := m.paragraph(w)
		if err != nil {
			return "", fmt.Errorf("%s: %w", m.Path, err)
		}
		for _, id := range ids {
			if !slices.Contains(all, id) {
				all = append(all, id)
			}
		}
	}
	for _, id := range all {
		if file := common[id]; file != "" {
			fmt.Fprintf(w, "\nLicense: %s\n On Debian systems the text of this licence is in\n /usr/share/common-licenses/%s.\n", id, file)
		}
	}
	if bpf {
		return strings.Join(all, " AND ") + " AND (GPL-2.0-only OR BSD-2-Clause)", nil
	}
	return strings.Join(all, " AND "), nil
}

// objects writes what the file says of the BPF objects, whose licence is as their SPDX lines have it.
func objects(w io.Writer, dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, "LICENSES/BSD-2-Clause.txt"))
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "\nFiles: trace/internal/objects/bpf/*\nCopyright: the authors of gpurdma\nLicense: GPL-2.0 or BSD-2-Clause\n"+
		" On Debian systems the text of the first is in\n /usr/share/common-licenses/GPL-2. The second is:\n .\n%s", indent(string(text)))
	return nil
}

// paragraph writes what the file says of a module, and returns its licences.
func (m module) paragraph(w io.Writer) (ids []string, err error) {
	var copyrights []string
	var bodies, notices []string
	for _, name := range m.Files {
		text, err := os.ReadFile(filepath.Join(m.Dir, name))
		if err != nil {
			return nil, err
		}
		if base := strings.ToUpper(filepath.Base(name)); strings.HasPrefix(base, "NOTICE") {
			notices = append(notices, string(text))
			continue
		}
		found, err := identify(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(m.Dir, name), err)
		}
		whole := false
		for _, id := range found {
			if !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
			whole = whole || common[id] == ""
		}
		if whole { // the text is nowhere else
			bodies = append(bodies, string(text))
		}
		for _, line := range holders.FindAllString(string(text), -1) {
			if line = strings.TrimSpace(line); !slices.Contains(copyrights, line) {
				copyrights = append(copyrights, line)
			}
		}
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("no licence was found in %s", m.Dir)
	}
	if len(copyrights) == 0 {
		copyrights = []string{"the authors of " + m.Path}
	}
	fmt.Fprintf(w, "\nFiles: %s/*\nCopyright: %s\nLicense: %s\n", m.Path, strings.Join(copyrights, "\n "), strings.Join(ids, " and "))
	for _, body := range bodies {
		fmt.Fprint(w, indent(body))
	}
	if len(notices) > 0 {
		fmt.Fprintf(w, "Comment: The module has a notice:\n%s", indent(strings.Join(notices, "\n")))
	}
	return ids, nil
}

// known is how much of a text has to be known licences, in percent.
const known = 75

// identify names the licences of a text.
func identify(text []byte) ([]string, error) {
	c := licensecheck.Scan(text)
	if c.Percent < known || len(c.Match) == 0 {
		return nil, fmt.Errorf("%.0f %% of it are known licences, and %d have to be: read it, and say in this program what it is", c.Percent, known)
	}
	var ids []string
	for _, m := range c.Match {
		if !slices.Contains(ids, m.ID) {
			ids = append(ids, m.ID)
		}
	}
	return ids, nil
}

// indent makes text the continuation of a field.
func indent(text string) string {
	var b strings.Builder
	for line := range strings.Lines(strings.TrimSpace(text)) {
		line = strings.TrimRight(line, " \t\r\n")
		if line == "" {
			line = "."
		}
		b.WriteString(" " + line + "\n")
	}
	return b.String()
}
