// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"bufio"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/internal/files"
)

// FS is a procfs tree. The zero value is /proc.
type FS struct{ root string }

// New returns the tree under root, /proc if root is "".
func New(root string) FS { return FS{root} }

// Path is the file's path outside the tree.
func (p FS) Path(elem ...string) string {
	root := p.root
	if root == "" {
		root = "/proc"
	}
	return filepath.Join(append([]string{root}, elem...)...)
}

// MemAvailable is the kernel's estimate, in bytes, of what can be allocated
// without swapping (proc(5), meminfo).
func (p FS) MemAvailable() (int64, error) {
	path := p.Path("meminfo")
	data, err := files.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != "MemAvailable:" {
			continue
		}
		kib, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil || kib < 0 || kib > math.MaxInt64>>10 {
			return 0, fmt.Errorf("%s: %q is not a size", path, f[1])
		}
		return kib << 10, nil
	}
	return 0, fmt.Errorf("%s has no MemAvailable", path)
}

// MaxOpenFiles is the soft RLIMIT_NOFILE of this process, from self/limits;
// math.MaxInt64 where it is unlimited.
func (p FS) MaxOpenFiles() (int64, error) {
	path := p.Path("self/limits")
	data, err := files.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		rest, ok := strings.CutPrefix(line, "Max open files")
		if !ok {
			continue
		}
		f := strings.Fields(rest)
		if len(f) == 0 {
			break
		}
		if f[0] == "unlimited" {
			return math.MaxInt64, nil
		}
		return strconv.ParseInt(f[0], 10, 64)
	}
	return 0, fmt.Errorf("%s has no line for open files", path)
}

// OpenFiles counts this process's descriptors. Since Linux 6.2 the size of
// self/fd is that number; before, the directory is counted.
func (p FS) OpenFiles() (int64, error) {
	path := p.Path("self/fd")
	if st, err := files.Stat(path); err == nil && st.Size() > 0 && p.root == "" {
		return st.Size(), nil
	}
	names, err := files.ReadDir(path)
	return int64(len(names)), err
}

// Mount is a line of self/mountinfo.
type Mount struct {
	Root   string   // the directory of the file system that is mounted
	Point  string   // where
	Type   string   // "cgroup2"
	Super  []string // super options: "rw", "memory"
	Source string
}

// Mounts reads self/mountinfo (proc(5)).
func (p FS) Mounts() ([]Mount, error) { return p.MountsOf("self") }

// MountsOf is Mounts of another process.
func (p FS) MountsOf(process string) ([]Mount, error) {
	data, err := files.ReadFile(p.Path(process, "mountinfo"))
	if err != nil {
		return nil, err
	}
	return parseMounts(string(data)), nil
}

func parseMounts(text string) []Mount {
	var out []Mount
	for line := range strings.Lines(text) {
		before, after, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 6 || len(g) < 3 {
			continue
		}
		out = append(out, Mount{
			Root: unescape(f[3]), Point: unescape(f[4]),
			Type: g[0], Source: unescape(g[1]), Super: strings.Split(g[2], ","),
		})
	}
	return out
}

// unescape undoes the octal escapes of mountinfo: blank, tab, line break,
// backslash.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// Cgroup is a line of self/cgroup: where this process is in one hierarchy.
type Cgroup struct {
	Controllers []string // empty for the unified hierarchy (cgroup v2)
	Path        string
}

// Cgroups reads self/cgroup (cgroups(7)).
func (p FS) Cgroups() ([]Cgroup, error) {
	data, err := files.ReadFile(p.Path("self/cgroup"))
	if err != nil {
		return nil, err
	}
	return parseCgroups(string(data)), nil
}

func parseCgroups(text string) []Cgroup {
	var out []Cgroup
	for s := bufio.NewScanner(strings.NewReader(text)); s.Scan(); {
		f := strings.SplitN(s.Text(), ":", 3)
		if len(f) != 3 {
			continue
		}
		c := Cgroup{Path: f[2]}
		if f[1] != "" {
			c.Controllers = strings.Split(f[1], ",")
		}
		out = append(out, c)
	}
	return out
}
