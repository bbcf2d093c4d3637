// SPDX-License-Identifier: Apache-2.0

package apt

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
)

// Package is one version of a binary package as the archive offers it.
type Package struct {
	Name    string
	Version string
	Arch    string
	SHA256  string // of the .deb, in hex
	Depends []string
}

// ErrNotFound says that the package lists hold no such package or version.
var ErrNotFound = errors.New("package not found in apt's lists")

// Parse reads the stanzas that `apt-cache show` prints.
func Parse(text string) []Package {
	var ps []Package
	for stanza := range strings.SplitSeq(text, "\n\n") {
		var p Package
		for line := range strings.SplitSeq(stanza, "\n") {
			if strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t") {
				continue // continuation of a field that is not used here
			}
			key, val, ok := strings.Cut(line, ":")
			if !ok {
				continue
			}
			val = strings.TrimSpace(val)
			switch key {
			case "Package":
				p.Name = val
			case "Version":
				p.Version = val
			case "Architecture":
				p.Arch = val
			case "SHA256":
				p.SHA256 = val
			case "Depends", "Pre-Depends":
				p.Depends = append(p.Depends, splitDepends(val)...)
			}
		}
		if p.Name != "" && p.Version != "" {
			ps = append(ps, p)
		}
	}
	return ps
}

// splitDepends returns the package names of a Depends field, the
// alternatives of one dependency one after the other.
func splitDepends(field string) []string {
	var names []string
	for dep := range strings.SplitSeq(field, ",") {
		for alt := range strings.SplitSeq(dep, "|") {
			name := strings.TrimSpace(alt)
			if i := strings.IndexAny(name, " (:["); i >= 0 {
				name = name[:i]
			}
			if name != "" {
				names = append(names, name)
			}
		}
	}
	return names
}

// Apt runs apt's commands. The zero value is ready to use.
type Apt struct {
	Log io.Writer // what apt prints while it works; nil drops it

	// command replaces exec in tests.
	command func(ctx context.Context, dir, name string, args ...string) (stdout, stderr []byte, err error)
}

func (a *Apt) run(ctx context.Context, dir, name string, args ...string) ([]byte, []byte, error) {
	if a.command != nil {
		return a.command(ctx, dir, name, args...)
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	var out, errb bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errb
	err := cmd.Run()
	if a.Log != nil && errb.Len() > 0 {
		a.Log.Write(errb.Bytes())
	}
	return out.Bytes(), errb.Bytes(), err
}

// Show returns a package's candidate version, or the version asked for when
// that is not empty. The error is ErrNotFound when there is none.
func (a *Apt) Show(ctx context.Context, name, version string) (Package, error) {
	spec := name
	args := []string{"show", "--no-all-versions"}
	if version != "" {
		spec += "=" + version
	}
	out, stderr, err := a.run(ctx, "", "apt-cache", append(args, spec)...)
	if errors.Is(err, exec.ErrNotFound) {
		return Package{}, fmt.Errorf("apt-cache is not installed: kernels come from Debian packages, so a Debian 12 machine is needed: %w", err)
	}
	for _, p := range Parse(string(out)) {
		if p.Name == name && (version == "" || p.Version == version) {
			return p, nil
		}
	}
	if err != nil && !bytes.Contains(stderr, []byte("No packages found")) &&
		!bytes.Contains(stderr, []byte("Unable to locate package")) && !bytes.Contains(stderr, []byte("was not found")) {
		return Package{}, fmt.Errorf("apt-cache show %s: %w: %s", spec, err, bytes.TrimSpace(stderr))
	}
	return Package{}, fmt.Errorf("%s: %w", spec, ErrNotFound)
}

// Names returns the names with a prefix of the packages that apt knows.
func (a *Apt) Names(ctx context.Context, prefix string) ([]string, error) {
	out, stderr, err := a.run(ctx, "", "apt-cache", "pkgnames", prefix)
	if err != nil {
		return nil, fmt.Errorf("apt-cache pkgnames %s: %w: %s", prefix, err, bytes.TrimSpace(stderr))
	}
	return strings.Fields(string(out)), nil
}

// Update refreshes the package lists, which only root may do.
func (a *Apt) Update(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return errors.New("run `apt-get update` as root: apt's package lists are missing or out of date")
	}
	_, stderr, err := a.run(ctx, "", "apt-get", "-q", "update")
	if err != nil {
		return fmt.Errorf("apt-get update: %w: %s%s", err, bytes.TrimSpace(stderr), advice(stderr))
	}
	return nil
}

// advice is what to do about an index that apt has refused for its date, as
// archive_advice in testbed/archive.sh says it. Empty: apt has not.
func advice(stderr []byte) string {
	switch {
	case bytes.Contains(stderr, []byte("is expired (invalid since")):
		return ": the archive's index is out of date: the mirror is behind, or this machine's clock is ahead: try again later, or use another mirror in apt's sources"
	case bytes.Contains(stderr, []byte("is not valid yet (invalid for")):
		return ": the archive's index is of a later time than now: set this machine's clock"
	}
	return ""
}

// sandbox gives a directory to the user that root's apt downloads as. Where apt finds
// that this user cannot get there all the same, it says so and downloads as root.
func sandbox(dir string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	u, err := user.Lookup("_apt")
	if err != nil {
		return nil // apt looks for it, too
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return err
	}
	return os.Chown(dir, uid, -1)
}

// Download puts the package's .deb into dir, unless it is there already, and
// returns its path. A partial download is never left under the final name.
func (a *Apt) Download(ctx context.Context, dir string, p Package) (string, error) {
	final := filepath.Join(dir, fmt.Sprintf("%s_%s_%s.deb", p.Name, strings.ReplaceAll(p.Version, ":", "%3a"), p.Arch))
	if sum, err := fileSum(final); err == nil && sum == p.SHA256 {
		return final, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	stage, err := os.MkdirTemp(dir, "partial-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(stage)
	if err := os.Chmod(stage, 0o755); err != nil {
		return "", err
	}
	if err := sandbox(stage); err != nil {
		return "", err
	}
	_, stderr, err := a.run(ctx, stage, "apt-get", "-q", "download", p.Name+"="+p.Version)
	if err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		return "", fmt.Errorf("apt-get download %s=%s: %w: %s", p.Name, p.Version, err, bytes.TrimSpace(stderr))
	}
	got, err := filepath.Glob(filepath.Join(stage, "*.deb"))
	if err != nil || len(got) != 1 {
		return "", fmt.Errorf("apt-get download %s=%s left %d packages, want 1", p.Name, p.Version, len(got))
	}
	sum, err := fileSum(got[0])
	if err != nil {
		return "", err
	}
	if p.SHA256 != "" && sum != p.SHA256 {
		return "", fmt.Errorf("%s %s: downloaded file has SHA-256 %s, the package lists say %s: run `apt-get update` and try again", p.Name, p.Version, sum, p.SHA256)
	}
	return final, os.Rename(got[0], final)
}

// Unpack unpacks a .deb below dir without installing it.
func (a *Apt) Unpack(ctx context.Context, deb, dir string) error {
	_, stderr, err := a.run(ctx, "", "dpkg", "-x", deb, dir)
	if err != nil {
		return fmt.Errorf("dpkg -x %s: %w: %s", filepath.Base(deb), err, bytes.TrimSpace(stderr))
	}
	return nil
}

func fileSum(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
