// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// module is a module of which packages are linked into a program.
type module struct {
	Path  string // "std" is Go's own library and runtime
	Dir   string
	Files []string // its licences and notices, relative to Dir
	Main  bool     // the programs' own module
	BPF   bool     // with the BPF objects of package trace
}

// legal are the names of files with a licence or a notice.
var legal = regexp.MustCompile(`^(?i:(un)?licen[cs]e|copying|notice|copyright)([-_.].*)?$`)

// linked asks Go for the modules of the programs, ordered by their path.
func linked(programs []string) ([]module, error) {
	args := append([]string{"list", "-deps", "-json=Dir,Standard,Module"}, programs...)
	cmd := exec.Command("go", args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env GOROOT: %w", err)
	}
	found := map[string]*module{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			Dir      string
			Standard bool
			Module   *struct {
				Path, Dir string
				Main      bool
			}
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		m := module{Path: "std", Dir: strings.TrimSpace(string(root))}
		switch {
		case p.Standard:
			p.Dir = m.Dir // a package of Go has no licence of its own
		case p.Module == nil:
			return nil, fmt.Errorf("the package in %s is of no module", p.Dir)
		default:
			m = module{Path: p.Module.Path, Dir: p.Module.Dir, Main: p.Module.Main}
		}
		if found[m.Path] == nil {
			found[m.Path] = &m
		}
		found[m.Path].BPF = found[m.Path].BPF || m.Main && p.Dir == filepath.Join(m.Dir, "trace/internal/objects")
		if err := found[m.Path].collect(p.Dir); err != nil {
			return nil, err
		}
	}
	var modules []module
	for _, m := range found {
		slices.Sort(m.Files)
		modules = append(modules, *m)
	}
	slices.SortFunc(modules, func(a, b module) int { return cmp.Compare(a.Path, b.Path) })
	return modules, nil
}

// collect adds the licences that count for the package in dir: those beside it, and those above it in its
// module.
func (m *module) collect(dir string) error {
	for {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			name, err := filepath.Rel(m.Dir, filepath.Join(dir, e.Name()))
			if err != nil {
				return err
			}
			if e.Type().IsRegular() && legal.MatchString(e.Name()) && !strings.HasSuffix(e.Name(), ".go") && !slices.Contains(m.Files, name) {
				m.Files = append(m.Files, name)
			}
		}
		if dir == m.Dir || !strings.HasPrefix(dir, m.Dir) {
			return nil
		}
		dir = filepath.Dir(dir)
	}
}
