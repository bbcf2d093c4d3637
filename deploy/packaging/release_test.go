// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// released is the folder of a release, and the names of its files. make test-release makes it.
func released(t *testing.T, env string) (dir string, names []string) {
	t.Helper()
	dir = built(t, env)
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		names = append(names, f.Name())
	}
	return dir, names
}

// A release has an archive, packages and lists for each architecture, the image and the checksums, all with
// its version in their names, and nothing else.
func TestReleaseFiles(t *testing.T) {
	dir, names := released(t, "GPURDMA_RELEASE")
	version := os.Getenv("GPURDMA_RELEASE_VERSION")
	want := []string{"SHA256SUMS", "p2pcheck-" + version + "-image.tar"}
	rpms := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}
	for _, deb := range strings.Fields(os.Getenv("GPURDMA_RELEASE_ARCHES")) {
		rpm := rpms[deb]
		want = append(want, "gpurdma-"+version+"-linux-"+deb+".tar.gz", "p2pcheck-agent_"+version+"_all.deb", "p2pcheck-agent-"+version+"-1.noarch.rpm")
		for _, program := range []string{"p2pcheck", "dmabuf-reg"} {
			want = append(want, program+"_"+version+"_"+deb+".deb", program+"-"+version+"-1."+rpm+".rpm", program+"-"+version+"-linux-"+deb+".cdx.json")
		}
	}
	slices.Sort(want)
	want = slices.Compact(want)
	slices.Sort(names)
	if !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
	cmd := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "SHA256SUMS")
	cmd.Dir = dir
	if out := must(t, cmd); strings.Count(out, ": OK\n") != len(want)-1 {
		t.Errorf("checksums: %s", out)
	}
}

// The same source in another directory gives the same bytes.
func TestReleaseAgain(t *testing.T) {
	dir, names := released(t, "GPURDMA_RELEASE")
	again, others := released(t, "GPURDMA_RELEASE_AGAIN")
	if !slices.Equal(names, others) {
		t.Fatalf("%q, and again %q", names, others)
	}
	for _, name := range names {
		a, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(again, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a, b) {
			t.Errorf("%s differs when it is built again: %d bytes, and %d", name, len(a), len(b))
		}
	}
}

// The archive of this machine's architecture has commands that say the version and the commit, their manual pages
// and completions. The lists name the modules that are linked into them.
func TestReleaseArchive(t *testing.T) {
	dir, _ := released(t, "GPURDMA_RELEASE")
	version, revision := os.Getenv("GPURDMA_RELEASE_VERSION"), os.Getenv("GPURDMA_RELEASE_REVISION")
	name := "gpurdma-" + version + "-linux-" + runtime.GOARCH
	to := t.TempDir()
	must(t, exec.CommandContext(t.Context(), "tar", "-xzf", filepath.Join(dir, name+".tar.gz"), "-C", to))
	root := filepath.Join(to, name)
	for _, program := range []string{"p2pcheck", "dmabuf-reg"} {
		file := filepath.Join(root, "bin", program)
		out := must(t, exec.CommandContext(t.Context(), file, "--version"))
		if !strings.HasPrefix(out, program+" version "+version) || !strings.Contains(out, revision[:12]) {
			t.Errorf("%s --version: %s", program, out)
		}
		for _, f := range []string{"share/man/man1/" + program + ".1.gz", "share/bash-completion/completions/" + program,
			"share/zsh/site-functions/_" + program, "share/fish/vendor_completions.d/" + program + ".fish", "licenses/" + program + ".copyright", "LICENSE", "CHANGELOG.md"} {
			if info, err := os.Stat(filepath.Join(root, f)); err != nil || info.Size() == 0 {
				t.Errorf("%s: %v", f, err)
			}
		}
		linked, err := buildinfo.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		listed := components(t, filepath.Join(dir, program+"-"+version+"-linux-"+runtime.GOARCH+".cdx.json"))
		for _, m := range linked.Deps {
			if listed[m.Path] != m.Version {
				t.Errorf("%s: %s %s is linked, and the list has %q", program, m.Path, m.Version, listed[m.Path])
			}
		}
		if len(linked.Deps) < 5 || listed["std"] == "" {
			t.Errorf("%s: %d modules; the standard library: %q", program, len(linked.Deps), listed["std"])
		}
	}
	out := try(t, exec.CommandContext(t.Context(), filepath.Join(root, "bin", "p2pcheck"), "--root", t.TempDir(), "--format", "prometheus")).out // there is no GPU: its status is not 0
	if !strings.Contains(out, `p2pcheck_build_info{`) || !strings.Contains(out, `version="`+version+`"`) || !strings.Contains(out, `revision="`+revision+`"`) {
		t.Errorf("p2pcheck_build_info: %.2000s", out)
	}
}

// components are the modules that a list has, with their versions.
func components(t *testing.T, file string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Format     string `json:"bomFormat"`
		Components []struct{ Name, Version string }
	}
	if err := json.Unmarshal(text, &list); err != nil || list.Format != "CycloneDX" {
		t.Fatalf("%s: %q, %v", file, list.Format, err)
	}
	versions := map[string]string{}
	for _, c := range list.Components {
		versions[c.Name] = c.Version
	}
	return versions
}
