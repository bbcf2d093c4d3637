// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// checkout makes an empty repository. git runs there, a second later each time.
func checkout(t *testing.T, dir string, at *int) (script string, git func(args ...string)) {
	t.Helper()
	tool(t, "git")
	script, err := filepath.Abs("../../script/version")
	if err != nil {
		t.Fatal(err)
	}
	git = func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir, "-c", "user.name=x", "-c", "user.email=x@example.org"}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_COMMITTER_DATE="+strconv.Itoa(*at)+" +0000", "GIT_CONFIG_GLOBAL=/dev/null")
		must(t, cmd)
		*at++
	}
	git("init", "-q")
	return script, git
}

// Without a tag CHANGELOG.md has the version, and without commits, too.
func TestVersionOfChangelog(t *testing.T) {
	dir, at := t.TempDir(), 1_700_000_000
	script, git := checkout(t, dir, &at)
	is := func(dir, want string) {
		t.Helper()
		if version := strings.TrimSpace(must(t, exec.CommandContext(t.Context(), script, dir))); !regexp.MustCompile(want).MatchString(version) {
			t.Errorf("%s is not %s", version, want)
		}
	}
	changelog := filepath.Join(dir, "CHANGELOG.md")
	for _, step := range []struct{ text, commit, archive string }{
		{"# Changelog\n", `^0~git20231114221322\.[0-9a-f]{12}$`, "^0$"},
		{"# Changelog\n\n## [Unreleased]\n\n- a change\n", `^0~git20231114221324\.[0-9a-f]{12}$`, "^0$"},
		{"# Changelog\n\n## [0.1.0] - 2026-11-29\n\n- a change\n", `^0\.1\.0$`, `^0\.1\.0$`},
		{"# Changelog\n\n## [Unreleased]\n\n## [0.1.0] - 2026-11-29\n\n- a change\n", `^0\.1\.0$`, `^0\.1\.0$`},
		{"# Changelog\n\n## [Unreleased]\n\n- another\n\n## [0.1.0] - 2026-11-29\n", `^0\.1\.0\+git20231114221330\.[0-9a-f]{12}$`, `^0\.1\.0$`},
		{"# Changelog\n\n## [0.2.0-rc1] - 2026-12-01\n\n## [0.1.0] - 2026-11-29\n", `^0\.2\.0~rc1$`, `^0\.2\.0~rc1$`},
	} {
		if err := os.WriteFile(changelog, []byte(step.text), 0o644); err != nil {
			t.Fatal(err)
		}
		git("add", "CHANGELOG.md")
		git("commit", "-q", "-m", "x")
		is(dir, step.commit)
		below := filepath.Join(dir, "below") // the archive of a source, unpacked in another repository
		if err := errors.Join(os.MkdirAll(below, 0o755), os.WriteFile(filepath.Join(below, "CHANGELOG.md"), []byte(step.text), 0o644)); err != nil {
			t.Fatal(err)
		}
		is(below, step.archive)
	}
	if err := os.WriteFile(changelog, []byte("# Changelog\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	is(dir, `^0~git\d+\.[0-9a-f]{12}\+dirty$`)
	git("tag", "v0.3.0")
	is(dir, `^0\.3\.0\+dirty$`)
}

// A later commit has a greater version, by dpkg's rules and, where it is installed, by rpm's.
func TestVersion(t *testing.T) {
	dir, at := t.TempDir(), 1_700_000_000
	script, git := checkout(t, dir, &at)
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
