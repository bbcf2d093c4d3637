// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpurdma/gpurdma/testbed/kernel"
)

// ScriptGroup is the group of shell tests in lists.
const ScriptGroup = "peers"

// SkipStatus is the exit status by which a script says that it cannot run
// here, as in automake's test suites.
const SkipStatus = 77

// Script is a shell test: an executable file NAME.sh, run by bash, that passes
// when it ends with status 0. Comment lines at its top can say what it needs:
//
//	# testbed: machine=pair peer=server.sh
//	# testbed: modules=stock timeout=5m kernels=6.12,6.1
//	# testbed: processors=1
type Script struct {
	Name    string // file name without .sh
	File    string
	Machine string        // empty: the default
	Stock   bool          // Debian's own modules
	Rereg   bool          // the RDMA core of kernel/patches/rdma-rereg
	Timeout time.Duration // 0: the run's
	Kernels []string      // empty: all
	Peer    string        // file of the same directory, run on the machine's second node meanwhile
	One     bool          // one processor will do: nothing in it polls without a pause
}

const scriptDirective = "# testbed:"

// Scripts reads the shell tests of a directory, which may not exist.
func Scripts(dir string) ([]Script, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.sh"))
	if err != nil {
		return nil, err
	}
	var all []Script
	for _, f := range files {
		fi, err := os.Stat(f)
		if err != nil {
			return nil, err
		}
		if fi.Mode()&0o111 == 0 {
			continue // for the others to source
		}
		b, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		s := Script{File: f, Name: strings.TrimSuffix(filepath.Base(f), ".sh")}
		if err := s.parse(string(b)); err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
		all = append(all, s)
	}
	return all, nil
}

func (s *Script) parse(text string) error {
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			return nil
		}
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), scriptDirective)
		if !ok {
			continue
		}
		for _, f := range strings.Fields(rest) {
			key, value, _ := strings.Cut(f, "=")
			var err error
			switch key {
			case "machine":
				s.Machine = value
			case "modules":
				s.Stock, s.Rereg = value == "stock", value == "rereg"
				if !s.Stock && !s.Rereg {
					return fmt.Errorf("modules=%s: stock and rereg can be asked for", value)
				}
			case "timeout":
				s.Timeout, err = time.ParseDuration(value)
			case "kernels":
				s.Kernels = strings.Split(value, ",")
			case "peer":
				s.Peer = value
			case "processors":
				if value != "1" {
					return fmt.Errorf("processors=%s: only 1 can be asked for", value)
				}
				s.One = true
			default:
				err = fmt.Errorf("unknown key %q", key)
			}
			if err != nil {
				return fmt.Errorf("%s %s: %w", scriptDirective, f, err)
			}
		}
	}
	return nil
}

// RunsOn says whether the script is meant for a kernel series.
func (s Script) RunsOn(series string) bool {
	return kernel.Meant(s.Kernels, series)
}
