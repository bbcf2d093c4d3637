// SPDX-License-Identifier: Apache-2.0

package gotest

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// Output is a file or directory that a test binary writes for its caller.
type Output struct {
	Guest string // relative to the results directory
	Host  string
	Dir   bool
}

// fileFlags name files that a test binary writes, dirFlags directories.
var (
	fileFlags = map[string]bool{
		"coverprofile": true, "cpuprofile": true, "memprofile": true,
		"blockprofile": true, "mutexprofile": true, "trace": true,
	}
	dirFlags = map[string]bool{"gocoverdir": true, "outputdir": true}
)

// Redirect replaces the host's paths in a test binary's arguments by ones
// below results, a directory that guest and host share, and lists what has to
// be copied back. Relative paths are relative to -test.outputdir, or to dir.
func Redirect(args []string, dir, results string) ([]string, []Output) {
	base := dir
	for _, a := range args {
		if name, value, ok := testFlag(a); ok && name == "outputdir" && value != "" {
			base = resolve(dir, value)
		}
	}
	var redirected []string
	var outs []Output
	for _, a := range args {
		name, value, ok := testFlag(a)
		if !ok || value == "" || !fileFlags[name] && !dirFlags[name] {
			redirected = append(redirected, a)
			continue
		}
		o := Output{Host: resolve(base, value), Dir: dirFlags[name]}
		if name == "outputdir" {
			o.Host = base
		}
		o.Guest = fmt.Sprintf("out%d-%s", len(outs), filepath.Base(o.Host))
		outs = append(outs, o)
		redirected = append(redirected, "-test."+name+"="+filepath.Join(results, o.Guest))
	}
	return redirected, outs
}

// Timeout is the value of -test.timeout, 0 if there is none.
func Timeout(args []string) time.Duration {
	for _, a := range args {
		if name, value, ok := testFlag(a); ok && name == "timeout" {
			if d, err := time.ParseDuration(value); err == nil {
				return d
			}
		}
	}
	return 0
}

// testFlag splits -test.NAME=VALUE, the form that the go command uses.
func testFlag(arg string) (name, value string, ok bool) {
	arg, ok = strings.CutPrefix(strings.TrimPrefix(arg, "-"), "test.")
	if !ok {
		arg, ok = strings.CutPrefix(arg, "-test.")
	}
	if !ok {
		return "", "", false
	}
	return strings.Cut(arg, "=")
}

func resolve(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}
