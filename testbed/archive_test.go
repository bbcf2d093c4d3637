// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// archive runs a line of shell that has archive.sh's functions. Debian's sh and bash
// both read it.
func archive(t *testing.T, shell, line string, env ...string) (stdout string, status int) {
	t.Helper()
	cmd := exec.Command(shell, "-euc", ". ./archive.sh; "+line)
	cmd.Env = append(append(os.Environ(), "DEBIAN_ARCHIVE=", "LC_ALL=C"), env...)
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v", shell, err)
	}
	if stderr.Len() > 0 {
		t.Logf("%s: %s", line, &stderr)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// An index that is out of date is taken from an archive that has a date in its path, and
// from no other.
func TestStaleOnlyFromDatedArchives(t *testing.T) {
	for uri, dated := range map[string]bool{
		"http://mirror.example/debian":                               false,
		"http://mirror.example/debian/":                              false,
		"https://mirror.example:8080/a/b/debian":                     false,
		"http://20250520T000000Z.example/debian":                     false,
		"http://20250520/debian":                                     false,
		"http://20250520":                                            false,
		"http://mirror.example/debian-20250520":                      false,
		"http://mirror.example/20251350/debian":                      false, // no such month
		"http://mirror.example/20250532/debian":                      false,
		"http://mirror.example/20250520T250000Z/":                    false,
		"http://mirror.example/20250520T000000/":                     false,
		"http://mirror.example/120250520/":                           false,
		"http://mirror.example/archive/debian":                       false,
		"file:/srv/debian":                                           false,
		"http://snapshot.example/archive/debian/20250520T000000Z":    true,
		"https://snapshot.example/archive/debian/20250520T235959Z/":  true,
		"http://snapshot.example/archive/debian/20250520/":           true,
		"http://proxy.example/snapshot/20250520T000000Z/debian/main": true,
		"file:/srv/20250520T000000Z/debian":                          true,
	} {
		for _, shell := range []string{"sh", "bash"} {
			got, status := archive(t, shell, `archive_sources deb-src "$URI" trixie sid`, "URI="+uri)
			options := "signed-by=/usr/share/keyrings/debian-archive-keyring.gpg"
			if dated {
				options += " check-valid-until=no"
			}
			want := fmt.Sprintf("deb-src [%s] %s trixie main\ndeb-src [%[1]s] %[2]s sid main\n", options, uri)
			if got != want || status != 0 {
				t.Errorf("%s, %s: status %d, got\n%swant\n%s", uri, shell, status, got, want)
			}
		}
	}
}

// No other place decides that, and none has apt download as root.
func TestNoOtherPlaceLoosensApt(t *testing.T) {
	out, err := exec.Command("git", "ls-files", "--full-name", "..").Output()
	if err != nil {
		t.Skip("no git: ", err)
	}
	loose := regexp.MustCompile(`(?i)check-(valid-until|date)|sandbox::user|allow-?(unauthenticated|insecure|weak)|trusted=yes`)
	n := 0
	for _, name := range strings.Fields(string(out)) {
		if !slices.Contains([]string{".sh", ".mk", ".go"}, filepath.Ext(name)) || strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join("..", name))
		if errors.Is(err, os.ErrNotExist) {
			continue // removed, and not committed yet
		}
		if err != nil {
			t.Fatal(err)
		}
		n++
		for _, found := range loose.FindAllString(string(text), -1) {
			if name != "testbed/archive.sh" || found != "check-valid-until" {
				t.Errorf("%s has %s", name, found)
			}
		}
	}
	if n < 100 {
		t.Errorf("only %d files", n)
	}
}

func TestArchiveIsOverridden(t *testing.T) {
	bin := t.TempDir()
	stub := "#!/bin/sh\necho 'Other|Debian|http://other.example'\necho 'Debian|Debian-Security|http://security.example'\n" +
		"echo 'Debian|Debian|http://first.example/'\necho 'Debian|Debian|http://second.example/'\n"
	if err := os.WriteFile(filepath.Join(bin, "apt-get"), []byte(stub), 0o755); err != nil {
		t.Fatal(err)
	}
	path := "PATH=" + bin + ":" + os.Getenv("PATH")
	if got, _ := archive(t, "sh", "archive_uri", path); got != "http://first.example/\n" {
		t.Errorf("by apt's sources: %q", got)
	}
	if got, _ := archive(t, "sh", "archive_uri", path, "DEBIAN_ARCHIVE=http://mine.example/debian"); got != "http://mine.example/debian\n" {
		t.Errorf("by DEBIAN_ARCHIVE: %q", got)
	}
}

// signed is an archive of one suite without packages, below dir, whose Release file is
// of a date and holds until another.
func signed(t *testing.T, home, dir string, date, until time.Time) {
	t.Helper()
	suite := filepath.Join(dir, "dists", "trixie")
	if err := os.MkdirAll(filepath.Join(suite, "main", "binary-amd64"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(suite, "main", "binary-amd64", "Packages"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	const form = "Mon, 02 Jan 2006 15:04:05 UTC"
	release := fmt.Sprintf("Origin: Debian\nLabel: Debian\nSuite: stable\nCodename: trixie\nDate: %s\nValid-Until: %s\n"+
		"Architectures: amd64\nComponents: main\nSHA256:\n e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 0 main/binary-amd64/Packages\n",
		date.UTC().Format(form), until.UTC().Format(form))
	gpg(t, home, release, "--clearsign", "--output", filepath.Join(suite, "InRelease"))
}

func gpg(t *testing.T, home, input string, args ...string) {
	t.Helper()
	cmd := exec.Command("gpg", append([]string{"--homedir", home, "--batch", "--quiet", "--passphrase", "", "--pinentry-mode", "loopback"}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("gpg %q: %v\n%s", args, err, out)
	}
}

// Apt itself refuses and takes what it should, and it is said what to do.
func TestAptRefusesStaleIndexes(t *testing.T) {
	for _, tool := range []string{"apt-get", "gpg", "gpgconf"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(err)
		}
	}
	if out, err := exec.Command("dpkg", "--print-architecture").Output(); err != nil || strings.TrimSpace(string(out)) != "amd64" {
		t.Skipf("not Debian's amd64: %q, %v", out, err)
	}
	home, err := os.MkdirTemp("", "gpg") // its socket's name is to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		exec.Command("gpgconf", "--homedir", home, "--kill", "all").Run()
		os.RemoveAll(home)
	})
	dir := t.TempDir()
	keyring := filepath.Join(dir, "keyring.gpg")
	gpg(t, home, "", "--quick-gen-key", "test@example", "rsa2048", "sign", "never")
	gpg(t, home, "", "--export", "--output", keyring)
	if err := os.Chmod(keyring, 0o644); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for _, c := range []struct {
		name, path  string
		date, until time.Time
		want        []string // in the message; empty: it is taken
	}{
		{"current", "debian", now.Add(-time.Hour), now.Add(time.Hour), nil},
		{"expired", "old", now.Add(-48 * time.Hour), now.Add(-24 * time.Hour),
			[]string{"is expired (invalid since", "the mirror is behind", "DEBIAN_ARCHIVE=URL", "a date in its URL"}},
		{"expired and dated", "20250520T000000Z/debian", now.Add(-48 * time.Hour), now.Add(-24 * time.Hour), nil},
		{"of tomorrow", "new", now.Add(24 * time.Hour), now.Add(48 * time.Hour), []string{"is not valid yet", "set this machine's clock"}},
	} {
		signed(t, home, filepath.Join(dir, c.path), c.date, c.until)
		said, status := archive(t, "bash", `archive_keyring=$KEYRING; archive_apt "$DIR" deb "file:$URI" trixie; archive_update "$DIR"`,
			"KEYRING="+keyring, "DIR="+filepath.Join(dir, "apt "+c.name), "URI="+filepath.Join(dir, c.path))
		if (status == 0) != (c.want == nil) || c.want == nil && said != "" {
			t.Errorf("%s: status %d, %s", c.name, status, said)
		}
		for _, part := range c.want {
			if !strings.Contains(said, part) {
				t.Errorf("%s: the message lacks %q: %s", c.name, part, said)
			}
		}
	}
}

// The private apt ignores the configuration of this machine's apt.
func TestPrivateApt(t *testing.T) {
	if _, err := exec.LookPath("apt-config"); err != nil {
		t.Skip(err)
	}
	dir := filepath.Join(t.TempDir(), "apt")
	out, status := archive(t, "sh", `archive_apt "$DIR" deb http://mirror.example/debian trixie; APT_CONFIG=$DIR/apt.conf apt-config dump`, "DIR="+dir)
	if status != 0 {
		t.Fatalf("status %d: %s", status, out)
	}
	for _, want := range []string{`APT::Sandbox::User "_apt";`, `Dir::Etc::sourcelist "` + dir + `/sources.list";`} {
		if !strings.Contains(out, want) {
			t.Errorf("not there: %s", want)
		}
	}
	for _, never := range []string{"Check-Valid-Until", "Check-Date"} {
		if strings.Contains(out, never) {
			t.Errorf("apt is told of %s:\n%s", never, out)
		}
	}
}
