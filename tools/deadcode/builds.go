// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const modulePath = "github.com/gpurdma/gpurdma"

// modules are the directories of the modules that are analyzed. The ones that are not here have tests only.
var modules = []string{".", "testbed", "deploy", "deploy/dra", "metrics/spans"}

// testHelpers are packages that only tests import.
var testHelpers = []string{
	"internal/testenv", "internal/abicheck", "internal/layouttest", "internal/exampletest", "internal/looktest", "internal/pagetest", "cmd/internal/referencetest", "internal/ioctl/ioctltest", "gpualloc/internal/doubles",
	"p2p/internal/machinetest", "cmd/dmabuf-reg/internal/golden", "cmd/dmabuf-reg/internal/stationtest", "cmd/internal/fields",
	"ibvfd/internal/verbsstub", "deploy/dra/clustertest", "deploy/slurm/slurmtest",
}

// build is one way in which the commands are built.
type build struct {
	env  []string
	tags string
	only []string // the commands, or all
}

var builds = []build{
	{env: []string{"GOARCH=amd64", "CGO_ENABLED=1"}},
	{env: []string{"GOARCH=arm64", "CGO_ENABLED=0"}},
	{env: []string{"GOARCH=amd64", "CGO_ENABLED=1"}, tags: "manual", only: []string{modulePath + "/cmd/dmabuf-reg", modulePath + "/cmd/p2pcheck"}},
}

// listed is what `go list -json` says of a package.
type listed struct {
	ImportPath, Name, Dir string
	GoFiles, CgoFiles     []string
}

func (p listed) files() []string { return append(slices.Clone(p.GoFiles), p.CgoFiles...) }

// function is a dead function: its name with its package's path, and where it is.
type function struct{ name, place string }

// findings are what the analyses of all builds found.
type findings struct {
	dead     []function
	packages int
}

// analyze runs the analyzer over each build of the repository.
func analyze(analyzer, dir string) (findings, error) {
	work := filepath.Join(dir, "build", "deadcode")
	if err := writeWorkspace(work); err != nil {
		return findings{}, err
	}
	// dead counts the builds in which a function is dead, and in how many its file is.
	dead, in := map[function]int{}, map[string]int{}
	loaded, known := map[string]bool{}, map[string]bool{}
	for _, b := range builds {
		env := append(os.Environ(), append(b.env, "GOOS=linux", "GOWORK="+filepath.Join(work, "go.work"), "GOFLAGS=-tags="+b.tags)...)
		all, err := list(dir, env, patterns()...)
		if err != nil {
			return findings{}, err
		}
		var public []listed
		mains := b.only
		for _, p := range all {
			known[p.ImportPath] = known[p.ImportPath] || slices.ContainsFunc(p.files(), func(f string) bool { return f != "doc.go" })
			if isPublic(p) {
				public = append(public, p)
			}
			if p.Name == "main" && b.only == nil {
				mains = append(mains, p.ImportPath)
			}
		}
		text, err := roots(public)
		if err != nil {
			return findings{}, err
		}
		if err := os.WriteFile(filepath.Join(work, "roots", "main.go"), []byte(text), 0o644); err != nil {
			return findings{}, err
		}
		if b.only == nil {
			mains = append(mains, "./build/deadcode/roots")
		}
		deps, err := list(dir, env, append([]string{"-deps"}, mains...)...)
		if err != nil {
			return findings{}, err
		}
		for _, p := range deps {
			if strings.HasPrefix(p.ImportPath, modulePath) {
				loaded[p.ImportPath] = true
				for _, f := range p.files() {
					in[filepath.Join(p.Dir, f)]++
				}
			}
		}
		reported, err := reports(analyzer, dir, env, b.tags, mains)
		if err != nil {
			return findings{}, err
		}
		for _, f := range reported {
			dead[f]++
		}
	}
	found := findings{packages: len(loaded)}
	for f, n := range dead {
		file, _, _ := strings.Cut(f.place, ":")
		if n == in[file] {
			rel, err := filepath.Rel(dir, f.place)
			if err != nil {
				return findings{}, err
			}
			found.dead = append(found.dead, function{f.name, rel})
		}
	}
	for path, code := range known {
		short := strings.TrimPrefix(path, modulePath+"/")
		if code && !loaded[path] && !slices.Contains(testHelpers, short) {
			found.dead = append(found.dead, function{short, "package " + short})
		}
	}
	return found, nil
}

// writeWorkspace writes a workspace of all modules, so that what one of them uses of another counts.
func writeWorkspace(work string) error {
	if err := os.MkdirAll(filepath.Join(work, "roots"), 0o755); err != nil {
		return err
	}
	var text strings.Builder
	text.WriteString("go 1.26.0\n\nuse (\n")
	for _, m := range modules {
		fmt.Fprintf(&text, "\t../../%s\n", m)
	}
	text.WriteString(")\n")
	return os.WriteFile(filepath.Join(work, "go.work"), []byte(text.String()), 0o644)
}

func patterns() []string {
	var all []string
	for _, m := range modules {
		all = append(all, strings.TrimSuffix("./"+m, "/.")+"/...")
	}
	return all
}

// list runs go list.
func list(dir string, env []string, args ...string) ([]listed, error) {
	out, err := output(dir, env, "go", append([]string{"list", "-json=ImportPath,Name,Dir,GoFiles,CgoFiles"}, args...)...)
	if err != nil {
		return nil, err
	}
	var all []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		all = append(all, p)
	}
}

// reports runs the analyzer. The places of its functions are absolute paths with lines.
func reports(analyzer, dir string, env []string, tags string, mains []string) ([]function, error) {
	out, err := output(dir, env, analyzer, append([]string{"-json", "-tags=" + tags, "-filter=^" + modulePath + "(/|$)"}, mains...)...)
	if err != nil {
		return nil, err
	}
	var packages []struct {
		Path  string
		Funcs []struct {
			Name     string
			Position struct {
				File string
				Line int
			}
		}
	}
	if err := json.Unmarshal(out, &packages); err != nil {
		return nil, fmt.Errorf("%s: %w", analyzer, err)
	}
	var all []function
	for _, p := range packages {
		for _, f := range p.Funcs {
			short := strings.TrimPrefix(strings.TrimPrefix(p.Path, modulePath), "/")
			if p.Path == modulePath {
				short = "gpurdma"
			}
			file := f.Position.File
			if !filepath.IsAbs(file) {
				file = filepath.Join(dir, file)
			}
			all = append(all, function{short + "." + f.Name, fmt.Sprintf("%s:%d", file, f.Position.Line)})
		}
	}
	return all, nil
}

// output runs a command, whose messages an error has in it.
func output(dir string, env []string, name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", filepath.Base(name), args[0], err, strings.TrimSpace(stderr.String()))
	}
	return out, nil
}
