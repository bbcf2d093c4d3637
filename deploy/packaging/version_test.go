// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// A later commit has a greater version, by dpkg's rules and, where it is installed, by rpm's.
func TestVersion(t *testing.T) {
	tool(t, "git")
	dir := t.TempDir()
	script, err := filepath.Abs("version.sh")
	if err != nil {
		t.Fatal(err)
	}
	at := 1_700_000_000
	git := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir, "-c", "user.name=x", "-c", "user.email=x@example.org"}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_COMMITTER_DATE="+strconv.Itoa(at)+" +0000", "GIT_CONFIG_GLOBAL=/dev/null")
		must(t, cmd)
		at++
	}
	git("init", "-q")
	var versions []string
	for _, step := range []struct{ tag, want string }{
		{"", `^0~git20231114221321\.[0-9a-f]{12}$`},
		{"", `^0~git20231114221322\.[0-9a-f]{12}$`},
		{"v0.1.0-rc1", `^0\.1\.0~rc1$`},
		{"v0.1.0", `^0\.1\.0$`},
		{"", `^0\.1\.0\+git1\.[0-9a-f]{12}$`},
		{"", `^0\.1\.0\+git2\.[0-9a-f]{12}$`},
		{"v0.1.1", `^0\.1\.1$`},
		{"v0.10.0", `^0\.10\.0$`},
	} {
		git("commit", "-q", "--allow-empty", "-m", "x")
		if step.tag != "" {
			git("tag", step.tag)
			at--
		}
		version := strings.TrimSpace(must(t, exec.CommandContext(t.Context(), script, dir)))
		if !regexp.MustCompile(step.want).MatchString(version) {
			t.Errorf("%s is not %s", version, step.want)
		}
		versions = append(versions, version)
	}
	for i, version := range versions[1:] {
		if _, err := exec.LookPath("dpkg"); err == nil {
			must(t, exec.CommandContext(t.Context(), "dpkg", "--compare-versions", versions[i], "lt", version))
		}
		if _, err := exec.LookPath("rpm"); err == nil {
			if out := must(t, exec.CommandContext(t.Context(), "rpm", "--eval", `%{lua:print(rpm.vercmp("`+versions[i]+`", "`+version+`"))}`)); strings.TrimSpace(out) != "-1" {
				t.Errorf("rpm: %s against %s is %s", versions[i], version, out)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	git("add", "file")
	if version := must(t, exec.CommandContext(t.Context(), script, dir)); version != "0.10.0+dirty\n" {
		t.Errorf("with a change: %s", version)
	}
}
