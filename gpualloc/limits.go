// SPDX-License-Identifier: Apache-2.0

package gpualloc

import (
	"fmt"
	"math"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/bytesize"
	"github.com/gpurdma/gpurdma/internal/procfs"
	"github.com/gpurdma/gpurdma/internal/sysfs"
)

// Scopes of a Limit.
const (
	scopeSegment = "segment"
	scopeTotal   = "total"
)

// atMost is the remedy for a limit of one segment: for a command's user a number,
// and for a Go program the way around it.
func atMost(n int64) string {
	return fmt.Sprintf("ask for at most %d bytes, or in Go split the buffer (Options.SegmentSize)", n)
}

// limiter is an exporter that knows what else bounds an allocation now.
type limiter interface{ limits() []Limit }

// checkLimits refuses beforehand what cannot work. With force it looks at the
// descriptors only, and the kernel answers for the rest. The limits are read anew,
// as they change while a program runs, except for small allocations in quick
// succession (budget), which draw what they then give back. Two allocations at once
// can each pass and fail together; then the kernel answers.
func (a *allocator) checkLimits(p plan, force bool) (drawing, error) {
	for _, l := range a.desc.Limits {
		if l.Scope != scopeSegment || force {
			continue
		}
		if p.each > l.Bytes {
			return drawing{}, a.over(p.each, l)
		}
	}
	mem := p.total
	if force {
		mem = 0
	}
	peak, stay := a.exp.fds()
	fds := stay*p.count + peak - stay
	if d, ok := a.budget.draw(mem, fds); ok {
		return d, nil
	}
	fdsLeft, err := a.checkFDs(p.count, fds)
	if err != nil {
		return drawing{}, err
	}
	memLeft := int64(noLimit)
	if mem > 0 {
		for _, l := range a.totals() {
			if mem > l.Bytes {
				return drawing{}, a.over(mem, l)
			}
			memLeft = min(memLeft, l.Bytes-mem)
		}
	} else {
		memLeft = 0 // not looked at: the next one that counts must look
	}
	a.budget.grant(memLeft, fdsLeft)
	return drawing{}, nil
}

// totals lists the present limits of the sum of an allocation's segments: the
// exporter's own, and for system memory the machine's.
func (a *allocator) totals() []Limit {
	var out []Limit
	if l, ok := a.exp.(limiter); ok {
		for _, l := range l.limits() {
			if l.Scope == scopeTotal {
				out = append(out, l)
			}
		}
	}
	if a.desc.Kind == KindVRAM {
		return out
	}
	return append(out, MemoryLimits(a.env)...)
}

func (a *allocator) over(size int64, l Limit) error {
	return a.refuse(failure.ErrLimit,
		fmt.Sprintf("%s, where %s allows %s", bytesize.Format(size), l.Name, bytesize.Format(l.Bytes)),
		l.Raise)
}

// checkFDs fails if there is no room for need descriptors, and returns how many more
// are left. If the limit cannot be read, the kernel decides.
func (a *allocator) checkFDs(segments, need int64) (left int64, err error) {
	fs := procfs.New(a.env.Proc)
	limit, err1 := fs.MaxOpenFiles()
	open, err2 := fs.OpenFiles()
	if err1 != nil || err2 != nil {
		return 0, nil
	}
	if need > limit-open {
		return 0, a.refuse(failure.ErrLimit,
			fmt.Sprintf("%d segments need %d file descriptors, and %d of %d are taken", segments, need, open, limit),
			"raise RLIMIT_NOFILE (ulimit -n), or use fewer and larger segments")
	}
	return limit - open - need, nil
}

// MemoryLimits lists the present limits of system memory: MemAvailable, and each
// level of this process's memory cgroup, v2 or v1. It leaves out limits that it
// cannot read.
//
// The kernel does not charge the pages of every exporter to the cgroup: those of a
// dma-heap it does not. Alloc applies the cgroup's limits to them, too, because
// they say how much memory this process is meant to use.
//
// Alloc checks these limits by itself. MemoryLimits is for callers whose use of a
// buffer takes more system memory, as many registrations do.
func MemoryLimits(env Env) []Limit {
	fs := procfs.New(env.Proc)
	var out []Limit
	if n, err := fs.MemAvailable(); err == nil {
		out = append(out, Limit{
			Name: "MemAvailable", Bytes: n, Where: fs.Path("meminfo"), Scope: scopeTotal,
			Raise: "free memory, ask for less, or force it (the kernel may then kill processes)",
		})
	}
	return append(out, cgroupLimits(env)...)
}

// cgroupLimits climbs from this process's cgroup to the root of what is
// mounted; each level has its own limit and use.
func cgroupLimits(env Env) []Limit {
	fs := procfs.New(env.Proc)
	groups, err := fs.Cgroups()
	if err != nil {
		return nil
	}
	mounts, err := fs.Mounts()
	if err != nil {
		return nil
	}
	var out []Limit
	for _, g := range groups {
		v2 := len(g.Controllers) == 0
		if !v2 && !slices.Contains(g.Controllers, "memory") {
			continue
		}
		for _, m := range mounts {
			isV2 := m.Type == "cgroup2"
			isV1 := m.Type == "cgroup" && slices.Contains(m.Super, "memory")
			if v2 && isV2 || !v2 && isV1 {
				out = append(out, climb(env, m, g.Path, v2)...)
				break
			}
		}
	}
	return out
}

// climb reads the limits from the group at groupPath up to the mount's root.
func climb(env Env, m procfs.Mount, groupPath string, v2 bool) []Limit {
	// In a cgroup namespace, or a container's bind mount, the mount shows only
	// the part of the hierarchy below its own root.
	rel, ok := below(m.Root, groupPath)
	if !ok {
		return nil
	}
	sub, ok := below("/sys", m.Point)
	if !ok {
		return nil // mounted elsewhere: not where Env can follow
	}
	sys := sysfs.New(env.Sys)
	var out []Limit
	for dir := rel; ; dir = path.Dir(dir) {
		if l, ok := groupLimit(sys, path.Join(sub, dir), v2); ok {
			out = append(out, l)
		}
		if dir == "/" || dir == "." {
			return out
		}
	}
}

// below returns what remains of p under root, beginning with "/".
func below(root, p string) (string, bool) {
	root, p = path.Clean(root), path.Clean(p)
	if root == "/" {
		return p, strings.HasPrefix(p, "/")
	}
	if p == root {
		return "/", true
	}
	rest, ok := strings.CutPrefix(p, root+"/")
	return "/" + rest, ok
}

// unlimited is where cgroup v1's "no limit" begins: it is LONG_MAX rounded
// down to a page, and so depends on the page size.
const unlimited = math.MaxInt64 - 1<<20

// groupLimit reads one level. Inactive page cache counts as free, as the kernel
// reclaims it first.
func groupLimit(sys sysfs.FS, dir string, v2 bool) (Limit, bool) {
	maxFile, useFile, cache := "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
	if v2 {
		maxFile, useFile, cache = "memory.max", "memory.current", "inactive_file"
	}
	text, err := sys.ReadString(filepath.Join(dir, maxFile))
	if err != nil || text == "max" {
		return Limit{}, false
	}
	limit, err := strconv.ParseInt(text, 10, 64)
	if err != nil || limit >= unlimited {
		return Limit{}, false
	}
	used, err := sys.ReadInt(filepath.Join(dir, useFile))
	if err != nil {
		return Limit{}, false
	}
	idle := min(cgroupStat(sys, filepath.Join(dir, "memory.stat"), cache), used)
	where := sys.Path(dir, maxFile)
	return Limit{
		Name: "the cgroup limit " + where, Bytes: max(0, limit-(used-idle)), Where: where, Scope: scopeTotal,
		Raise: fmt.Sprintf("ask for less, raise %s (now %s), or force it", maxFile, bytesize.Format(limit)),
	}, true
}

func cgroupStat(sys sysfs.FS, file, key string) int64 {
	text, err := sys.ReadString(file)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == key {
			n, err := strconv.ParseInt(f[1], 10, 64)
			if err == nil && n > 0 {
				return n
			}
		}
	}
	return 0
}
